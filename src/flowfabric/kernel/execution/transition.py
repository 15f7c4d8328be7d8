"""The transitions every rule shares: taking a lease, releasing it, waiting again, ending."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.failures import failure_entry
from flowfabric.model.attempt import Attempt, AttemptOutcome, AttemptType
from flowfabric.model.event import (
    CompletionEvent,
    LeaseEvent,
    LeaseEventType,
    OperatorEvent,
    OperatorEventType,
)
from flowfabric.model.execution import Execution
from flowfabric.model.failure import FailureOrigin
from flowfabric.model.record import replace
from flowfabric.model.state import (
    LEASED,
    AttemptState,
    BlockingReason,
    StateVector,
    TerminalOutcome,
    blocked,
    delayed,
    terminal,
    waiting,
)

R = TypeVar("R")

_LIVE_ATTEMPT: Final = (AttemptState.RUNNING_ATTEMPT, AttemptState.ATTEMPT_INTERRUPTED)


def lease_event(
    execution: Execution,
    event_type: LeaseEventType,
    reason: str,
    now: int,
    took_ms: int | None = None,
) -> LeaseEvent:
    """One change of ownership, as published."""
    return LeaseEvent(
        execution.execution_id,
        event_type,
        reason,
        execution.lease_epoch,
        execution.attempt_index or 0,
        execution.worker_id,
        execution.worker_instance_id,
        execution.route.namespace,
        execution.tags,
        now,
        execution.route.lane_id,
        execution.route.execution_kind,
        took_ms,
    )


def operator_event(
    execution: Execution, event_type: OperatorEventType, now: int, **details: object
) -> OperatorEvent:
    """One operator action, as audited."""
    return OperatorEvent(
        execution.execution_id,
        event_type,
        details,
        execution.route.namespace,
        execution.tags,
        now,
    )


def acquire(
    execution: Execution,
    *,
    worker_id: str,
    worker_instance_id: str,
    lease_id: str,
    attempt_id: str,
    lease_ttl_ms: int,
    at: Moment,
) -> Execution:
    """Give the execution to a worker: a new attempt, or the interrupted one continued."""
    now = at.now
    epoch = execution.lease_epoch + 1
    if execution.is_interrupted and execution.reclaim_at is None:
        index, attempt_id = execution.attempt_index, execution.attempt_id or attempt_id
        kind, started, spent = (
            execution.attempt_type,
            execution.attempt_started_at,
            execution.attempt_spent_ms,
        )
        total = execution.total_attempt_count
    else:
        index, total = execution.total_attempt_count, execution.total_attempt_count + 1
        kind, started, spent = execution.next_attempt_type, now, 0
    timeout = execution.policy.timeout_policy.attempt_timeout_ms
    due = None if timeout is None else now + max(0, timeout - spent)
    leased = replace(  # in two steps: more than fifteen keywords cost more than a second copy
        execution,
        state=LEASED,
        blocking_detail="",
        lease_epoch=epoch,
        lease_id=lease_id,
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_acquired_at=now,
        lease_expires_at=lease_horizon(now + lease_ttl_ms, execution.deadline_at, due),
        lease_renewed_at=None,
        reclaim_at=None,
        grant=None,
        last_transition_at=now,
        last_mutation_at=now,
    )
    return replace(
        leased,
        attempt_index=index,
        attempt_id=attempt_id,
        attempt_type=kind,
        attempt_started_at=started,
        attempt_due_at=due,
        attempt_spent_ms=spent,
        total_attempt_count=total,
        started_at=execution.started_at or now,
    )


def lease_horizon(wanted: int, deadline_at: int | None, attempt_due_at: int | None) -> int:
    """A lease never outlives the deadline or the attempt's time."""
    if deadline_at is not None and deadline_at < wanted:
        wanted = deadline_at
    if attempt_due_at is not None and attempt_due_at < wanted:
        wanted = attempt_due_at
    return wanted


def let_go(execution: Execution, state: StateVector, at: Moment, **changes: Any) -> Execution:
    """End ownership: clear the worker's fields, raise the epoch, drop grants and timers."""
    return replace(unowned(execution, at), state=state, **changes)


def unowned(execution: Execution, at: Moment) -> Execution:
    """The part shared by every end of ownership, without the new state. A step of its own, with its
    keywords spelled out: Python passes many at once in a dictionary, which is slow."""
    return replace(
        execution,
        lease_epoch=execution.lease_epoch + 1,
        worker_id=None,
        worker_instance_id=None,
        lease_acquired_at=None,
        lease_expires_at=None,
        lease_renewed_at=None,
        reclaim_at=None,
        attempt_due_at=None,
        suspension_id=None,
        blocked_on=None,
        blocked_until=None,
        grant=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )


def park(
    execution: Execution,
    reason: BlockingReason,
    detail: str,
    at: Moment,
    *,
    blocked_on: str | None = None,
    blocked_until: int | None = None,
) -> Execution:
    """Keep waiting work from being claimed; its delay goes on underneath, its grant is dropped."""
    return replace(
        execution,
        state=blocked(reason, execution.state.attempt_state),
        blocking_detail=detail,
        blocked_on=blocked_on,
        blocked_until=blocked_until,
        grant=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )


