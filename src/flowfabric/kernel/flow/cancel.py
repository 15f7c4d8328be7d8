"""Cancelling a flow: the header at once, and each member as the policy says."""

from __future__ import annotations

from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.transition import park
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.flow import CancellationPolicy, FlowRow
from flowfabric.model.flow_results import AlreadyTerminal, CancellationScheduled, FlowCancelled
from flowfabric.model.state import BlockingReason

FLOW_CANCEL = "flow_cancel"  # who cancels
_WIDTH = (
    CancellationPolicy.FLOW_ONLY,
    CancellationPolicy.CANCEL_PENDING,
    CancellationPolicy.CANCEL_ALL,
)


class CancelFlow(
    Command[FlowCancelled | CancellationScheduled | AlreadyTerminal], frozen=True, kw_only=True
):
    """Somebody wants a whole flow stopped."""

    flow_id: str
    policy: CancellationPolicy
    reason: str
    grace_ms: int | None = None  # none: members are cancelled at once, not by whoever asked

    def needs(self, need: Needs) -> None:
        """The flow and all its members."""
        need.catalog = True
        need.flows.add(self.flow_id)
        need.members_of.add(self.flow_id)


class AckCancelMember(ExecutionCommand[None], frozen=True, kw_only=True):
    """Whoever cancels the members of a flow by hand has done one."""

    flow_id: str

    def needs(self, need: Needs) -> None:
        """The execution and the flow."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows.add(self.flow_id)


def bar(execution: Execution, reason: str, at: Moment) -> Decision[None]:
    """What has not begun is kept from beginning until its cancel comes."""
    parked = park(execution, BlockingReason.PAUSED_BY_FLOW_CANCEL, reason, at)
    return Decision(None, parked)


def widens(flow: FlowRow, policy: CancellationPolicy) -> bool:
    """Whether this policy takes more than the one a flow was cancelled by: then it is no
    repetition of that cancel."""
    stored = flow.cancellation_policy
    return stored is not None and _WIDTH.index(policy) > _WIDTH.index(stored)


def stays_owed(execution: Execution | None) -> bool:
    """Whether a member's cancel is still to be done, though its caller says that it is.

    Nothing is owed to who has ended, or is gone. Who has not was not cancelled, whatever is said:
    it would wait for ever.
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
