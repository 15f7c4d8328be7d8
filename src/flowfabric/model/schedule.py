"""Schedules: work that is started by the calendar, and what became of each tick."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final

from flowfabric import limits
from flowfabric.model.columns import Counter, Instant, Long
from flowfabric.model.record import Record

# Tags of every run that a schedule has started, and of its flow.
ID_TAG: Final = "schedule.id"
TICK_TAG: Final = "schedule.tick"
NUMBER_TAG: Final = "schedule.number"
CAUGHT_UP_TAG: Final = "schedule.caught_up"


class CatchUp(StrEnum):
    """Which ticks still run that were missed while nothing could start them."""

    ONE = "one"  # the latest one; the others are merged into it
    SKIP = "skip"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the run before it has not ended."""

    SKIP = "skip"
    ALLOW = "allow"
    QUEUE_ONE = "queue_one"  # it waits for the end; a later tick takes its place
    CANCEL_PREVIOUS = "cancel_previous"


class Fate(StrEnum):
    """What became of a tick."""

    RAN = "ran"
    CAUGHT_UP = "caught_up"
    SKIPPED_OVERLAP = "skipped_overlap"
    QUEUED = "queued"
    MISSED_PAUSED = "missed_paused"
    MISSED_WINDOW = "missed_window"
    MERGED = "merged"
    REFUSED = "refused"
    BACKFILLED = "backfilled"
    MANUAL = "manual"  # no tick was used up

    @property
    def has_run(self) -> bool:
        """Whether a run was started for it."""
        return self in (Fate.RAN, Fate.CAUGHT_UP, Fate.BACKFILLED, Fate.MANUAL)


class Source(StrEnum):
    """Where a schedule comes from."""

    STORED = "stored"  # made by a call
    DECLARED = "declared"  # written in a program


class TickMark(StrEnum):
    """Why a tick is not at the local time that its expression says."""

    AFTER_GAP = "after_gap"  # that time was left out: clocks went forward
    FIRST_OF_TWO = "first_of_two"  # that time comes twice: clocks go back


class Timing(Record, frozen=True, kw_only=True):
    """When a schedule ticks: exactly one of `cron`, `every_ms` and `at`. Ticks are whole seconds.

    >>> Timing(cron=("0 9 * * 1-5",), tz="Europe/Berlin").every_ms is None
    True
    """

    cron: tuple[str, ...] = ()  # several expressions tick together
    every_ms: int | None = None  # elapsed time from the anchor, which is a tick itself
    anchor: int | None = None  # none: 1970-01-01T00:00Z
    at: tuple[int, ...] = ()  # instants
    tz: str = "UTC"
    except_on: tuple[str, ...] = ()  # dates in the time zone, such as 2026-12-24
    starts: int | None = None  # no tick before
    ends: int | None = None  # nor after
    jitter_ms: int = 0  # each tick runs up to so much later, by a hash of its own


class SchedulePolicy(Record, frozen=True, kw_only=True):
    """What becomes of ticks that cannot simply run."""

    catch_up: CatchUp = CatchUp.ONE
    catch_up_window_ms: int = limits.CATCH_UP_WINDOW_MS_DEFAULT
    catch_up_max: int = limits.CATCH_UP_MAX_DEFAULT  # of `all`; the oldest are dropped
    overlap: Overlap = Overlap.SKIP
    pause_on_failure: int | None = None  # after so many failures in a row
    max_runs: int | None = None


USUAL_POLICY: Final = SchedulePolicy()


class Definition(Record, frozen=True, kw_only=True):
    """The part of a schedule that a process must understand to fire it."""

    timing: Timing
    policy: SchedulePolicy = USUAL_POLICY


class ScheduleRow(Record, frozen=True):
    """A schedule. Its row is the lock of its ticks.

    `definition` and `start` are bytes of records, and decoded only to fire: a process that does not
    understand them leaves the row to others.
    """

    namespace: str
    schedule_id: str
    source: Source
    version: Counter  # rises with each change
    definition: str  # JSON
    start: bytes  # MessagePack: the request for an execution or a flow
    kind: str  # of the execution, or the flow: for listings
    created_at: Instant
    changed_at: Instant
    done_until: Instant  # every tick up to here has its fate
    next_at: Instant | None  # when the loop acts; none: never
    next_tick: Instant | None  # the tick it then acts on
    paused_at: Instant | None = None
    paused_by: str = ""
    pause_reason: str = ""
    runs: Long = 0  # how many were started; the number of the last one
    failures: Counter = 0  # in a row
    last_tick: Instant | None = None  # of the last run by the calendar
    last_run_id: str | None = None
    queued_tick: Instant | None = None
    last_backfill_id: str | None = None
    # Of a declared one
    origin: str | None = None  # the program that declares it
    digest: str = ""  # of its declaration
    digest_before: str = ""  # of the declaration before that
    flaps: Counter = 0  # how often two declarations took turns
    undeclared_at: Instant | None = None  # since when its program declares it no more

    @property
    def is_paused(self) -> bool:
        """Whether its ticks are missed."""
        return self.paused_at is not None


