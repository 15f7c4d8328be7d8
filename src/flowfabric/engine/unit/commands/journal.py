"""Commands about journals."""

from __future__ import annotations

from flowfabric.engine.unit.commands.limits import settle_now
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Decision, Refused, refuse
from flowfabric.kernel.journal.checkpoint import Checkpoint, checkpoint
from flowfabric.model.budget import Ok, UsageOutcome
from flowfabric.model.journal import Checkpointed, EntryRow
from flowfabric.model.record import replace
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import JOURNAL, Key


@handles(Checkpoint)
async def record(unit: Unit, command: Checkpoint) -> Checkpointed | Refused:
    """By the owner of the lease."""
    return taken(unit, command, await decided(unit, command))


def taken(
    unit: Unit, command: Checkpoint, decision: Decision[Checkpointed]
) -> Checkpointed | Refused:
    """The entries join the batch, and the reservations that end with them are settled: all or
    none. Entries that were there were charged when they came."""
    settlements = command.settlements
    if not settlements or isinstance(decision.reply, Refused):
        return unit.view.apply(None, decision, command)
    budgets, outcomes = unit.limits.budgets, list[UsageOutcome]()
    for _, each in settlements:
        if isinstance(budget := budgets.get(each.budget_id), Refused):
            return budget
    fresh = {row.position for row in decision.saves if isinstance(row, EntryRow)}
    reply = unit.view.apply(None, decision, command)
    for position, each in settlements:
        if position in fresh:
            outcome = settle_now(unit, each)
            if isinstance(outcome, Refused):
                break  # a budget before it has failed the execution, which gives back the rest
            outcomes.append(outcome)
        else:
            seen = budgets.seen(each.seen_under)
            outcomes.append(Ok() if seen is None else seen.outcome)
    return reply if isinstance(reply, Refused) else replace(reply, outcomes=tuple(outcomes))


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
