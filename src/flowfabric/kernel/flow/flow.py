"""The flow as a whole: who belongs to it, how many have ended, when it is over."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric import limits
from flowfabric.errors import (
    AlreadyInOtherFlow,
    FlowAlreadyTerminal,
    FlowConflict,
    FlowFabricError,
    InvalidInput,
    NotFound,
)
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.flow.join import is_unneeded
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    COUNTER_OF_OUTCOME,
    CancellationPolicy,
    FlowEvent,
    FlowEventType,
    FlowRow,
    FlowState,
)
from flowfabric.model.flow_results import Added, AlreadyMember, FlowAlreadySatisfied, FlowCreated
from flowfabric.model.record import Record, replace
from flowfabric.model.state import EligibilityState


class CreateFlow(Command[FlowCreated | FlowAlreadySatisfied], frozen=True, kw_only=True):
    """Somebody wants an empty flow to add to."""

    flow_id: str
    flow_kind: str
    namespace: str
    retention_ms: int | None = None
    tags: dict[str, str] = {}

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.catalog = True
        need.flows.add(self.flow_id)


class AddMember(ExecutionCommand[Added | AlreadyMember], frozen=True, kw_only=True):
    """An execution shall belong to a flow, for ever."""

    flow_id: str
    node_name: str = ""
    reopen: bool = False

    def needs(self, need: Needs) -> None:
        """The execution and the flow."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows.add(self.flow_id)


class SetFlowTag(Command[None], frozen=True, kw_only=True):
    """Label a flow."""

    flow_id: str
    tags: dict[str, str]

    def needs(self, need: Needs) -> None:
        """The flow."""
        need.catalog = True
        need.flows.add(self.flow_id)


class Change(Record, frozen=True):
    """The next image of a flow and what is to be published."""

    flow: FlowRow
    events: tuple[FlowEvent, ...] = ()


def flow_not_found(flow_id: str) -> Refused:
    """There is no such flow."""
    return Refused(NotFound, f"flow {flow_id}", {"entity": "flow", "flow_id": flow_id})


def refuse_closed(flow: FlowRow | None, flow_id: str) -> Refused | None:
    """Why a graph cannot be changed, if it cannot."""
    if flow is None:
        return flow_not_found(flow_id)
    if flow.public_flow_state.is_terminal:
        detail = f"flow {flow_id} is {flow.public_flow_state.value}"
        return Refused(FlowAlreadyTerminal, detail, {"state": flow.public_flow_state.value})
    return None


def create_flow(
    flow: FlowRow | None, command: CreateFlow, at: Moment
) -> FlowRow | FlowAlreadySatisfied | Refused:
    """A new flow; the same again is answered, other words under its id are a conflict."""
    if flow is None:
        return FlowRow(
            command.flow_id,
            command.namespace,
            command.flow_kind,
            FlowState.OPEN,
            at.now,
            at.now,
            retention_ms=command.retention_ms,
            tags=command.tags,
        )
    for name in ("flow_kind", "namespace"):
        if getattr(flow, name) != getattr(command, name):
            detail = f"{name}: flow {flow.flow_id} has {getattr(flow, name)!r}"
            return Refused(FlowConflict, detail, {"field": name})
    return FlowAlreadySatisfied(flow.flow_id)


def admit_member(
    flow: FlowRow | None, execution: Execution, command: AddMember
) -> type[FlowFabricError] | Refused | None:
    """Why an execution cannot become a member, if it cannot."""
    if flow is None:
        return flow_not_found(command.flow_id)
    state = flow.public_flow_state
    if state is FlowState.CANCELLED or (state.is_terminal and not command.reopen):
        return refuse_closed(flow, command.flow_id)
    if execution.flow_id not in (None, command.flow_id):
        detail = f"execution {execution.execution_id} belongs to flow {execution.flow_id}"
        return Refused(AlreadyInOtherFlow, detail, {"flow_id": execution.flow_id})
    if execution.namespace != flow.namespace:
        detail = f"namespace: the flow's is {flow.namespace}, the execution's another"
        return Refused(InvalidInput, detail, {"field": "namespace"})
    if flow.node_count >= limits.FLOW_MEMBERS_MAX:
        detail = f"execution_id: the flow has {limits.FLOW_MEMBERS_MAX} members already"
        return Refused(InvalidInput, detail, {"field": "execution_id"})
    return None