class TickRow(Record, frozen=True):
    """What became of a tick. Its key makes one run per tick."""

    namespace: str
    schedule_id: str
    tick: Instant
    fate: Fate
    decided_at: Instant
    expires_at: Instant
    number: Long | None = None  # of the run
    run_id: str | None = None  # an execution, or a flow
    merged_into: Instant | None = None  # the tick that ran in its place
    error: str = ""  # why it was refused


# --- what callers are answered -------------------------------------------------------------------


class RunOf(Record, frozen=True):
    """The schedule that has started a run, and for which tick.

    `fate`: what became of that tick, while it is remembered.
    """

    schedule_id: str
    tick: int
    number: int  # the how-many-th run of the schedule it is
    is_caught_up: bool = False
    fate: Fate | None = None


def run_of(tags: Mapping[str, str]) -> RunOf | None:
    """The schedule that has started a run, by its tags; none if no schedule did.

    >>> run_of({"schedule.id": "s", "schedule.tick": "1970-01-01T00:00:01Z"})
    RunOf(schedule_id='s', tick=1000, number=0, is_caught_up=False, fate=None)
    """
    name, tick = tags.get(ID_TAG), tags.get(TICK_TAG)
    if name is None or tick is None:
        return None
    try:
        when, number = datetime.fromisoformat(tick), int(tags.get(NUMBER_TAG, "0"))
    except ValueError:  # tags of a caller's own
        return None
    if when.tzinfo is None or not 0 <= when.timestamp() * 1000 <= limits.INSTANT_MS_MAX:
        return None
    return RunOf(name, round(when.timestamp() * 1000), number, CAUGHT_UP_TAG in tags)


class ScheduleSnapshot(Record, frozen=True, kw_only=True):
    """A schedule as it stands. `timing` and `policy` are none where this process does not
    understand them: `problem` says why."""

    schedule_id: str
    namespace: str
    source: Source
    version: int
    kind: str
    is_flow: bool
    timing: Timing | None
    policy: SchedulePolicy | None
    problem: str = ""
    created_at: int
    changed_at: int
    next_tick: int | None
    next_at: int | None
    paused_at: int | None = None
    paused_by: str = ""
    pause_reason: str = ""
    runs: int = 0
    failures: int = 0
    last_tick: int | None = None
    last_run_id: str | None = None
    queued_tick: int | None = None
    origin: str | None = None
    flaps: int = 0
    undeclared_at: int | None = None
    warnings: tuple[str, ...] = ()  # what may keep its runs from starting or going on


class ScheduleCreated(Record, frozen=True):
    """A schedule is in force. `is_new`: false where the same one was there before."""

    schedule: ScheduleSnapshot
    is_new: bool = True


class ScheduleChanged(Record, frozen=True):
    """A schedule was changed, or was already as asked for: then both versions are equal."""

    schedule: ScheduleSnapshot
    version_before: int


class ScheduleDeleted(Record, frozen=True):
    """A schedule is gone; its runs are not."""

    schedule_id: str
    version: int


class SchedulesPruned(Record, frozen=True):
    """The undeclared schedules that are gone, or would go."""

    schedule_ids: tuple[str, ...]
    is_dry_run: bool = False


class DeclaredAs(StrEnum):
    """What came of a declaration."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"  # a schedule of that name was made by a call, or by another program


class Declared(Record, frozen=True):
    """What came of one declaration."""

    schedule_id: str
    outcome: DeclaredAs
    detail: str = ""
    flaps: int = 0  # how often two versions of the code took turns


class SchedulesDeclared(Record, frozen=True):
    """What came of the declarations of a program, and which of its earlier ones are no more."""

    declared: tuple[Declared, ...]
    undeclared: tuple[str, ...] = ()


class Triggered(Record, frozen=True):
    """A run beside the calendar."""

    schedule_id: str
    tick: int
    number: int
    run_id: str


class TickInfo(Record, frozen=True):
    """What became of one tick."""

    tick: int
    fate: Fate
    decided_at: int
    number: int | None = None
    run_id: str | None = None
    merged_into: int | None = None
    error: str = ""


class TickAhead(Record, frozen=True):
    """A tick to come: when it is, when it fires (with its jitter), and what the clocks do to it."""

    tick: int
    fires_at: int
    mark: TickMark | None = None


class Backfilled(Record, frozen=True, kw_only=True):
    """What one transaction of a backfill has done. Ask again with `begin=next_begin` while there is
    one."""

    schedule_id: str
    total: int  # ticks of the whole range
    started: tuple[TickInfo, ...] = ()
    refused: tuple[TickInfo, ...] = ()
    have_run: int = 0  # ticks that have a run already
    skipped: int = 0  # because a run had not ended
    next_begin: int | None = None
    is_dry_run: bool = False
