"""The status of background work in this process."""

from __future__ import annotations

from typing import Protocol

from flowfabric.engine.unit.due import Aside, SetAside
from flowfabric.model.record import Record


class DutyStatus(Record, frozen=True):
    """One kind of background work."""

    name: str
    is_running: bool  # whether its task is alive
    seconds_since_turn: float | None  # since the last finished turn; None: none has finished yet
    failures_in_a_row: int
    failures_total: int
    last_error: str | None  # the class of the last error, also after it has passed


class LoopStatus(Record, frozen=True):
    """All background work of an engine, and the due records that it could not move."""

    duties: tuple[DutyStatus, ...]  # None: this engine runs no loops
    set_aside: tuple[SetAside, ...]


class BackgroundLoop(Protocol):
    """The background work of an open engine."""

    def start(self) -> None:
        """Start in the running event loop."""
        ...

    async def stop(self) -> None:
        """Stop; a running turn may finish within a grace period."""
        ...

    def status(self) -> tuple[DutyStatus, ...]:
        """The status of each kind of work."""
        ...


def status_of(loop: BackgroundLoop | None, aside: Aside) -> LoopStatus:
    """The status of an engine's loop, if it has one."""
    return LoopStatus(() if loop is None else loop.status(), tuple(aside))
