"""The same workflows by peers, where they are installed (`pip install flowfabric[bench]`).

Each keeps what ours keeps: the result of every step, durable before the next one begins, with the
settings its documentation gives.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from flowfabric.bench.measurement import MeasurementFailed
from flowfabric.clock import monotonic

LIMIT_S: Final = 300.0
_QUEUE: Final = "bench"
_VERSION: Final = "bench"


def absurd(url: str, n: int, steps: int, concurrency: int) -> float | str:
    """Workflows per second of Absurd, or why there is no figure."""
    if not url.startswith("postgres"):
        return "Absurd runs on PostgreSQL only"
    if find_spec("absurd_sdk") is None or find_spec("absurdctl") is None:
        return "absurd-sdk and absurdctl are not installed"
    return asyncio.run(_absurd(url, n, steps, concurrency))


async def _absurd(url: str, n: int, steps: int, concurrency: int) -> float:
    sdk, schema = import_module("absurd_sdk"), import_module("absurdctl").BUNDLED_SCHEMA_SQL
    connection = await import_module("asyncpg").connect(url)
    await connection.execute(schema)
    await connection.close()
    app = sdk.AsyncAbsurd(url, queue_name=_QUEUE)
    await app.create_queue(_QUEUE)
    ended = 0

    async def workflow(params: Any, context: Any) -> int:
        nonlocal ended
        number = 0

        async def step() -> int:
            return number + 1

        for at in range(steps):
            number = await context.step(f"step-{at}", step)
        ended += 1
        if ended == n:
            app.stop_worker()
        return number

    app.register_task("bench")(workflow)
    for _ in range(n):
        await app.spawn("bench", {})
    started = monotonic()
    async with asyncio.timeout(LIMIT_S):
        await app.start_worker(concurrency=concurrency)
    seconds = monotonic() - started
    await app.close()
    return n / seconds


def dbos(url: str, n: int, steps: int, concurrency: int) -> float | str:
    """Workflows per second of DBOS, or why there is no figure."""
    if find_spec("dbos") is None:
        return "dbos is not installed"
    module = import_module("dbos")
    app, ended = module.DBOS, list[float]()
    began: list[float] = []

    @app.step(name="step")  # type: ignore[untyped-decorator, unused-ignore]
    def step(number: int) -> int:
        return number + 1

    @app.workflow(name="bench")  # type: ignore[untyped-decorator, unused-ignore]
    def workflow() -> int:
        began.append(monotonic())
        number = 0
        for _ in range(steps):
            number = step(number)
        ended.append(monotonic())
        return number

    config = {
        "name": _QUEUE,
        "system_database_url": url,
        "application_version": _VERSION,
        "log_level": "ERROR",
    }
    app(config=config)
    app.launch()
    try:
        client = module.DBOSClient(system_database_url=url)
        options = {"workflow_name": "bench", "queue_name": _QUEUE, "app_version": _VERSION}
        for _ in range(n):
            client.enqueue(options)
        client.destroy()
        app.register_queue(_QUEUE, polling_interval_sec=0.02, worker_concurrency=concurrency)
        _wait_until(lambda: len(ended) >= n)
        return n / (max(ended) - min(began))
    finally:
        app.destroy(destroy_registry=True)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + LIMIT_S
    while not condition():
        if monotonic() > deadline:
            raise MeasurementFailed(f"a peer took longer than {LIMIT_S:.0f} s")
        time.sleep(0.01)


PEERS: Final[dict[str, Callable[[str, int, int, int], float | str]]] = {
    "absurd": absurd,
    "dbos": dbos,
}
