"""Cancelling a flow: the header at once, and each member as the policy says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flowfabric import limits
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.transition import park
from flowfabric.kernel.flow.flow import Change, flow_event
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    CancellationPolicy,
    FlowEventType,
    FlowRow,
    FlowState,
    TaskRow,
)
from flowfabric.model.flow_results import AlreadyTerminal, CancellationScheduled, FlowCancelled
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason, EligibilityState

FLOW_CANCEL = "flow_cancel"  # the source of such a cancel
_WIDTH = (
    CancellationPolicy.FLOW_ONLY,
    CancellationPolicy.CANCEL_PENDING,
    CancellationPolicy.CANCEL_ALL,
)
FlowCancelReply = FlowCancelled | CancellationScheduled | AlreadyTerminal


class CancelFlow(Command[FlowCancelReply], frozen=True, kw_only=True):
    """Stop a whole flow."""

    flow_id: str
    policy: CancellationPolicy
    reason: str
    grace_ms: int | None = None  # none: members are cancelled at once, not by the caller

    def needs(self, need: Needs) -> None:
        """The flow and all its members."""
        need.catalog = True
        need.flows.add(self.flow_id)
        need.members_of.add(self.flow_id)


class AckCancelMember(ExecutionCommand[None], frozen=True, kw_only=True):
    """A caller that cancels the members of a flow by hand has done one."""

    flow_id: str

    def needs(self, need: Needs) -> None:
        """The execution and the flow."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows.add(self.flow_id)


class Cancelling(NamedTuple):
    """What cancelling a flow comes to."""

    header: Decision[FlowCancelled | CancellationScheduled]
    members: list[Execution]  # that the policy cancels
    is_deferred: bool  # these are cancelled later, and cannot start until then


def repeats_cancel(flow: FlowRow, policy: CancellationPolicy) -> bool:
    """Whether a cancel asks for no more than the flow's end, or its earlier cancel, has done.

    A policy that cancels more members than the stored one is another request.
    """
    if not flow.public_flow_state.is_terminal:
        return False
    stored = flow.cancellation_policy
    return stored is None or _WIDTH.index(policy) <= _WIDTH.index(stored)


def cancel_flow(
    flow: FlowRow, ids: Sequence[str], members: Sequence[Execution], command: CancelFlow, at: Moment
) -> Cancelling | None:
    """Cancel the header, and say which members go with it; None where a flow that is closed has
    none left to cancel. `ids`: of all members, `members`: those that can be read."""
    chosen = [each for each in members if is_cancelled_by(command.policy, each)]
    if flow.public_flow_state.is_terminal and not chosen:
        return None
    is_whole = command.grace_ms is None and len(chosen) <= limits.CANCEL_INLINE_MAX
    reply: FlowCancelled | CancellationScheduled = FlowCancelled(command.policy, tuple(ids))
    if not is_whole and command.grace_ms is None:
        reply = CancellationScheduled(command.policy, len(ids), tuple(ids))
    change = cancelled_flow(flow, command.policy, command.reason, at)
    header = change.told(reply).audited(requested(flow, command, len(ids), at))
    return Cancelling(header, chosen, not is_whole)


def cancelled_before(
    flow: FlowRow,
    ids: tuple[str, ...],
    deferred: Sequence[TaskRow],
    command: CancelFlow,
    at: Moment,
) -> Decision[CancellationScheduled | AlreadyTerminal]:
    """The answer to a repeated cancel. Cancels of members that were deferred are done at once,
    unless the caller does them by hand."""
    policy = flow.cancellation_policy
    if policy is None or command.grace_ms is not None or not deferred:
        return Decision(AlreadyTerminal(policy, flow.cancel_reason, ids))
    at_once = [replace(each, due_at=at.now) for each in deferred if each.due_at > at.now]
    return Decision(CancellationScheduled(policy, len(ids), ids), saves=tuple(at_once))


def cancelled_flow(flow: FlowRow, policy: CancellationPolicy, reason: str, at: Moment) -> Change:
    """The header of a cancelled flow. One that was cancelled before, by a policy that cancelled
    less, keeps the time of that and is not announced again."""
    before = flow.cancelled_at
    done = replace(
        flow,
        public_flow_state=FlowState.CANCELLED,
        cancelled_at=at.now if before is None else before,
        cancel_reason=reason,
        cancellation_policy=policy,
        last_mutation_at=at.now,
    )
    if not flow.node_count:
        keep = at.retention_ms if flow.retention_ms is None else flow.retention_ms
        done = replace(done, finished_at=at.now, due_at=at.now + keep)
    events = () if before is not None else (flow_event(done, FlowEventType.CANCELLED, at),)
    return Change(done, events)


def is_cancelled_by(policy: CancellationPolicy, execution: Execution) -> bool:
    """Whether a policy cancels this member with its flow.

    What has begun drains under `cancel_pending`: it runs, is suspended, or waits for its children.
    """
    if execution.is_terminal or policy is CancellationPolicy.FLOW_ONLY:
        return False
    if policy is CancellationPolicy.CANCEL_ALL:
        return True
    delayed = execution.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME
    return execution.is_runnable and (delayed or not execution.is_interrupted)


def bar(execution: Execution, reason: str, at: Moment) -> Decision[None]:
    """What has not begun is kept from beginning until its cancel comes."""
    parked = park(execution, BlockingReason.PAUSED_BY_FLOW_CANCEL, reason, at)
    return Decision(None, parked)


def stays_deferred(execution: Execution | None) -> bool:
    """Whether a member's cancel is still to be done, though its caller says that it is done.

    A member that has not ended was not cancelled: without its deferred cancel it would wait for
    ever.
    """
    return execution is not None and not execution.is_terminal


def requested(flow: FlowRow, command: CancelFlow, members: int, at: Moment) -> OperatorEvent:
    """The request, as audited."""
    details = {
        "policy": command.policy.value,
        "reason": command.reason,
        "member_count": members,
    }
    kind = OperatorEventType.FLOW_CANCEL_REQUESTED
    return OperatorEvent(flow.flow_id, kind, details, flow.namespace, flow.tags, at.now)
