"""Fail: the attempt did not succeed; the policy decides whether another follows."""

from __future__ import annotations

from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.answer import kept
from flowfabric.kernel.execution.fence import (
    OPERATOR_OVERRIDE,
    not_found,
    refuse_writer,
    released_by,
)
from flowfabric.kernel.execution.retry import retry_delay_ms
from flowfabric.kernel.execution.transition import (
    ended_attempt,
    finish,
    lease_event,
    let_go,
    operator_event,
    wait_until,
)
from flowfabric.kernel.failures import failure_entry
from flowfabric.model.attempt import AttemptOutcome, AttemptType, FailureClass
from flowfabric.model.event import RETRY_SCHEDULED, LeaseEvent, LeaseEventType, OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.failure import FailureOrigin
from flowfabric.model.record import replace
from flowfabric.model.results import RetryScheduled, TerminalFailed
from flowfabric.model.state import AttemptState, BlockingReason, TerminalOutcome
from flowfabric.model.statistic import Counted, WorkCount


class Fail(ExecutionCommand[RetryScheduled | TerminalFailed], frozen=True, kw_only=True):
    """The owner (or an operator for it) reports a failure."""

    fence: Fence | None
    source: str
    reason: str
    failure_class: FailureClass
    category: str
    jitter: float
    retry_after_ms: int | None = None  # the handler's own delay, instead of the policy's pause
    origin: FailureOrigin | None = None  # as the worker tells it

    def needs(self, need: Needs) -> None:
        """The execution, and its flow."""
        need.executions.add(self.execution_id)
        need.flows_of.add(self.execution_id)


def fail(
    execution: Execution | None, command: Fail, at: Moment
) -> Decision[RetryScheduled | TerminalFailed]:
    """Another attempt by policy, or the end; the owner's repeated call gets the first reply."""
    refusal = refuse_writer(execution, command.execution_id, command.fence, command.source, at.now)
    if execution is not None and _was_ended_by(execution, command):
        return Decision(TerminalFailed())
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    decision = fail_attempt(execution, command, at)
    if command.fence is not None:
        return decision
    audit = operator_event(execution, OperatorEventType.FAILED, at.now, source=OPERATOR_OVERRIDE)
    return decision.audited(audit)


def _was_ended_by(execution: Execution, command: Fail) -> bool:
    return execution.state.terminal_outcome is TerminalOutcome.FAILED and released_by(
        execution, command.fence
    )


def fail_attempt(
    execution: Execution,
    command: Fail,
    at: Moment,
    *,
    exhausted: TerminalOutcome = TerminalOutcome.FAILED,
) -> Decision[RetryScheduled | TerminalFailed]:
    """End the attempt as failed and decide about the next one."""
    pause_ms = retry_delay_ms(
        execution.policy.retry_policy,
        failure_class=command.failure_class,
        category=command.category,
        retry_count=execution.retry_count,
        jitter=command.jitter,
    )
    if pause_ms is None:
        return finish(
            execution,
            exhausted,
            at,
            attempt_outcome=AttemptOutcome.ENDED_FAILURE,
            failure_reason=command.reason,
            failure_category=command.category,
            origin=command.origin,
            reply=TerminalFailed(),
        )
    if command.retry_after_ms is not None:
        pause_ms = command.retry_after_ms
    return _schedule_retry(execution, command, at.now + pause_ms, at)


def _schedule_retry(
    execution: Execution, command: Fail, until: int, at: Moment
) -> Decision[RetryScheduled | TerminalFailed]:
    state, detail = wait_until(
        until,
        AttemptState.PENDING_RETRY_ATTEMPT,
        at.now,
        BlockingReason.WAITING_FOR_RETRY_BACKOFF,
    )
    scheduled = let_go(
        execution,
        state,
        at,
        eligible_at=until,
        blocking_detail=detail,
        retry_count=execution.retry_count + 1,
        next_attempt_type=AttemptType.RETRY,
        failure_reason=command.reason,
        failure_category=command.category,
    )
    if execution.undos is not None and execution.undos.had_run:
        # What the journal tells of was undone: the next attempt begins another one.
        index = execution.journal_index + 1
        scheduled = replace(scheduled, journal_index=index, chapter_index=0, undos=None)
    attempt = ended_attempt(
        execution,
        AttemptOutcome.ENDED_FAILURE,
        at.now,
        failure_reason=command.reason,
        failure_category=command.category,
    )
    event: LeaseEvent | WorkCount
    if execution.is_leased:
        ran_ms = execution.spent_ms(at.now)
        event = lease_event(execution, LeaseEventType.RELEASED, RETRY_SCHEDULED, at.now, ran_ms)
    else:
        where = (execution.namespace, execution.lane_id, execution.execution_kind)
        event = WorkCount(*where, Counted.RETRIED, 1, at.now)
    reply = RetryScheduled(until, scheduled.total_attempt_count)
    fenced = command.fence is not None
    told = (kept(execution, execution.lease_epoch, reply, at),) if fenced else ()
    entry = failure_entry(
        execution,
        at.now,
        category=command.category,
        reason=command.reason,
        origin=command.origin,
        is_final=False,
    )
    return Decision(reply, scheduled, attempt, (event, entry), saves=told)
