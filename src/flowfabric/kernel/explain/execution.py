"""Why is this not running? The answer, from the record, the lane and the live workers."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.kernel.execution.routing import misfit, missing_capabilities
from flowfabric.kernel.explain.flows import (
    DependencyLook,
    dependency_hints,
    dependency_summary,
)
from flowfabric.kernel.explain.limits import (
    BoundsLook,
    hint_for,
    limits_of,
)
from flowfabric.kernel.explain.lines import LineLook, line_hints, line_summary
from flowfabric.kernel.explain.waits import WaitLook, hints_for, lines_of, summary_of
from flowfabric.model.code import pin_of, pinned_version
from flowfabric.model.execution import Execution
from flowfabric.model.journal import EntryRow, RunningRow
from flowfabric.model.record import Record
from flowfabric.model.results import Explanation, WorkerFit
from flowfabric.model.route import LaneState
from flowfabric.model.state import (
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
)
from flowfabric.model.worker import Worker


class _Crew(Record, frozen=True):
    """The live workers that could run it."""

    fits: tuple[WorkerFit, ...]
    missing: tuple[str, ...]
    has_handler: bool  # whether any of them, on its lane, knows the kind
    waiting: int | None = None  # how many executions of its route wait, if that is known


class _Cause(Record, frozen=True):
    waiting_for: str
    summary: str
    due_at: int | None = None
    hints: tuple[str, ...] = ()


def explain(
    execution: Execution,
    lane_state: LaneState,
    workers: Sequence[Worker],
    bounds: BoundsLook,
    now: int,
    wait: WaitLook | None = None,
    others: DependencyLook | None = None,
    lane_fault: str | None = None,
    last: EntryRow | None = None,
    waiting: int | None = None,
    running: RunningRow | None = None,
    line: LineLook | None = None,
) -> Explanation:
    """State, since when, the cause of the wait, the workers that could run it, and when it is due.

    `lane_fault`: the defect of its lane's row. `last`: the last entry of its journal.
    `waiting`: how many executions of its route wait. `running`: what its last renewals
    told. `line`: where it waits for its turn.
    """
    fits = _fits(execution, workers, now)
    missing = _missing_everywhere(execution, workers, now)
    crew = _Crew(fits, missing, _has_handler(execution, workers, now), waiting)
    if wait is not None:
        cause = _suspended(execution, wait)
    elif others is not None:
        cause = _dependent(execution, others)
    elif line is not None:
        cause = _behind(execution, line, now)
    elif lane_fault is not None and execution.is_waiting:
        cause = _Cause("lane_state", lane_fault, hints=("ff doctor says what to do",))
    else:
        cause = _cause(execution, lane_state, crew, now)
    limits = limits_of(execution, bounds)
    step, step_since = _step(execution, last, running)
    clears = [each.clears_at for each in limits if each.keeps_back]
    return Explanation(
        execution_id=execution.execution_id,
        public_state=execution.public_state,
        since=execution.last_transition_at,
        waiting_for=cause.waiting_for,
        summary=cause.summary,
        due_at=cause.due_at if cause.due_at is not None or not clears else clears[0],
        missing_capabilities=missing,
        could_run=fits,
        hints=(*cause.hints, *hint_for(execution, bounds)),
        limits=limits,
        waits=() if wait is None else lines_of(wait.row.condition, wait.row.progress),
        at_timeout=None
        if wait is None or wait.row.timeout_at is None
        else wait.row.timeout_behavior.value,
        upstreams=() if others is None else others.upstreams,
        step=step,
        step_since=step_since,
        line_position=None if line is None else line.position,
        line_head=None if line is None else line.line.head_id,
        origin=execution.ties.origin,
    )


def _fits(execution: Execution, workers: Sequence[Worker], now: int) -> tuple[WorkerFit, ...]:
    """Which live workers could run it, and what each lacks."""
    return tuple(
        WorkerFit(worker.worker_id, worker.worker_instance_id, not lacks, lacks)
        for worker in workers
        if worker.namespace == execution.namespace and worker.is_live(now)
        for lacks in (misfit(worker, execution.route),)
    )


def _step(
    execution: Execution, last: EntryRow | None, running: RunningRow | None
) -> tuple[str | None, int | None]:
    """The step that runs, and since when: as the last renewal of its lease told, or the last entry
    of its journal if that came later."""
    known = -1 if last is None else last.recorded_at
    if (
        running is not None
        and running.lease_epoch == execution.lease_epoch
        and running.told_at == execution.lease_renewed_at
        and running.told_at >= known
    ):
        return running.key, running.since
    if last is None or last.next_key is None:
        return None, None
    return last.next_key, last.recorded_at


def _missing_everywhere(
    execution: Execution, workers: Sequence[Worker], now: int
) -> tuple[str, ...]:
    """The capabilities that the best-equipped live worker of the lane lacks."""
    required = execution.route.required_capabilities
    lacks = [
        missing_capabilities(required, worker.capabilities)
        for worker in workers
        if worker.is_live(now)
        and worker.namespace == execution.namespace
        and execution.lane_id in worker.lanes
    ]
    return min(lacks, key=len, default=tuple(required))


def _has_handler(execution: Execution, workers: Sequence[Worker], now: int) -> bool:
    return any(
        worker.is_live(now)
        and worker.namespace == execution.namespace
        and execution.lane_id in worker.lanes
        and (worker.kinds is None or execution.execution_kind in worker.kinds)
        for worker in workers
    )


def _cause(execution: Execution, lane_state: LaneState, crew: _Crew, now: int) -> _Cause:
    match execution.state.lifecycle_phase:
        case LifecyclePhase.TERMINAL:
            return _ended(execution)
        case LifecyclePhase.ACTIVE:
            return _running(execution, now)
        case LifecyclePhase.SUSPENDED:
            reason = execution.state.blocking_reason.value
            return _Cause(reason, f"suspended: {execution.blocking_detail or reason}")
        case LifecyclePhase.RUNNABLE:
            if execution.is_waiting:
                return _waiting(execution, lane_state, crew, now)
            return _held_back(execution, crew)


def _suspended(execution: Execution, wait: WaitLook) -> _Cause:
    reason = execution.state.blocking_reason.value
    return _Cause(reason, summary_of(wait), wait.row.timeout_at, hints_for(wait))


def _dependent(execution: Execution, others: DependencyLook) -> _Cause:
    reason = execution.state.blocking_reason.value
    hints = dependency_hints(others)
    summary = dependency_summary(others)
    if _delay_of(execution):
        summary += "; its delay begins when its join is met"
    return _Cause(reason, summary, execution.deadline_at, hints)


def _behind(execution: Execution, line: LineLook, now: int) -> _Cause:
    reason = execution.state.blocking_reason.value
    return _Cause(reason, line_summary(line, now), execution.deadline_at, line_hints(line))


def _delay_of(execution: Execution) -> int:
    """The one delay before it first starts."""
    return 0 if execution.total_attempt_count else execution.policy.delay_ms or 0


def _ended(execution: Execution) -> _Cause:
    why = execution.failure_reason or execution.cancellation_reason or ""
    first_line = why.strip().splitlines()[0] if why.strip() else ""
    summary = f"ended: {execution.public_state.value}" + (f" ({first_line})" if first_line else "")
    return _Cause("nothing", summary, hints=(f"ff retry {execution.execution_id}",))


def _running(execution: Execution, now: int) -> _Cause:
    if execution.state.ownership_state is OwnershipState.LEASED:
        if (execution.lease_expires_at or 0) <= now:
            return _Cause("lease_expiry", "its lease has lapsed; it is about to be run again", now)
        owner = f"{execution.worker_id}/{execution.worker_instance_id}"
        return _Cause("nothing", f"running on {owner}", execution.lease_expires_at)
    return _Cause("reclaim", execution.blocking_detail, execution.reclaim_at)


def _held_back(execution: Execution, crew: _Crew) -> _Cause:
    reason = execution.state.blocking_reason
    due, summary = execution.blocked_until, execution.blocking_detail or reason.value
    if execution.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
        due = execution.eligible_at
        delay = _delay_of(execution)
        if delay and due - delay > execution.created_at:
            summary += "; its delay began when its join was met"
    hints: tuple[str, ...] = ()
    if reason is BlockingReason.PAUSED_BY_OPERATOR:
        hints = ("ff release lets it go on",)
    elif reason is BlockingReason.WAITING_FOR_CAPABLE_WORKER:
        summary = f"its route is blocked: {summary}"
        hints = (_missing_worker(execution, crew), "it goes on when such a worker registers")
    return _Cause(reason.value, summary, due, hints)


def _missing_worker(execution: Execution, crew: _Crew) -> str:
    """Which worker would run it."""
    lane, kind = execution.lane_id, execution.execution_kind
    needs = "".join(f" --capability {each}" for each in crew.missing)
    return f"start a worker on lane {lane} that handles {kind}" + (f":{needs}" if needs else "")


def _unversioned(execution: Execution, version: str, crew: _Crew) -> _Cause:
    """It belongs to a version of its task that no worker has."""
    kind, pin = execution.execution_kind, pin_of(execution.execution_kind, version)
    others = "".join(f", {each}" for each in crew.missing if each != pin)
    many = "" if crew.waiting is None else f"; {crew.waiting} wait for it"
    hints = (
        f"start a worker with version {version} of {kind}, or with accepts=[{version!r}]",
        f"ff code move {kind} {version} TO pins it anew",
    )
    reason = BlockingReason.WAITING_FOR_CAPABLE_WORKER.value
    return _Cause(reason, f"no live worker has {kind}@{version}{others}{many}", hints=hints)


def _waiting(execution: Execution, lane_state: LaneState, crew: _Crew, now: int) -> _Cause:
    lane = execution.lane_id
    if not lane_state.hands_out:
        return _Cause(
            "lane_state",
            f"lane {lane} is {lane_state.value}",
            hints=(f"ff lanes resume {lane}",),
        )
    if execution.grant is not None and execution.grant.is_live(now):
        promised = f"promised to worker {execution.grant.worker_id}"
        return _Cause("grant", promised, execution.grant.expires_at)
    if any(fit.fits for fit in crew.fits):
        return _Cause("worker", "a worker that can run it is alive; it waits for a free slot")
    missing, kind = crew.missing, execution.execution_kind
    version = pinned_version(execution.route)
    if version is not None and pin_of(kind, version) in missing:
        return _unversioned(execution, version, crew)
    if missing and crew.has_handler:
        return _Cause(
            BlockingReason.WAITING_FOR_CAPABLE_WORKER.value,
            f"no live worker offers {', '.join(missing)}",
            hints=(f"start a worker with --capability {' --capability '.join(missing)}",),
        )
    if crew.has_handler:
        summary = "no live worker can run it: each lacks something"
    elif crew.fits:
        summary = f"no live worker has a handler for {kind} on lane {lane}"
    else:
        summary = "no live worker is registered"
    return _Cause(
        BlockingReason.WAITING_FOR_CAPABLE_WORKER.value if missing else "worker",
        summary,
        hints=(f"start a worker on lane {lane} that handles {kind}",),
    )
