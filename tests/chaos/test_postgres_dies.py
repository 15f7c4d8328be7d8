"""kill -9 of the whole PostgreSQL server under load: nothing acknowledged is lost (I1, I6).

Clients know only what they are told: an answer, `StoreUnavailable` (nothing was written) or
`OutcomeUnknown` (repeat it with the same key or fence). They repeat, the store must sort it out.
FF_CHAOS_POSTGRES_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import ExecutionNotActive, OutcomeUnknown, StateError, StoreUnavailable
from flowfabric.model.results import Claimed
from tests.chaos.mortal import MortalServer, mortal_server
from tests.chaos.processes import PATIENCE_S
from tests.chaos.verdict import check_acknowledged, check_store
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

T = TypeVar("T")
CYCLES = budget("FF_CHAOS_POSTGRES_KILLS", 5)
CLIENTS = 6
ACKNOWLEDGED_PER_LIFE = 40


@pytest.fixture
def server() -> Iterator[MortalServer]:
    with mortal_server() as mortal:
        yield mortal


class Clients:
    """Create, claim, complete, for ever; remember every answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._heard = asyncio.Event()
        self.made: list[tuple[str, str]] = []
        self.done: list[tuple[str, int]] = []
        self.unknown = 0
        self.unavailable = 0
        self.stopping = False

    @property
    def acknowledged(self) -> int:
        return len(self.made) + len(self.done)

    async def until_acknowledged(self, number: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.acknowledged < number:
                self._heard.clear()
                await self._heard.wait()

    async def insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat until there is an answer."""
        while True:
            try:
                return await call()
            except OutcomeUnknown:
                self.unknown += 1
            except StoreUnavailable:
                self.unavailable += 1
            await asyncio.sleep(0.01)

    async def work(self, name: str) -> None:
        number = 0
        while not self.stopping:
            number += 1
            await self._create(f"{name}-{number}")
            for claimed in await self._claim(name):
                await self._complete(claimed)

    async def drain(self, name: str) -> None:
        """Until nothing is left, leases lost in a crash included."""
        async with asyncio.timeout(PATIENCE_S):
            while await unfinished(self._engine):
                for claimed in await self._claim(name):
                    await self._complete(claimed)

    async def _create(self, key: str) -> None:
        created = await self.insist(
            lambda: self._engine.create_execution(execution_kind="w", idempotency_key=key)
        )
        self.made.append((key, created.execution_id))
        self._heard.set()

    async def _claim(self, name: str) -> list[Claimed]:
        return await self.insist(
            lambda: self._engine.claim(
                lanes=("default",),
                worker_id=name,
                worker_instance_id=name,
                limit=2,
                lease_ttl_ms=2_000,
                wait_ms=100,
            )
        )

    async def _complete(self, claimed: Claimed) -> None:
        try:
            await self.insist(lambda: self._engine.complete(claimed.handle, result=b"r"))
        except StateError:
            return  # the outage outlived the lease; somebody else will complete it
        except ExecutionNotActive as error:  # and it waits for him, or he has done so already
            if error.fields["lease_epoch"] <= claimed.lease_epoch:
                raise  # nobody came after this lease: an acknowledged claim is lost
            return
        self.done.append((claimed.execution_id, claimed.lease_epoch))
        self._heard.set()


async def unfinished(engine: Engine) -> int:
    counts = await engine.count_executions()
    return sum(
        number
        for states in counts.values()
        for state, number in states.items()
        if state != "completed"
    )


async def until_healthy(engine: Engine) -> None:
    """What met the last outage looks again a second later."""
    async with asyncio.timeout(PATIENCE_S):
        while not (await engine.doctor()).healthy:  # noqa: ASYNC110 - it tells nothing by itself
            await asyncio.sleep(0.1)


def test_the_server_killed_under_load(server: MortalServer) -> None:
    asyncio.run(_kill_again_and_again(server))


async def _kill_again_and_again(server: MortalServer) -> None:
    async with open_engine(server.url, config=EngineConfig(pool_size=6)) as engine:
        clients = Clients(engine)
        async with asyncio.TaskGroup() as group:  # a client that fails ends the test at once
            for number in range(CLIENTS):
                group.create_task(clients.work(f"client-{number}"))
            for _ in range(CYCLES):
                await clients.until_acknowledged(clients.acknowledged + ACKNOWLEDGED_PER_LIFE)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await clients.until_acknowledged(clients.acknowledged + ACKNOWLEDGED_PER_LIFE)
            clients.stopping = True
        await clients.drain("last")
        dump = await engine.store.dump()
        await until_healthy(engine)
    check_store(dump)
    created, completed = check_acknowledged(dump, clients.made, clients.done)
    assert created >= CYCLES
    assert completed >= CYCLES
    assert clients.unknown + clients.unavailable > 0, "no client noticed any of the kills"
