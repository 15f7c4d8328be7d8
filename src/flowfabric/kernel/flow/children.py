"""Parents and children: an execution spawns others, and waits until they have ended."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.errors import BudgetScopeMismatch
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.dependent import release_member
from flowfabric.kernel.flow.flow import CreateFlow, new_flow, refuse_closed, with_members
from flowfabric.kernel.flow.join import keeps_back
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.flow import FlowRow, MemberRow
from flowfabric.model.flow_results import Spawned
from flowfabric.model.record import replace
from flowfabric.model.results import CreateResult, Duplicate
from flowfabric.model.state import TerminalOutcome

CHILDREN = "children"  # the kind of a flow that began with a spawn


class SpawnChildren(ExecutionCommand[Spawned], frozen=True, kw_only=True):
    """The owner of an execution wants others done, as its children."""

    fence: Fence
    children: tuple[CreateExecution, ...]
    flow_budgets: dict[str, str] = {}  # which flow each budget is for that children name
    entries: Checkpoint | None = None  # added to the journal with them

    def needs(self, need: Needs) -> None:
        """The parent, its flow, and the children it spawned under these keys before."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows_of.add(self.execution_id)
        need.families.add(self.execution_id)
        for child in self.children:
            if child.idempotency_key is not None:
                need.keys.add((child.route.namespace, child.idempotency_key))
        if self.entries is not None:
            self.entries.needs(need)


def family_of(parent: Execution) -> str:
    """The flow of a parent's children. A parent without a flow begins one under its own id, so that
    a repeated spawn finds it."""
    return parent.flow_id or parent.execution_id[-36:]


def born_into_family(parent: Execution, command: SpawnChildren) -> list[CreateExecution]:
    """The children, as members of their parent's flow."""
    return [replace(each, flow_id=family_of(parent)) for each in command.children]


def refuse_budgets(command: SpawnChildren, flow_id: str) -> Refused | None:
    """Children may name budgets of the flow they are born into, and of no other."""
    for name, scope_id in sorted(command.flow_budgets.items()):
        if scope_id != flow_id:
            detail = f"budget_ids: {name} is for flow {scope_id}"
            return Refused(BudgetScopeMismatch, detail, {"field": "budget_ids"})
    return None


def spawn(
    parent: Execution,
    flow: FlowRow | None,
    row: MemberRow | None,
    created: Sequence[Decision[CreateResult]],
    command: SpawnChildren,
    at: Moment,
) -> Decision[Spawned]:
    """Children join their parent's flow, which begins with them if there is none. The parent counts
    those that are new. `row`: the parent's, `created`: what creating each child would do."""
    flow_id = family_of(parent)
    if refusal := _refuse_spawn(flow, flow_id, created, command):
        return Decision(refusal)
    new = [each.execution for each in created if each.execution is not None]
    joined = None
    saves: list[MemberRow] = []
    if flow is None:
        joined = replace(parent, flow_id=flow_id, last_mutation_at=at.now)
        begun = CreateFlow(flow_id=flow_id, flow_kind=CHILDREN, namespace=parent.namespace)
        flow = with_members(new_flow(begun, at), [joined], at).flow
        row = MemberRow(flow_id, parent.execution_id, parent.execution_kind)
    if row is not None and (new or joined is not None):
        saves.append(replace(row, open_children=row.open_children + len(new)))
    grown = with_members(flow, new, at)
    whole = replace(grown, flow=replace(grown.flow, child_count=flow.child_count + len(new)))
    saves += [
        MemberRow(flow_id, each.execution_id, each.execution_kind, parent_id=parent.execution_id)
        for each in new
    ]
    ids = [each.reply.execution_id for each in created if not isinstance(each.reply, Refused)]
    return whole.told(Spawned(flow_id, tuple(ids)), *saves, execution=joined)


def _refuse_spawn(
    flow: FlowRow | None,
    flow_id: str,
    created: Sequence[Decision[CreateResult]],
    command: SpawnChildren,
) -> Refused | None:
    if refusal := refuse_budgets(command, flow_id):
        return refusal
    for place, decision in enumerate(created):
        if isinstance(decision.reply, Refused):
            detail = f"children[{place}]: {decision.reply.detail}"
            return replace(decision.reply, detail=detail)
    return None if flow is None else refuse_closed(flow, flow_id)


def known_children(
    parent: Execution,
    children: Sequence[CreateExecution],
    created: Sequence[Decision[CreateResult]],
) -> list[str]:
    """The ids of children that are all known under their keys; none where one of them is not."""
    if parent.flow_id is None or any(each.idempotency_key is None for each in children):
        return []
    known = [each.reply.execution_id for each in created if isinstance(each.reply, Duplicate)]
    return known if len(known) == len(children) else []


def spawned_before(
    parent: Execution, known: Sequence[str], rows: Sequence[MemberRow | None]
) -> Spawned | None:
    """The answer of a spawn that is repeated, however far its parent has gone on: all its children
    are known, and they are this parent's. `rows`: of the known."""
    if parent.flow_id is None or not known:
        return None
    if any(row is None or row.parent_id != parent.execution_id for row in rows):
        return None
    return Spawned(parent.flow_id, tuple(known))


def count_child(parent: MemberRow, child: Execution) -> MemberRow:
    """A parent's row after a child has ended, or lives again."""
    step = -1 if child.is_terminal else 1
    return replace(parent, open_children=max(0, parent.open_children + step))


def cancels_children(row: MemberRow, execution: Execution) -> bool:
    """Whether a parent that did not succeed cancels the children that are still open."""
    lost = execution.state.terminal_outcome is not TerminalOutcome.SUCCESS
    return execution.is_terminal and lost and row.open_children > 0


def wake_parent(
    parent: Execution | None, row: MemberRow | None, at: Moment
) -> Decision[None] | None:
    """A parent that waits for children goes on, unless something still keeps it back."""
    if parent is None or row is None or keeps_back(row):
        return None
    is_parked = parent.is_interrupted and parent.has_open_group
    return release_member(parent, at) if is_parked else None
