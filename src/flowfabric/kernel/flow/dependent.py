"""What dependencies do to an execution: it is held back, released, skipped, or waits for its
children."""

from __future__ import annotations

from typing import TypeGuard

from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.answer import kept
from flowfabric.kernel.execution.cancel import stop
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.execution.transition import finish, lease_event, let_go, without_block
from flowfabric.kernel.flow.cancel import FLOW_CANCEL
from flowfabric.kernel.flow.inputs import Unfit
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.flow_results import ChildrenAwaited
from flowfabric.model.record import replace
from flowfabric.model.state import (
    AttemptState,
    BlockingReason,
    EligibilityState,
    TerminalOutcome,
    blocked,
    waiting,
)

DEPENDENCY_IMPOSSIBLE = "dependency_impossible"
_FREE_TO_WAIT = (EligibilityState.ELIGIBLE_NOW, EligibilityState.NOT_ELIGIBLE_UNTIL_TIME)


class WaitChildren(ExecutionCommand[ChildrenAwaited], frozen=True, kw_only=True):
    """The owner lets go until everything it spawned has ended."""

    fence: Fence

    def needs(self, need: Needs) -> None:
        """The execution, and its flow."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows_of.add(self.execution_id)


def hold_back(execution: Execution, detail: str, at: Moment) -> Decision[None]:
    """Runnable work waits for others. Another block stays and is what shows; a delay goes on."""
    held = replace(execution, open_group=1, last_mutation_at=at.now)
    if execution.state.eligibility_state in _FREE_TO_WAIT:
        reason = BlockingReason.WAITING_FOR_CHILDREN
        held = replace(
            held,
            state=blocked(reason, execution.state.attempt_state),
            blocking_detail=detail,
            grant=None,
            last_transition_at=at.now,
        )
    return Decision(None, held)


def waits_for_others(execution: Execution | None) -> TypeGuard[Execution]:
    """Whether a decision about its group still means anything to a member."""
    return execution is not None and not execution.is_terminal and execution.has_open_group


def release_member(execution: Execution, at: Moment) -> Decision[None]:
    """All it waited for has ended: it waits for a worker, or for what else keeps it back. A delay
    it was given begins now, unless it has run before."""
    now = at.now
    delay, within = execution.policy.delay_ms, execution.policy.timeout_policy.start_within_ms
    if (delay or within) and not execution.total_attempt_count:
        execution = replace(execution, eligible_at=now + (delay or 0))
    if execution.state.blocking_reason is not BlockingReason.WAITING_FOR_CHILDREN:
        return Decision(None, replace(execution, open_group=0, last_mutation_at=now))
    state, detail = without_block(execution, now, is_free=True)
    free = replace(
        execution,
        open_group=0,
        state=state,
        blocking_detail=detail,
        last_transition_at=now,
        last_mutation_at=now,
    )
    return Decision(None, free)


def skip(execution: Execution, at: Moment) -> Decision[None]:
    """Its dependencies can never be met: it ends without having run."""
    return _barred(execution, at) or finish(
        execution,
        TerminalOutcome.SKIPPED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_CANCELLED,
        failure_reason=DEPENDENCY_IMPOSSIBLE,
        reply=None,
    )


def reject_input(execution: Execution, unfit: Unfit, at: Moment) -> Decision[None]:
    """It may go on, but not with what it is handed: it fails, and no retry would help."""
    return _barred(execution, at) or finish(
        execution,
        TerminalOutcome.FAILED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_FAILURE,
        failure_reason=unfit.reason,
        failure_category=unfit.category,
        reply=None,
    )


def _barred(execution: Execution, at: Moment) -> Decision[None] | None:
    """What a cancelled flow keeps from starting is cancelled, as it was going to be."""
    if execution.state.blocking_reason is not BlockingReason.PAUSED_BY_FLOW_CANCEL:
        return None
    return stop(execution, execution.blocking_detail, FLOW_CANCEL, at).told(None)


def wait_children(
    execution: Execution | None, open_children: int, command: WaitChildren, at: Moment
) -> Decision[ChildrenAwaited]:
    """The lease is let go; without open children the attempt goes straight on."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    attempt = AttemptState.ATTEMPT_INTERRUPTED
    state, detail = waiting(attempt), ""
    if open_children:
        state = blocked(BlockingReason.WAITING_FOR_CHILDREN, attempt)
        detail = f"waiting for {open_children} of its children"
    parked = let_go(
        execution,
        state,
        at,
        blocking_detail=detail,
        attempt_spent_ms=execution.spent_ms(at.now),
        eligible_at=at.now,
        open_group=int(open_children > 0),
    )
    event = lease_event(execution, LeaseEventType.RELEASED, "waiting_children", at.now)
    reply = ChildrenAwaited(parked.public_state, open_children)
    told = kept(execution, execution.lease_epoch, reply, at)
    return Decision(reply, parked, None, (event,), saves=(told,))
