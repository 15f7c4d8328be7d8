"""What goes on during a storm, on any store: tasks that spend, wait and spawn, a client that keeps
submitting and signalling, and what must be true when the storm is over."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from flowfabric import Context, Fabric, Run, signal
from flowfabric.config import EngineConfig
from flowfabric.errors import FlowFabricError, NotFound, StateError
from flowfabric.model.state import PublicState
from tests.chaos.processes import Crew
from tests.chaos.verdict import check_store
from tests.property.budget import budget
from tests.support.inner import inner

T = TypeVar("T")

BUDGET = "storm"
CHILDREN = 3
PAUSE_S = 0.05
STATEMENT_S = 1.5  # PostgreSQL: what a statement may take
STORM_S = budget("FF_STORM_S", 5)
# Longer than any single fault: nothing that runs may lose it. Faults of a short storm are short.
LEASE = "20s" if STORM_S > 5 else "10s"


def storm_fabric(url: str, finished: Callable[[str], None]) -> Fabric:
    """With its tasks; `finished` is told when a handler is about to return its result."""
    config = EngineConfig(poll_interval_ms=500, statement_timeout_ms=int(STATEMENT_S * 1000))
    ff = Fabric(url, config=config)

    @ff.task
    async def spender(ctx: Context, number: int) -> int:
        async with ctx.spend(BUDGET, tokens=1):
            await asyncio.sleep(PAUSE_S)
        finished(ctx.execution_id)
        return number

    @ff.task
    async def waiter(ctx: Context, number: int) -> int:
        if not ctx.resumed:
            await ctx.suspend(signal("go"), timeout="1h", idempotency_key="go")
        finished(ctx.execution_id)
        return number

    @ff.task
    async def parent(ctx: Context, number: int) -> int:
        children = await ctx.spawn_many(spender, [number] * CHILDREN)
        total: int = sum(await ctx.gather(*children))
        finished(ctx.execution_id)
        return total

    return ff


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """What a careful client does: repeat what may pass. Anything else is a defect."""
    while True:
        try:
            return await call()
        except FlowFabricError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(PAUSE_S)


class Client:
    """Submits all kinds of work until told to stop, signals what waits, then awaits every result.

    It lives in a thread of its own, so that a test can make weather meanwhile.
    """

    def __init__(self, url: str) -> None:
        self.fabric = storm_fabric(url, lambda execution_id: None)
        self._tasks = self.fabric.tasks
        self._runs: list[tuple[Run[Any], int]] = []
        self._is_over = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work)
        self.problems: list[str] = []
        self.dump: dict[str, list[Any]] = {}
        self.spent = self.held = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self, listen: Callable[[], None]) -> None:
        """Submit no more and wait for everything; the workers are heard meanwhile."""
        self._is_over.set()
        while self._thread.is_alive():
            listen()
        if self._error is not None:
            raise self._error

    @property
    def submitted(self) -> int:
        return len(self._runs)

    def _work(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001 - raised again where the test waits
            self._error = error

    async def _live(self) -> None:
        ff = self.fabric
        await insist(lambda: ff.create_budget(BUDGET, hard={"tokens": 1_000_000_000}))
        signalling = asyncio.create_task(self._signal())
        while not self._is_over.is_set():
            await self._submit(len(self._runs))
            await asyncio.sleep(PAUSE_S)
        for run, expected in self._runs:
            assert await insist(partial(run.result, "10m")) == expected
        signalling.cancel()
        await self._take_stock()
        await ff.close()

    async def _submit(self, number: int) -> None:
        kind = ("spender", "waiter", "parent")[number % 3]
        task = self._tasks[kind].options(key=f"storm-{number}")
        run = await insist(lambda: task.submit(number))
        self._runs.append((run, number * CHILDREN if kind == "parent" else number))

    async def _signal(self) -> None:
        """Everything that waits for a word gets it, once."""
        while True:
            for wait in await insist(lambda: self.fabric.waits(kind="waiter", limit=100)):
                send = partial(self.fabric.signal, wait.execution_id, "go", idempotency_key="go")
                with suppress(NotFound, StateError):  # an earlier round of ours was fast enough
                    await insist(send)
            await asyncio.sleep(PAUSE_S)

    async def _take_stock(self) -> None:
        engine = await self.fabric.start()
        report = await insist(engine.doctor)
        self.problems = [f"{each.code} {each.subject}: {each.detail}" for each in report.problems]
        self.dump = await insist(inner(engine).dump)
        status = await insist(lambda: self.fabric.budget(BUDGET))
        self.spent = status.usage.get("tokens", 0)
        self.held = status.held.get("tokens", 0)


def check_aftermath(client: Client, workers: Crew) -> None:
    """Nothing failed that no handler failed, nothing in hand was run again, nothing is left."""
    check_store(client.dump)
    executions = client.dump["executions"]
    assert {each.public_state for each in executions} == {PublicState.COMPLETED}
    roots = client.submitted
    kinds = Counter(each.route.execution_kind for each in executions)
    assert kinds["spender"] + kinds["waiter"] + kinds["parent"] == len(executions)
    assert len(executions) == roots + CHILDREN * kinds["parent"]
    assert client.spent >= kinds["spender"]
    assert client.held == 0
    assert client.problems == []
    lost = Counter(line[1] for each in workers.buried for line in each.said if line[0] == "ended")
    kept = Counter(line[1] for each in workers.alive for line in each.said if line[0] == "ended")
    again = {key: times for key, times in kept.items() if times > 1}
    assert not again, f"run again although their results were in hand: {again}"
    assert set(kept) | set(lost) == {each.execution_id for each in executions}