def wait_until(
    until: int, attempt: AttemptState, now: int, reason: BlockingReason
) -> tuple[StateVector, str]:
    """Waiting at once or delayed, with the sentence that explains it."""
    if until <= now:
        return waiting(attempt), ""
    return delayed(reason, attempt), f"{reason.value.replace('_', ' ')} until {until}"


def without_block(
    execution: Execution, now: int, *, is_free: bool = False
) -> tuple[StateVector, str]:
    """The state of work when its block is lifted: any other block still applies. `is_free`: its
    dependencies just ended."""
    attempt = execution.state.attempt_state
    if execution.has_open_group and not is_free:
        return blocked(BlockingReason.WAITING_FOR_CHILDREN, attempt), "waiting for others to end"
    if execution.is_behind:
        return blocked(BlockingReason.WAITING_FOR_TURN, attempt), "waiting for its turn"
    return wait_until(execution.eligible_at, attempt, now, delay_reason(attempt))


def delay_reason(attempt: AttemptState) -> BlockingReason:
    """Which delay an attempt state implies when a block is lifted before its time."""
    if attempt is AttemptState.PENDING_RETRY_ATTEMPT:
        return BlockingReason.WAITING_FOR_RETRY_BACKOFF
    return BlockingReason.WAITING_FOR_DELAY


def ended_attempt(
    execution: Execution,
    outcome: AttemptOutcome,
    now: int,
    *,
    failure_reason: str | None = None,
    failure_category: str | None = None,
    result: bytes | None = None,
    result_encoding: str | None = None,
) -> Attempt:
    """The history row of the attempt that ends now."""
    return Attempt(
        execution.execution_id,
        execution.attempt_index or 0,
        execution.attempt_id or "",
        execution.attempt_type or AttemptType.INITIAL,
        outcome,
        execution.lease_epoch,
        execution.worker_id,
        execution.worker_instance_id,
        execution.attempt_started_at or now,
        now,
        failure_reason,
        failure_category,
        result,
        result_encoding,
    )


_FAILURES: Final = (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED)


def _purge_at(execution: Execution, outcome: TerminalOutcome, at: Moment) -> int | None:
    """A member is purged with its flow, so that no other member waits for a missing row."""
    if execution.flow_id is not None:
        return None
    policy = execution.policy
    keep_ms, usual_ms = policy.retention_ttl_ms, at.retention_ms
    if outcome in _FAILURES:
        usual_ms = at.failed_retention_ms
        if policy.failed_retention_ttl_ms is not None:
            keep_ms = policy.failed_retention_ttl_ms
    return at.now + (usual_ms if keep_ms is None else keep_ms)


def finish(
    execution: Execution,
    outcome: TerminalOutcome,
    at: Moment,
    *,
    attempt_outcome: AttemptOutcome,
    failure_reason: str | None = None,
    failure_category: str | None = None,
    cancellation_reason: str | None = None,
    cancelled_by: str | None = None,
    result: bytes | None = None,
    result_encoding: str | None = None,
    origin: FailureOrigin | None = None,
    reply: R,
) -> Decision[R]:
    """Every end of an execution, whatever its cause.

    The current attempt is ended, the lease released and fenced, the grant and timers dropped, one
    completion event written, and the purge time set. There is no lease event beside it: the
    completion says that the lease is over, and the row of the attempt says whose it was.
    """
    now = at.now
    attempted = execution.attempt_index is not None
    done = replace(
        unowned(execution, at),
        state=terminal(outcome, attempted=attempted),
        blocking_detail="",
        completed_at=now,
        purge_at=_purge_at(execution, outcome, at),
        open_group=0,
        failure_reason=failure_reason,
        failure_category=failure_category,
        cancellation_reason=cancellation_reason,
        cancelled_by=cancelled_by,
    )
    attempt = ran_ms = None
    if execution.state.attempt_state in _LIVE_ATTEMPT:
        ran_ms = execution.spent_ms(now)
        attempt = ended_attempt(
            execution,
            attempt_outcome,
            now,
            failure_reason=failure_reason or cancellation_reason,
            failure_category=failure_category,
            result=result,
            result_encoding=result_encoding,
        )
    completion = _completion(execution, outcome, now, ran_ms)
    if outcome not in _FAILURES:
        return Decision(reply, done, attempt, (completion,))
    entry = failure_entry(
        execution,
        now,
        category=failure_category or outcome.value,
        reason=failure_reason or "",
        origin=origin,
        is_final=True,
    )
    return Decision(reply, done, attempt, (completion, entry))


def _completion(
    execution: Execution, outcome: TerminalOutcome, now: int, ran_ms: int | None
) -> CompletionEvent:
    """The one event of an end."""
    return CompletionEvent(
        execution.execution_id,
        outcome,
        execution.attempt_index,
        execution.flow_id,
        execution.route.namespace,
        execution.tags,
        now,
        execution.route.lane_id,
        execution.route.execution_kind,
        ran_ms,
    )
