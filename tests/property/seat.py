"""One engine under test in a history: its own clock, its own mint, answers that can be compared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.config import EngineConfig
from flowfabric.errors import FlowFabricError
from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed
from tests.property.mint import SWITCH, Mint

NO_BACKEND = "any"
CONFIG = EngineConfig(
    loops=False,
    lease_ttl_ms=2_000,
    retention_ms=1_200,
    event_retention_ms=9_000,
    reclaim_grace_ms=500,
    synchronous="normal",
    waitpoint_secret="c0ffee" * 10 + "abcd",  # tokens are derived from it: alike everywhere
)


class Refusal(NamedTuple):
    """An error as an answer."""

    name: str
    detail: str
    fields: dict[str, Any]


Call = Callable[["Seat"], Awaitable[Any]]


class Seat:
    """An engine that answers one call at a time."""

    def __init__(self, url: str, config: EngineConfig = CONFIG) -> None:
        self.clock = ManualClock(1_000_000)
        self.engine = open_engine(url, config=config, clock=self.clock)
        self.mint = Mint()

    async def open(self) -> None:
        await self.engine.start(migrate=True)

    async def close(self) -> None:
        await self.engine.close()

    async def ask(self, call: Call) -> Any:
        """The answer without what names the store."""
        SWITCH.current = self.mint
        try:
            return comparable(await call(self))
        except FlowFabricError as error:
            return Refusal(type(error).__name__, error.detail, error.fields)

    def handle(self, held: Handle) -> Handle:
        """The handle as this engine issued it."""
        return replace(held, backend=self.engine.store.family)


def comparable(answer: Any) -> Any:
    """An answer in which every store looks alike."""
    if isinstance(answer, list):
        return [comparable(each) for each in answer]
    if isinstance(answer, Claimed):
        return replace(answer, handle=replace(answer.handle, backend=NO_BACKEND))
    if isinstance(answer, FlowFabricError):
        return Refusal(type(answer).__name__, answer.detail, answer.fields)
    return answer
