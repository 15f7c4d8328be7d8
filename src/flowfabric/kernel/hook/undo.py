"""Undo: what a handler wants undone if its execution does not succeed, kept as data.

The calls are entries of the journal. The end of the execution, or the handler itself, makes a chain
of them: a flow of ordinary executions, last registered first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from flowfabric import limits
from flowfabric.errors import InvalidInput, JournalFull, UndosNotRun
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.flow.flow import CreateFlow
from flowfabric.kernel.flow.graph import StageEdge
from flowfabric.kernel.flow.submit import Node, SubmitFlow
from flowfabric.kernel.hook.ended import create_successor
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.model.checks import clip_text
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.flow import SUCCESS_ONLY, AllDone
from flowfabric.model.journal import Checkpointed, EntryKind, EntryRow
from flowfabric.model.record import from_json, replace, to_json
from flowfabric.model.results import Undone
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.successor import Origin, Role, Undo, Undos

UNDO = "undo"  # the kind of the flow
NAMED_UNDOS = 5  # of those that are registered


class RegisterUndo(ExecutionCommand[Checkpointed], frozen=True, kw_only=True):
    """The owner wants these calls made if its execution does not succeed. Each belongs to one of
    the entries of kind undo, in their order."""

    fence: Fence
    undos: tuple[Undo, ...]
    entries: Checkpoint

    def needs(self, need: Needs) -> None:
        """What the entries need."""
        self.entries.needs(need)


class RunUndo(ExecutionCommand[Undone], frozen=True, kw_only=True):
    """The owner wants everything undone now that it has registered. The last entry is to be filled
    with the ids of the calls."""

    fence: Fence
    entries: Checkpoint

    def needs(self, need: Needs) -> None:
        """What the entries need, and the routes."""
        need.catalog = True
        self.entries.needs(need)


def with_undos(command: RegisterUndo) -> Checkpoint:
    """The entries, each of kind undo with its call."""
    left = iter(command.undos)
    filled = [
        replace(entry, value=to_json(next(left))) if entry.kind is EntryKind.UNDO else entry
        for entry in command.entries.entries
    ]
    return replace(command.entries, entries=tuple(filled))


def with_calls(command: RunUndo, ids: Sequence[str]) -> Checkpoint:
    """The entries, the last of them with the ids of the calls."""
    *others, last = command.entries.entries
    entries = (*others, replace(last, value=to_json(list(ids))))
    return replace(command.entries, entries=entries)


def register_undo(
    execution: Execution, command: RegisterUndo, recorded: Decision[Checkpointed]
) -> Decision[Checkpointed]:
    """The execution with more to undo. `recorded`: what the entries come to; those that were there
    were registered when they came."""
    fresh = [
        row.position
        for row in recorded.saves
        if isinstance(row, EntryRow) and row.kind is EntryKind.UNDO
    ]
    before = execution.undos or Undos()
    if len(before.positions) + len(fresh) > limits.UNDOS_MAX:
        detail = (
            f"{limits.UNDOS_MAX} undos are registered, which is all there may be: run them by "
            "ctx.undo_now, or let one undo more"
        )
        return Decision(Refused(JournalFull, detail, {"limit": limits.UNDOS_MAX}))
    for undo in command.undos:
        if undo.successor.route.namespace != execution.namespace:
            detail = f"namespace: the execution's is {execution.namespace}, the undo's another"
            return Decision(Refused(InvalidInput, detail, {"field": "namespace"}))
    after = replace(before, positions=(*before.positions, *fresh))
    return Decision(recorded.reply, replace(execution, undos=after) if fresh else None)


def cleared(execution: Execution) -> Execution:
    """The execution when its handler has had everything undone."""
    return replace(execution, undos=Undos(had_run=True))


def undoes(ended: Execution) -> bool:
    """Whether an end leads to undos."""
    undos = ended.undos
    lost = ended.state.terminal_outcome is not TerminalOutcome.SUCCESS
    return lost and undos is not None and bool(undos.positions)


def undo_of(entry: EntryRow) -> Undo:
    """The call that an entry registers. Raises InvalidInput if it cannot be read."""
    return from_json(entry.value or b"", Undo, field=f"entry {entry.position}")


def undo_flow(
    execution: Execution, undos: Sequence[Undo], flow_id: str, ids: Sequence[str]
) -> SubmitFlow:
    """The chain of calls, in the order in which they are made. `ids`: of the calls."""
    origin = Origin(Role.UNDO, execution.replay_count, execution.execution_id)
    stops = execution.ties.undo_stops
    nodes = []
    for at_place, (undo, key) in enumerate(zip(undos, ids, strict=True)):
        create = create_successor(undo.successor, key, undo.arguments.encode(), origin)
        in_flow: CreateExecution = replace(create, flow_id=flow_id, open_group=int(at_place > 0))
        policy = None if stops or not at_place else AllDone()
        name = f"{at_place + 1} {undo.successor.route.execution_kind}"
        name = clip_text(name, limits.NODE_NAME_BYTES, field="node_name")
        nodes.append(Node(name, in_flow, policy))
    edges = tuple(
        StageEdge(
            flow_id=flow_id,
            edge_id=downstream[-36:],
            upstream_execution_id=upstream,
            downstream_execution_id=downstream,
            dependency_kind=SUCCESS_ONLY,
        )
        for upstream, downstream in pairwise(ids)
    )
    flow = CreateFlow(flow_id=flow_id, flow_kind=UNDO, namespace=execution.namespace)
    ranks = {node.name: rank for rank, node in enumerate(nodes)}
    return SubmitFlow(flow=flow, nodes=tuple(nodes), edges=edges, ranks=ranks)


def undos_left(execution: Execution, count: int, named: Sequence[str]) -> Refused:
    """A chapter does not end before its undos: the next one would know nothing of them."""
    more = f" and {count - len(named)} more" if count > len(named) else ""
    detail = f"execution {execution.execution_id}: undos are registered: {', '.join(named)}{more}"
    return Refused(UndosNotRun, detail, {"undos": list(named), "count": count})
