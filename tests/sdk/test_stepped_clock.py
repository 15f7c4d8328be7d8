"""A step of the machine's clock under a running worker. Memory has no other clock to go by."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowfabric import Fabric
from flowfabric.clock import SystemClock
from tests.sdk.workshop import working
from tests.support.databases import PostgresServer
from tests.support.lab import DURABLE_STORES

HOUR_MS = 3_600_000


@pytest.fixture(params=DURABLE_STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'ff.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    with server.database() as made:
        yield made


@pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])
def test_a_step_of_the_clock_neither_hurries_renewals_nor_loses_a_lease(
    url: str, step_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ff = Fabric(url)
    really = SystemClock.now_ms
    attempts = 0

    @ff.task
    async def long(seconds: float) -> str:
        nonlocal attempts
        attempts += 1
        monkeypatch.setattr(SystemClock, "now_ms", lambda self: really(self) + step_ms)
        await asyncio.sleep(seconds)
        return "done"

    async def main() -> int:
        async with ff:
            engine = await ff.start()
            renewals, renew_many = 0, engine.renew_many

            async def counted(handles: Any) -> Any:
                nonlocal renewals
                renewals += 1
                return await renew_many(handles)

            monkeypatch.setattr(engine, "renew_many", counted)
            run = await ff.submit(long, 1.7)
            async with working(ff, lease_ttl="1s"):
                assert await run.result("60s") == "done"
            return renewals

    renewals = asyncio.run(main())
    assert attempts == 1
    assert 1 <= renewals <= 10  # one each third of a second; every tick would be fifty
