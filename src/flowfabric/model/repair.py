"""Repairs: which counters differed from the rows they count, and what was set right."""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.record import Record


class Correction(Record, frozen=True):
    """One value that the rows prove wrong: as it was, and as the rows say."""

    subject: str  # such as `budget b` or `member {fp:1}:…`
    counter: str
    before: int | str | None
    after: int | str | None


class Unproven(Record, frozen=True):
    """Something wrong that the rows do not say how to set right; it was left alone."""

    subject: str
    detail: str


class Repaired(Record, frozen=True):
    """One page of a repair: what was looked at, what was set right, and what was left.

    Hand `next_cursor` back for the page that follows; without one this is the last.
    """

    looked_at: int
    corrections: tuple[Correction, ...] = ()
    unproven: tuple[Unproven, ...] = ()
    next_cursor: str | None = None


class SiblingsDrained(Record, frozen=True):
    """The deferred cancels of one group were performed: the siblings cancelled by this call.

    `is_drained`: none is left. Else some were locked, and the loop tries them again.
    """

    cancelled: tuple[str, ...]
    is_drained: bool


class SiblingAction(StrEnum):
    """What was done about the deferred cancels of a group; the first three words are the seeds'."""

    NO_OP = "no_op"  # as it should be
    SREMMED_STALE = "sremmed_stale"  # the group is gone or open again: its siblings are needed
    COMPLETED_DRAIN = "completed_drain"  # all siblings have ended
    RESTORED = "restored"  # siblings still ran for a decided group, and no task would cancel them


class SiblingsReconciled(Record, frozen=True):
    """What was done; `live`: so many siblings have not ended."""

    action: SiblingAction
    live: int
