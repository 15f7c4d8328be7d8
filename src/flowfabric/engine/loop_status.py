"""How background work fares, in this process."""

from __future__ import annotations

from flowfabric.engine.due import SetAside
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
