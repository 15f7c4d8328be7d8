"""Commands about journals."""

from __future__ import annotations

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Decision, Refused, refuse
from flowfabric.kernel.journal.checkpoint import Checkpoint, checkpoint
from flowfabric.model.journal import Checkpointed, EntryRow
from flowfabric.model.suspension import WaitpointRow
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import JOURNAL, WAITPOINTS, Key


@handles(Checkpoint)
async def record(unit: Unit, command: Checkpoint) -> Checkpointed | Refused:
    """By the owner of the lease."""
    return unit.view.apply(None, await decided(unit, command), command)


async def recorded_waitpoint(unit: Unit, command: Checkpoint) -> WaitpointRow | Refused:
    """The waitpoint that the last of some recorded entries refers to."""
    execution = unit.view.execution(command.execution_id)
    last = command.entries[-1].position
    if execution is not None:
        key = (execution.execution_id, execution.journal_index, execution.chapter_index, last)
        entry = unit.view.rows.get(JOURNAL, key)
        name = (entry.refers_to or "",) if entry is not None else ("",)
        if (found := (await unit.tx.peek_rows(WAITPOINTS, [name])).get(name)) is not None:
            return found
    return Refused(Corruption, f"execution {command.execution_id}: entry {last} has no waitpoint")


async def decided(
    unit: Unit, command: Checkpoint, refers_to: str | None = None
) -> Decision[Checkpointed]:
    """What a checkpoint adds, alone or with a suspension."""
    view = unit.view
    current = view.executions.get(command.execution_id)
    if isinstance(current, Corrupt):
        return refuse(Corruption, f"execution {current.execution_id}: {current.detail}")
    known: dict[int, EntryRow] = {}
    if current is not None:
        journal = (current.execution_id, current.journal_index, current.chapter_index)
        keys: list[Key] = [(*journal, entry.position) for entry in command.entries]
        # Nearly always the positions are free: only after a first try has collided is it worth a
        # look.
        if unit.is_again:
            found, spoiled = await readable(unit.tx.peek_rows, JOURNAL, keys)
            if spoiled:
                return refuse(Corruption, next(iter(spoiled.values())))
            view.rows.take(JOURNAL, found)
        for key in keys:
            if (row := view.rows.get(JOURNAL, key)) is not None:
                known[key[-1]] = row
    return checkpoint(current, known, command, view.at, refers_to)
