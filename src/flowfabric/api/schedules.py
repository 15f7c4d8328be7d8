"""Schedules start work by the calendar; see docs/guides/schedules.md."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import NEW_WORK
from flowfabric.errors import (
    CycleDetected,
    FlowConflict,
    InvalidCursor,
    InvalidSchedule,
    NotFound,
    ScheduleConflict,
    SelfReferencingEdge,
)
from flowfabric.model.record import Record
from flowfabric.model.schedule import (
    USUAL_POLICY,
    Backfilled,
    Overlap,
    ScheduleChanged,
    ScheduleCreated,
    ScheduleDeleted,
    SchedulePolicy,
    SchedulesDeclared,
    ScheduleSnapshot,
    SchedulesPruned,
    TickAhead,
    TickInfo,
    Timing,
    Triggered,
)

_CONTENT = (
    InvalidSchedule,
    NotFound,
    *NEW_WORK,
    FlowConflict,
    CycleDetected,
    SelfReferencingEdge,
    ScheduleConflict,
)


class ScheduledStart(Record, frozen=True, kw_only=True):
    """What each tick starts: an execution or a flow, as it would be submitted.

    What belongs to one submission alone has no place in it: an idempotency key, an instant, a
    connection.
    """

    execution: NewExecution | None = None
    flow: SubmitFlow | None = None


# --- schedules -----------------------------------------------------------------------------------


@operation("create_schedule", Kind.WRITE, Scope.SUBMIT, errors=_CONTENT)
class CreateSchedule(UnsafeRequest[ScheduleCreated], frozen=True, kw_only=True):
    """Start work by the calendar, from the next tick on.

    The same again answers the schedule there is; another one of its name is a ScheduleConflict.

    >>> await engine.create_schedule(  # doctest: +SKIP
    ...     schedule_id="report",
    ...     timing=Timing(cron=("0 9 * * 1-5",), tz="Europe/Berlin"),
    ...     start=ScheduledStart(execution=NewExecution(execution_kind="report")),
    ... )
    """

    schedule_id: str
    timing: Timing
    start: ScheduledStart
    policy: SchedulePolicy = USUAL_POLICY
    namespace: str | None = None


@operation("update_schedule", Kind.WRITE, Scope.OPERATE, errors=_CONTENT)
class UpdateSchedule(UnsafeRequest[ScheduleChanged], frozen=True, kw_only=True):
    """Change what is named; the rest stays, also a pause.

    With another timing or policy, what was due is done first. `expected_version`: refuse the
    change if there was another one before.
    """

    schedule_id: str
    timing: Timing | None = None
    start: ScheduledStart | None = None
    policy: SchedulePolicy | None = None
    namespace: str | None = None
    expected_version: int | None = None


@operation("pause_schedule", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class PauseSchedule(UnsafeRequest[ScheduleChanged], frozen=True, kw_only=True):
    """Start nothing. Its ticks are missed until it is resumed, whatever code declares."""

    schedule_id: str
    reason: str = ""
    namespace: str | None = None


@operation("resume_schedule", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class ResumeSchedule(UnsafeRequest[ScheduleChanged], frozen=True, kw_only=True):
    """Start work again, from the next tick on; missed ones are for a backfill."""

    schedule_id: str
    namespace: str | None = None


@operation("delete_schedule", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class DeleteSchedule(UnsafeRequest[ScheduleDeleted], frozen=True, kw_only=True):
    """Remove a schedule; its runs go on. One that is declared in code comes back when a
    worker starts."""

    schedule_id: str
    namespace: str | None = None


@operation("prune_schedules", Kind.WRITE, Scope.OPERATE)
class PruneSchedules(UnsafeRequest[SchedulesPruned], frozen=True, kw_only=True):
    """Delete the schedules that their program declares no more."""

    namespace: str | None = None
    dry_run: bool = False


# --- runs ----------------------------------------------------------------------------------------


@operation("trigger_schedule", Kind.WRITE, Scope.SUBMIT, errors=_CONTENT)
class TriggerSchedule(UnsafeRequest[Triggered], frozen=True, kw_only=True):
    """Start one run now, whatever the calendar and other runs say. No tick is used up."""

    schedule_id: str
    namespace: str | None = None


@operation("backfill_schedule", Kind.WRITE, Scope.SUBMIT, errors=_CONTENT)
class BackfillSchedule(UnsafeRequest[Backfilled], frozen=True, kw_only=True):
    """Start runs for ticks of a range, both ends included, that have none.

    Each call is one transaction and starts up to 500; go on from `next_begin`. A repeated call
    finds what the first one has started. `again`: also ticks that are older than runs are
    remembered, although they may have run. `overlap`: `allow`, or `skip` while another run that
    was backfilled has not ended.
    """

    schedule_id: str
    begin: int
    end: int
    overlap: Overlap = Overlap.ALLOW
    dry_run: bool = False
    again: bool = False
    namespace: str | None = None


# --- declarations --------------------------------------------------------------------------------


class DeclaredSchedule(Record, frozen=True, kw_only=True):
    """A schedule as a program declares it. `origin`: the part of a program that does."""

    schedule_id: str
    timing: Timing
    start: ScheduledStart
    origin: str
    policy: SchedulePolicy = USUAL_POLICY


@operation("declare_schedules", Kind.WRITE, Scope.SUBMIT, errors=_CONTENT)
class DeclareSchedules(UnsafeRequest[SchedulesDeclared], frozen=True, kw_only=True):
    """All that a program declares, told by each worker when it starts.

    Only what changed since is written. Pauses stay. Earlier declarations of these origins that
    are missing are marked as undeclared; they go on until they are pruned.
    """

    schedules: Sequence[DeclaredSchedule]
    origins: Sequence[str]
    namespace: str | None = None


# --- reading -------------------------------------------------------------------------------------


@operation("describe_schedule", Kind.READ, Scope.READ)
class DescribeSchedule(Request[ScheduleSnapshot | None], frozen=True, kw_only=True):
    """A schedule as it stands, with what may keep its runs back."""

    schedule_id: str
    namespace: str | None = None


@operation("read_schedule_start", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadScheduleStart(Request[ScheduledStart], frozen=True, kw_only=True):
    """What each tick starts, its payload included."""

    schedule_id: str
    namespace: str | None = None


@operation("list_schedules", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListSchedules(Request[Page[ScheduleSnapshot]], frozen=True, kw_only=True):
    """Schedules by name. A page of a filtered listing may be short although another follows."""

    namespace: str | None = None
    is_paused: bool | None = None
    is_undeclared: bool | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("read_ticks", Kind.READ, Scope.READ)
class ReadTicks(Request[tuple[TickInfo, ...]], frozen=True, kw_only=True):
    """What became of ticks after an instant, oldest first; or the last ones, newest first."""

    schedule_id: str
    after: int | None = None  # none: the last ones
    limit: int = limits.PAGE_DEFAULT
    namespace: str | None = None


@operation("preview_schedule", Kind.READ, Scope.READ, errors=(NotFound, InvalidSchedule))
class PreviewSchedule(Request[tuple[TickAhead, ...]], frozen=True, kw_only=True):
    """The next ticks of a schedule, or of a timing before it is used."""

    schedule_id: str | None = None
    timing: Timing | None = None
    after: int | None = None  # none: now
    limit: int = 5
    namespace: str | None = None
