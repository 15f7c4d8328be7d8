"""The fate of each tick. Ticks are handed in: the calendar is the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from flowfabric import limits
from flowfabric.kernel.decision import Moment
from flowfabric.model.columns import Instant
from flowfabric.model.record import Record, replace
from flowfabric.model.schedule import (
    CatchUp,
    Fate,
    Overlap,
    SchedulePolicy,
    ScheduleRow,
    TickRow,
)
from flowfabric.model.state import TerminalOutcome

RETRY_MS: Final = 50  # when to come again if the run before is locked by another transaction
_FAILURES: Final = (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED)
FAILED_OFTEN: Final = "pause_on_failure"


class Missed(Record, frozen=True):
    """Which missed ticks still run: those from this one on; none: no missed tick does."""

    kept_from: Instant | None = None


def kept_count(policy: SchedulePolicy) -> int:
    """How many missed ticks still run, at most."""
    match policy.catch_up:
        case CatchUp.ONE:
            return 1
        case CatchUp.ALL:
            return policy.catch_up_max
        case CatchUp.SKIP:
            return 0


def missed_between(policy: SchedulePolicy, done_until: int, at: Moment) -> tuple[int, int]:
    """The ticks that were missed and may still run are after the first instant, and no later than
    the second."""
    return max(done_until, at.now - policy.catch_up_window_ms - 1), at.now - limits.LATE_TICK_MS - 1


def kept_of(recent: Sequence[int]) -> Missed:
    """`recent`: the last missed ticks that may still run, as many as the policy keeps."""
    return Missed(recent[0] if recent else None)


def judge(
    tick: int, fires_at: int, row: ScheduleRow, policy: SchedulePolicy, missed: Missed, at: Moment
) -> Fate:
    """What becomes of a tick whose time has come, as far as no other run matters."""
    if row.is_paused:
        return Fate.MISSED_PAUSED
    if at.now - fires_at <= limits.LATE_TICK_MS:
        return Fate.RAN
    if policy.catch_up is CatchUp.SKIP or tick < at.now - policy.catch_up_window_ms:
        return Fate.MISSED_WINDOW
    if missed.kept_from is not None and tick >= missed.kept_from:
        return Fate.CAUGHT_UP
    return Fate.MERGED if policy.catch_up is CatchUp.ONE else Fate.MISSED_WINDOW


class Meeting(Enum):
    """What a tick that may run does about the run before it."""

    START = auto()
    SKIP = auto()
    QUEUE = auto()
    CANCEL_AND_START = auto()


def meet(policy: SchedulePolicy, *, is_open: bool) -> Meeting:
    """`is_open`: the run before has not ended."""
    if not is_open:
        return Meeting.START
    match policy.overlap:
        case Overlap.ALLOW:
            return Meeting.START
        case Overlap.SKIP:
            return Meeting.SKIP
        case Overlap.QUEUE_ONE:
            return Meeting.QUEUE
        case Overlap.CANCEL_PREVIOUS:
            return Meeting.CANCEL_AND_START


def looks_back(policy: SchedulePolicy) -> bool:
    """Whether the state of the run before matters."""
    return policy.overlap is not Overlap.ALLOW


def watches(policy: SchedulePolicy) -> bool:
    """Whether the schedule is told of the ends of its runs."""
    return policy.overlap is Overlap.QUEUE_ONE or policy.pause_on_failure is not None


def is_exhausted(row: ScheduleRow, policy: SchedulePolicy) -> bool:
    """Whether it has started all the runs it may."""
    return policy.max_runs is not None and row.runs >= policy.max_runs


class Kept(Record, frozen=True):
    """How long ticks are kept."""

    ran_ms: int = limits.TICK_RETENTION_MS
    missed_ms: int = limits.MISSED_TICK_RETENTION_MS

    def until(self, fate: Fate, now: int) -> int:
        """When a row of this fate expires."""
        length = self.ran_ms if fate.has_run else self.missed_ms
        return min(now + length, limits.INSTANT_MS_MAX)


def tick_row(
    row: ScheduleRow,
    tick: int,
    fate: Fate,
    at: Moment,
    kept: Kept,
    *,
    number: int | None = None,
    run_id: str | None = None,
    merged_into: int | None = None,
    error: str = "",
) -> TickRow:
    """What is recorded of a tick."""
    return TickRow(
        row.namespace,
        row.schedule_id,
        tick,
        fate,
        at.now,
        kept.until(fate, at.now),
        number,
        run_id,
        merged_into,
        error,
    )


def started(row: ScheduleRow, tick: int, run_id: str) -> ScheduleRow:
    """A tick has begun its run."""
    return replace(row, runs=row.runs + 1, last_tick=tick, last_run_id=run_id)


def replaced(queued: TickRow, tick: int, at: Moment, kept: Kept) -> TickRow:
    """A later tick takes the place of the one that waits."""
    until = kept.until(Fate.MERGED, at.now)
    return replace(queued, fate=Fate.MERGED, merged_into=tick, decided_at=at.now, expires_at=until)


def counted(row: ScheduleRow, policy: SchedulePolicy, outcome: TerminalOutcome) -> ScheduleRow:
    """The failures in a row after the end of a run. A cancelled run is none, and ends no row."""
    if policy.pause_on_failure is None:
        return row
    if outcome in _FAILURES:
        return replace(row, failures=row.failures + 1)
    if outcome is TerminalOutcome.SUCCESS and row.failures:
        return replace(row, failures=0)
    return row


def has_failed_often(row: ScheduleRow, policy: SchedulePolicy) -> bool:
    """Whether it is to be paused."""
    most = policy.pause_on_failure
    return most is not None and row.failures >= most and not row.is_paused
