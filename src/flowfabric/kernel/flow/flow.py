"""The flow as a whole: its members, how many of them have ended, when it is over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from flowfabric import limits
from flowfabric.errors import (
    AlreadyInOtherFlow,
    FlowAlreadyTerminal,
    FlowConflict,
    InvalidInput,
    NotFound,
)
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.flow.join import is_unneeded
from flowfabric.kernel.tags import with_tags
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    COUNTER_OF_OUTCOME,
    FlowEvent,
    FlowEventType,
    FlowRow,
    FlowState,
    MemberRow,
)
from flowfabric.model.flow_results import Added, AlreadyMember, FlowAlreadySatisfied, FlowCreated
from flowfabric.model.record import Record, replace
from flowfabric.model.successor import FlowHooks

R = TypeVar("R")


class CreateFlow(Command[FlowCreated | FlowAlreadySatisfied], frozen=True, kw_only=True):
    """An empty flow, to be built step by step."""

    flow_id: str
    flow_kind: str
    namespace: str
    retention_ms: int | None = None
    tags: dict[str, str] = {}
    hooks: FlowHooks | None = None

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

    def told(self, reply: R, *saves: Record, execution: Execution | None = None) -> Decision[R]:
        """The change as a decision, with what is saved besides the flow."""
        return Decision(reply, execution, events=self.events, saves=(self.flow, *saves))


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
) -> Decision[FlowCreated | FlowAlreadySatisfied]:
    """A new flow; the same again is answered, other words under its id are a conflict."""
    if flow is None:
        return Decision(FlowCreated(command.flow_id), saves=(new_flow(command, at),))
    for name in ("flow_kind", "namespace"):
        if getattr(flow, name) != getattr(command, name):
            detail = f"{name}: flow {flow.flow_id} has {getattr(flow, name)!r}"
            return Decision(Refused(FlowConflict, detail, {"field": name}))
    if _first_life(flow.hooks) != _first_life(command.hooks):
        detail = f"hooks: flow {flow.flow_id} has others"
        return Decision(Refused(FlowConflict, detail, {"field": "hooks"}))
    return Decision(FlowAlreadySatisfied(flow.flow_id))


def _first_life(hooks: FlowHooks | None) -> FlowHooks | None:
    """Hooks as they were given. A key belongs to flows that were submitted whole."""
    return None if hooks is None else replace(hooks, life=0, key=None)


def new_flow(command: CreateFlow, at: Moment) -> FlowRow:
    """The row of a flow without members."""
    return FlowRow(
        command.flow_id,
        command.namespace,
        command.flow_kind,
        FlowState.OPEN,
        at.now,
        at.now,
        retention_ms=command.retention_ms,
        tags=command.tags,
        hooks=command.hooks,
    )


def add_member(
    flow: FlowRow | None, execution: Execution | Refused, command: AddMember, at: Moment
) -> Decision[Added | AlreadyMember]:
    """An execution becomes a member, for ever. It loses its own purge time: a member is purged with
    its flow."""
    if flow is None:
        return Decision(flow_not_found(command.flow_id))
    if isinstance(execution, Refused):
        return Decision(execution)
    if execution.flow_id == command.flow_id:
        return Decision(AlreadyMember(command.execution_id, flow.node_count))
    if refusal := refuse_member(flow, execution, command):
        return Decision(refusal)
    joined = replace(execution, flow_id=command.flow_id, purge_at=None, last_mutation_at=at.now)
    row = MemberRow(command.flow_id, command.execution_id, command.node_name)
    grown = with_members(flow, [joined], at)
    reply = Added(command.execution_id, grown.flow.node_count)
    return grown.told(reply, row, execution=joined)


def refuse_member(flow: FlowRow, execution: Execution, command: AddMember) -> Refused | None:
    """Why an execution cannot become a member, if it cannot."""
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


def set_flow_tag(flow: FlowRow | None, command: SetFlowTag, at: Moment) -> Decision[None]:
    """The flow with more labels, or others."""
    if flow is None:
        return Decision(flow_not_found(command.flow_id))
    tags = with_tags(flow.tags, command.tags)
    if isinstance(tags, Refused):
        return Decision(tags)
    changed = replace(flow, tags=tags, last_mutation_at=at.now)
    events = tuple(
        OperatorEvent(
            flow.flow_id,
            OperatorEventType.TAGGED,
            {"key": key, "value": value, "old": flow.tags.get(key)},
            flow.namespace,
            tags,
            at.now,
        )
        for key, value in command.tags.items()
    )
    return Decision(None, events=events, saves=(changed,))


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
    done = replace(flow, finished_at=at.now, due_at=at.now + keep, hooks=_next_life(flow))
    if state is FlowState.CANCELLED:
        return Change(done)
    done = replace(done, public_flow_state=ended_state(flow))
    return Change(done, (flow_event(done, FlowEventType(done.public_flow_state.value), at),))


def _reopened(flow: FlowRow, at: Moment) -> Change:
    """It goes on, as if it had neither ended nor been cancelled; the events keep that it was."""
    again = replace(
        flow,
        hooks=_next_life(flow),
        public_flow_state=FlowState.OPEN,
        finished_at=None,
        due_at=None,
        cancelled_at=None,
        cancel_reason=None,
        cancellation_policy=None,
    )
    return Change(again, (flow_event(again, FlowEventType.REOPENED, at),))


def _next_life(flow: FlowRow) -> FlowHooks | None:
    """Its hooks, which belong to another life if it had ended before."""
    hooks = flow.hooks
    if hooks is None or flow.finished_at is None:
        return hooks
    return replace(hooks, life=hooks.life + 1)


def ended_state(flow: FlowRow) -> FlowState:
    """What a flow has become whose members have all ended."""
    if flow.public_flow_state is FlowState.CANCELLED:
        return FlowState.CANCELLED
    lost = flow.failed_count or flow.expired_count or flow.cancelled_count > flow.unneeded_count
    return FlowState.FAILED if lost else FlowState.COMPLETED


def purged_with_flow(execution: Execution, at: Moment) -> Execution:
    """A member whose flow's retention is over may be purged from now on."""
    return replace(execution, purge_at=at.now, last_mutation_at=at.now)


def purged_later(flow: FlowRow, at: Moment) -> Change:
    """A flow with members left, too many for one transaction or locked elsewhere: it is purged on
    soon."""
    return Change(replace(flow, due_at=at.now + limits.TASK_RETRY_MS))


def flow_event(flow: FlowRow, kind: FlowEventType, at: Moment) -> FlowEvent:
    """What happened to a flow, as published."""
    return FlowEvent(flow.flow_id, kind, flow.namespace, flow.tags, at.now)
