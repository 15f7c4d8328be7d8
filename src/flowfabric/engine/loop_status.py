"""How background work fares, in this process."""

from __future__ import annotations

from typing import Protocol

from flowfabric.engine.unit.due import Aside, SetAside
from flowfabric.model.record import Record


class DutyStatus(Record, frozen=True):
    """One kind of background work."""

    name: str
    is_running: bool  # whether its task is alive
    seconds_since_turn: float | None  # since a turn came to its end; none: none has yet
    failures_in_a_row: int
    failures_total: int
    last_error: str | None  # the class of the last one, also after it has passed


class LoopStatus(Record, frozen=True):
    """All background work of an engine, and the due records that it could not move."""

    duties: tuple[DutyStatus, ...]  # none: this engine runs no loops
    set_aside: tuple[SetAside, ...]


class BackgroundLoop(Protocol):
    """What happens by itself while the engine is open."""

    def start(self) -> None:
        """Begin in the running event loop."""
        ...

    async def stop(self) -> None:
        """End; what is under way may finish within a grace."""
        ...

    def status(self) -> tuple[DutyStatus, ...]:
        """How each kind of work fares."""
        ...


def status_of(loop: BackgroundLoop | None, aside: Aside) -> LoopStatus:
    """How the work fares of an engine's loop, if it has one."""
    return LoopStatus(() if loop is None else loop.status(), tuple(aside))
