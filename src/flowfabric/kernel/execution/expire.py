"""Effects of time: leases expire, attempts and executions time out, delays end.

Each rule checks under lock that its time has really come and changes nothing otherwise, so a loop
may work from a stale list and several loops may run at once.
"""

from __future__ import annotations

from flowfabric.kernel.command import ExecutionCommand
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.fail import Fail, fail_attempt
from flowfabric.kernel.execution.transition import finish, lease_event, without_block
from flowfabric.model.attempt import AttemptOutcome, FailureClass
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Moved
from flowfabric.model.shown import shown_length
from flowfabric.model.state import (
    LEASE_EXPIRED,
    EligibilityState,
    LifecyclePhase,
    TerminalOutcome,
)

ATTEMPT_TIMEOUT = "attempt_timeout"
EXECUTION_DEADLINE = "execution_deadline"
START_TIMEOUT = "start_timeout"


class ExpireLease(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """A lease may have expired."""


class ExpireAttempt(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """An attempt may have run too long."""

    jitter: float


class ExpireDeadline(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """An execution may have reached its deadline."""


class PromoteDelayed(ExecutionCommand[Moved], frozen=True, kw_only=True):
    """A delay may be over."""


def _unchanged(execution_id: str) -> Decision[Moved]:
    return Decision(Moved(execution_id, "unchanged"))


def expire_lease(execution: Execution | None, command: ExpireLease, at: Moment) -> Decision[Moved]:
    """Mark an expired lease: the owner is fenced off, the work awaits reclaim."""
    if execution is None or not execution.is_leased:
        return _unchanged(command.execution_id)
    if (execution.lease_expires_at or 0) > at.now:
        return _unchanged(command.execution_id)
    lapsed = replace(
        execution,
        state=LEASE_EXPIRED,
        blocking_detail="lease expired, awaiting reclaim",
        lease_epoch=execution.lease_epoch + 1,
        reclaim_at=at.now + at.reclaim_grace_ms,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
    event = lease_event(execution, LeaseEventType.EXPIRED, "lease expired", at.now)
    return Decision(Moved(execution.execution_id, "lease_expired"), lapsed, None, (event,))


def expire_attempt(
    execution: Execution | None, command: ExpireAttempt, at: Moment
) -> Decision[Moved]:
    """An attempt past its time fails with class timeout: retried by policy, else expired."""
    if execution is None or execution.state.lifecycle_phase is not LifecyclePhase.ACTIVE:
        return _unchanged(command.execution_id)
    if execution.attempt_due_at is None or execution.attempt_due_at > at.now:
        return _unchanged(command.execution_id)
    timeout = Fail(
        execution_id=execution.execution_id,
        fence=None,
        source="system_timeout",
        reason=ATTEMPT_TIMEOUT,
        failure_class=FailureClass.TIMEOUT,
        category=FailureClass.TIMEOUT.value,
        jitter=command.jitter,
    )
    decision = fail_attempt(execution, timeout, at, exhausted=TerminalOutcome.EXPIRED)
    return decision.told(Moved(execution.execution_id, ATTEMPT_TIMEOUT))


def expire_deadline(
    execution: Execution | None, command: ExpireDeadline, at: Moment
) -> Decision[Moved]:
    """At its deadline an execution ends as expired, in any phase."""
    if execution is None or execution.is_terminal:
        return _unchanged(command.execution_id)
    if execution.deadline_at is None or execution.deadline_at > at.now:
        return _unchanged(command.execution_id)
    return finish(
        execution,
        TerminalOutcome.EXPIRED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_FAILURE,
        failure_reason=EXECUTION_DEADLINE,
        failure_category=FailureClass.TIMEOUT.value,
        reply=Moved(execution.execution_id, EXECUTION_DEADLINE),
    )


def expire_unstarted(
    execution: Execution | None, command: ExpireDeadline, at: Moment
) -> Decision[Moved]:
    """What no worker has started in time ends as expired, whatever it waits for."""
    if execution is None or not execution.is_runnable:
        return _unchanged(command.execution_id)
    if execution.start_by is None or execution.start_by > at.now:
        return _unchanged(command.execution_id)
    within = execution.policy.timeout_policy.start_within_ms or 0
    return finish(
        execution,
        TerminalOutcome.EXPIRED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_FAILURE,
        failure_reason=f"{START_TIMEOUT}: not started within {shown_length(within)}",
        failure_category=START_TIMEOUT,
        reply=Moved(execution.execution_id, START_TIMEOUT),
    )


def promote_delayed(
    execution: Execution | None, command: PromoteDelayed, at: Moment
) -> Decision[Moved]:
    """At the end of a delay, or of the wait for a quota's window, the execution waits for a worker;
    its attempt is untouched."""
    if execution is None or not execution.is_runnable:
        return _unchanged(command.execution_id)
    until = execution.blocked_until
    if execution.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
        until = execution.eligible_at
    if until is None or until > at.now:
        return _unchanged(command.execution_id)
    state, detail = without_block(execution, at.now)
    promoted = replace(
        execution,
        state=state,
        blocking_detail=detail,
        blocked_on=None,
        blocked_until=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
    return Decision(Moved(execution.execution_id, "promoted"), promoted)
