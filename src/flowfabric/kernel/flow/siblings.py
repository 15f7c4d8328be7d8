"""The deferred cancels of one group: performed at once, or compared with what is still needed."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.flow.deferred import defer
from flowfabric.kernel.flow.join import cancels_siblings, sibling_reason
from flowfabric.kernel.repair import repair_events
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.flow import FlowRow, GroupState, MemberRow, TaskKind, TaskRow
from flowfabric.model.repair import (
    Correction,
    SiblingAction,
    SiblingsDrained,
    SiblingsReconciled,
)


class DrainSiblings(Command[SiblingsDrained], frozen=True, kw_only=True):
    """Perform the deferred cancels of a group, as many as one transaction may."""

    flow_id: str
    execution_id: str  # of the member that the group leads to

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.flows.add(self.flow_id)


class ReconcileSiblings(Command[SiblingsReconciled], frozen=True, kw_only=True):
    """Restore missing cancels of a group, or drop stale ones."""

    flow_id: str
    execution_id: str

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.flows.add(self.flow_id)


def is_needed_no_more(member: MemberRow | None) -> bool:
    """Whether what still runs for a member's group is to be cancelled."""
    if member is None or member.group_state is GroupState.PENDING:
        return False
    return cancels_siblings(member)


def drained(
    flow: FlowRow, task: TaskRow, cancelled: Sequence[str], is_drained: bool, at: Moment
) -> Decision[SiblingsDrained]:
    """The reply, with the event for the audit trail."""
    details = {"group": task.execution_id, "reason": task.reason, "cancelled": len(cancelled)}
    kind = OperatorEventType.SIBLINGS_DRAINED
    event = OperatorEvent(flow.flow_id, kind, details, flow.namespace, flow.tags, at.now)
    return Decision(SiblingsDrained(tuple(cancelled), is_drained), events=(event,))


def reconcile_siblings(
    flow: FlowRow,
    member: MemberRow | None,
    task: TaskRow | None,
    live: Sequence[str],
    execution_id: str,
    at: Moment,
) -> Decision[SiblingsReconciled]:
    """`live`: the siblings that have not ended and are not spared."""
    unneeded, count = is_needed_no_more(member), len(live)
    if task is None:
        if member is None or not unneeded or not live:
            return Decision(SiblingsReconciled(SiblingAction.NO_OP, count))
        reason = sibling_reason(member)
        made = defer(flow.flow_id, TaskKind.CANCEL_SIBLINGS, execution_id, reason, at)
        return _done(flow, SiblingAction.RESTORED, count, at, saves=made, subject=execution_id)
    if member is None or member.group_state is GroupState.PENDING:
        stale = SiblingAction.SREMMED_STALE
        return _done(flow, stale, count, at, drops=task, subject=execution_id)
    if not live:
        complete = SiblingAction.COMPLETED_DRAIN
        return _done(flow, complete, 0, at, drops=task, subject=execution_id)
    return Decision(SiblingsReconciled(SiblingAction.NO_OP, count))


def _done(
    flow: FlowRow,
    action: SiblingAction,
    live: int,
    at: Moment,
    *,
    subject: str,
    saves: TaskRow | None = None,
    drops: TaskRow | None = None,
) -> Decision[SiblingsReconciled]:
    before, after = (1, 0) if saves is None else (0, 1)
    counter = f"deferred {TaskKind.CANCEL_SIBLINGS.value}"
    changed = [Correction(f"member {subject}", counter, before, after)]
    return Decision(
        SiblingsReconciled(action, live),
        saves=() if saves is None else (saves,),
        drops=() if drops is None else (drops,),
        events=repair_events(flow.flow_id, changed, at, namespace=flow.namespace, tags=flow.tags),
    )
