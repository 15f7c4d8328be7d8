"""Commands about undos."""

from __future__ import annotations

from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.successors import undo_flow_id, undo_ids
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.hook.undo import (
    RegisterUndo,
    RunUndo,
    cleared,
    register_undo,
    with_calls,
    with_undos,
)
from flowfabric.model.journal import Checkpointed
from flowfabric.model.record import from_json
from flowfabric.model.results import Undone
from flowfabric.stores.tables import JOURNAL


@handles(RegisterUndo)
async def register(unit: Unit, command: RegisterUndo) -> Checkpointed | Refused:
    """The entries and the mark by which the end finds them."""
    view, filled = unit.view, with_undos(command)
    recorded = await journal.decided(unit, filled)
    execution = view.execution(command.execution_id)
    if isinstance(recorded.reply, Refused) or execution is None:
        return view.apply(None, recorded)
    decision = register_undo(execution, command, recorded)
    if isinstance(decision.reply, Refused):
        return decision.reply
    reply = journal.taken(unit, filled, recorded)
    if isinstance(reply, Refused) or decision.execution is None:
        return reply
    current = view.execution(command.execution_id) or execution
    marked = register_undo(current, command, recorded).execution or current
    view.put(current, marked)
    if marked.is_terminal:  # a reservation that ended with the entries has failed it
        view.tie(execution, marked)
    return reply


@handles(RunUndo)
async def run(unit: Unit, command: RunUndo) -> Undone | Refused:
    """The calls, and the entry that tells of them."""
    view, successors = unit.view, unit.tied.successors
    execution = view.execution(command.execution_id)
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, view.at.now)
    if refusal is not None or execution is None:
        return refusal or not_found(command.execution_id)
    position = command.entries.entries[-1].position
    place = (execution.journal_index, execution.chapter_index, position)
    flow_id = undo_flow_id(execution.execution_id, execution.replay_count, *place)
    decision = await journal.decided(unit, command.entries)
    if isinstance(decision.reply, Refused):
        return decision.reply
    known = view.rows.get(JOURNAL, (execution.execution_id, *place))
    if known is not None:  # it was sent before
        return _told(flow_id, known.value)
    await successors.look_up_routes()
    positions = () if execution.undos is None else execution.undos.positions
    undos = successors.readable(execution, await successors.entries(execution, positions))
    filled = with_calls(command, undo_ids(flow_id, len(undos), view.at.partitions))
    reply = journal.taken(unit, filled, await journal.decided(unit, filled))
    if isinstance(reply, Refused):
        return reply
    current = view.execution(command.execution_id)
    if current is None or current.is_terminal:  # by what its entries settled: its end undoes it
        refusal = refuse_unless_owner(current, command.execution_id, command.fence, view.at.now)
        return refusal or not_found(command.execution_id)
    successors.undo(execution, undos, flow_id)
    view.put(current, cleared(current))
    return _told(flow_id, filled.entries[-1].value)


def _told(flow_id: str, value: bytes | None) -> Undone:
    ids = from_json(value or b"[]", tuple[str, ...], field="entry.value")
    return Undone(flow_id if ids else None, ids)
