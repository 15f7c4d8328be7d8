"""Dead letters: executions that failed or expired, until they are replayed or dismissed."""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.columns import Instant
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState


class Letter(StrEnum):
    """How a dead letter stands."""

    OPEN = "open"
    DISMISSED = "dismissed"


class DeadRow(Record, frozen=True):
    """An execution that failed or expired. Written under its lock; it goes with a replay."""

    execution_id: str
    namespace: str
    execution_kind: str
    category: str  # that of its failure; without one its state
    ended_at: Instant
    open_at: Instant | None  # when it ended; none: it was dismissed
    fingerprint: str | None = None  # of failures that are alike; none: written before there was one

    @property
    def letter(self) -> Letter:
        """How it stands."""
        return Letter.DISMISSED if self.open_at is None else Letter.OPEN


class DeadLetter(Record, frozen=True, kw_only=True):
    """A dead letter as it is shown."""

    execution_id: str
    namespace: str
    execution_kind: str
    lane_id: str
    public_state: PublicState
    category: str
    reason: str
    attempts: int
    ended_at: int
    purge_at: int | None = None
    fingerprint: str | None = None  # of the group of failures that are alike


class DeadCount(Record, frozen=True):
    """So many dead letters of a kind have failed alike."""

    execution_kind: str
    category: str
    number: int


class Dismissed(Record, frozen=True):
    """It is no dead letter any more. `is_new`: since this call."""

    execution_id: str
    is_new: bool


class Restored(Record, frozen=True):
    """A dead letter is listed again. `is_new`: since this call."""

    execution_id: str
    is_new: bool