def with_members(flow: FlowRow, executions: Iterable[Execution], at: Moment) -> Change:
    """The flow with new members, some of which may have ended before they joined."""
    counts = {"node_count": flow.node_count, "graph_revision": flow.graph_revision}
    keep = flow.retention_ms
    for execution in executions:
        counts["node_count"] += 1
        counts["graph_revision"] += 1
        if execution.is_terminal:
            name = COUNTER_OF_OUTCOME[execution.state.terminal_outcome]
            counts[name] = counts.get(name, getattr(flow, name)) + 1
        asked = execution.policy.retention_ttl_ms
        if asked is not None and asked > (at.retention_ms if keep is None else keep):
            keep = asked
    grown = replace(flow, retention_ms=keep, last_mutation_at=at.now, **counts)
    return settle(grown, at)


def tally(flow: FlowRow, moves: Iterable[tuple[Execution, Execution]], at: Moment) -> Change:
    """Count members that ended, or that a replay gave a new life. That opens the flow again, also
    when it was cancelled: it could neither be cancelled otherwise, nor grow."""
    counts: dict[str, int] = {}
    lives_again = False
    for before, after in moves:
        lives_again = lives_again or not after.is_terminal
        for execution, step in ((before, -1), (after, 1)):
            if execution.is_terminal:
                name = COUNTER_OF_OUTCOME[execution.state.terminal_outcome]
                counts[name] = counts.get(name, 0) + step
                if is_unneeded(execution):
                    counts["unneeded_count"] = counts.get("unneeded_count", 0) + step
    changed = {name: getattr(flow, name) + by for name, by in counts.items()}
    counted = replace(flow, last_mutation_at=at.now, **changed)
    return settle(counted, at, lives_again=lives_again)


def settle(flow: FlowRow, at: Moment, *, lives_again: bool = False) -> Change:
    """The authoritative state that follows from the counts: over when the last member ended, and
    open when one lives again."""
    state = flow.public_flow_state
    over = flow.node_count > 0 and flow.ended_count == flow.node_count
    keep = at.retention_ms if flow.retention_ms is None else flow.retention_ms
    if not over:
        drains = state is FlowState.CANCELLED and not lives_again
        return _reopened(flow, at) if state.is_terminal and not drains else Change(flow)
    if flow.finished_at is not None and state is ended_state(flow):
        return Change(flow)
    done = replace(flow, finished_at=at.now, due_at=at.now + keep)
    if state is FlowState.CANCELLED:
        return Change(done)
    done = replace(done, public_flow_state=ended_state(flow))
    return Change(done, (_event(done, FlowEventType(done.public_flow_state.value), at),))


def _reopened(flow: FlowRow, at: Moment) -> Change:
    """It goes on, as if it had neither ended nor been cancelled; the events keep that it was."""
    again = replace(
        flow,
        public_flow_state=FlowState.OPEN,
        finished_at=None,
        due_at=None,
        cancelled_at=None,
        cancel_reason=None,
        cancellation_policy=None,
    )
    return Change(again, (_event(again, FlowEventType.REOPENED, at),))


def ended_state(flow: FlowRow) -> FlowState:
    """What a flow has become whose members have all ended."""
    if flow.public_flow_state is FlowState.CANCELLED:
        return FlowState.CANCELLED
    lost = flow.failed_count or flow.expired_count or flow.cancelled_count > flow.unneeded_count
    return FlowState.FAILED if lost else FlowState.COMPLETED


def cancelled_flow(flow: FlowRow, policy: CancellationPolicy, reason: str, at: Moment) -> Change:
    """The header of a cancelled flow. One that was cancelled before, by a policy that took less,
    was so since then, and that was told."""
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
    events = () if before is not None else (_event(done, FlowEventType.CANCELLED, at),)
    return Change(done, events)


def is_taken(policy: CancellationPolicy, execution: Execution) -> bool:
    """Whether a cancelled flow takes this member with it.

    What has begun drains under `cancel_pending`: it runs, is suspended, or waits for its children.
    """
    if execution.is_terminal or policy is CancellationPolicy.FLOW_ONLY:
        return False
    if policy is CancellationPolicy.CANCEL_ALL:
        return True
    delayed = execution.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME
    return execution.is_runnable and (delayed or not execution.is_interrupted)


def _event(flow: FlowRow, kind: FlowEventType, at: Moment) -> FlowEvent:
    return FlowEvent(flow.flow_id, kind, flow.namespace, flow.tags, at.now)
