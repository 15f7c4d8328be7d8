"""Commands about journals."""

from __future__ import annotations

from typing import Final

from flowfabric.engine.unit.commands.limits import settle_now
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Decision, Refused, refuse
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.kernel.hook.undo import NAMED_UNDOS, undos_left
from flowfabric.kernel.journal.chapter import (
    NAMED_CHILDREN,
    Continue,
    children_left,
    continue_as_new,
)
from flowfabric.kernel.journal.checkpoint import Checkpoint, checkpoint
from flowfabric.kernel.journal.fork import Fork
from flowfabric.model.budget import Ok, UsageOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.journal import Checkpointed, Continued, EntryRow, Forked
from flowfabric.model.record import replace
from flowfabric.model.suspension import WaitpointRow
from flowfabric.stores.base import Corrupt
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import JOURNAL, WAITPOINTS, Key

_CHILDREN_AT_ONCE: Final = 500


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
    if (refusal := refused_settlement(unit, command)) is not None:
        return refusal
    budgets, outcomes = unit.limits.budgets, list[UsageOutcome]()
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


def refused_settlement(unit: Unit, command: Checkpoint) -> Refused | None:
    """Why reservations cannot end with the entries: a budget of theirs is gone."""
    for _, each in command.settlements:
        if isinstance(budget := unit.limits.budgets.get(each.budget_id), Refused):
            return budget
    return None


async def recorded_waitpoint(unit: Unit, command: Checkpoint) -> WaitpointRow | Refused:
    """The waitpoint that the last of some recorded entries refers to."""
    execution = unit.view.execution(command.execution_id)
    last = command.recorded[-1].position
    if execution is not None:
        key = (execution.execution_id, execution.journal_index, execution.chapter_index, last)
        entry = unit.view.rows.get(JOURNAL, key)
        name = (entry.refers_to or "",) if entry is not None else ("",)
        if (found := (await unit.tx.peek_rows(WAITPOINTS, [name])).get(name)) is not None:
            return found
    return Refused(Corruption, f"execution {command.execution_id}: entry {last} has no waitpoint")


def last_recorded(unit: Unit, command: Checkpoint) -> EntryRow | None:
    """The entry that stands where the last one of a command is to be, as far as it was loaded."""
    execution = unit.view.execution(command.execution_id)
    if execution is None or not command.recorded:
        return None
    journal = (execution.execution_id, execution.journal_index, execution.chapter_index)
    return unit.view.rows.get(JOURNAL, (*journal, command.recorded[-1].position))


async def look_for(unit: Unit, command: Checkpoint) -> None:
    """Load the entries that stand where those of a command are to be."""
    execution = unit.view.execution(command.execution_id)
    if execution is not None:
        journal = (execution.execution_id, execution.journal_index, execution.chapter_index)
        keys: list[Key] = [(*journal, entry.position) for entry in command.recorded]
        found, _ = await readable(unit.tx.peek_rows, JOURNAL, keys)
        unit.view.rows.take(JOURNAL, found)


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
        keys: list[Key] = [(*journal, entry.position) for entry in command.recorded]
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


@handles(Continue)
async def begin_chapter(unit: Unit, command: Continue) -> Continued | Refused:
    """The owner ends a chapter. Of those that have ended, the last one is kept."""
    if (refusal := await refuse_children(unit, command)) is not None:
        return refusal
    if (refusal := await _refuse_undos(unit, command)) is not None:
        return refusal
    view = unit.view
    execution = unit.flows.graph.execution(command.execution_id)
    if isinstance(execution, Refused):
        return execution
    reply = view.apply(execution, continue_as_new(execution, command, view.at), command)
    if isinstance(reply, Continued) and reply.chapter_index > 1:
        where = (execution.execution_id, execution.journal_index, reply.chapter_index - 2)
        for key in await unit.overlay.search_keys(Search(by_key(JOURNAL), (where,))):
            view.rows.drop_unseen(JOURNAL, key)
    return reply


async def refuse_children(unit: Unit, command: Continue) -> Refused | None:
    """Whether children of the owner keep it from beginning another chapter."""
    view, graph = unit.view, unit.flows.graph
    execution = view.execution(command.execution_id)
    if execution is None or execution.flow_id is None:
        return None
    if refuse_unless_owner(execution, command.execution_id, command.fence, view.at.now):
        return None  # the end itself is refused, or was answered before
    row = await graph.load_member(execution.flow_id, execution.execution_id)
    if row is None or not row.open_children:
        return None
    return children_left(execution, row.open_children, await _open_children(unit, execution))


async def _refuse_undos(unit: Unit, command: Continue) -> Refused | None:
    """Whether registered undos of the owner keep it from beginning another chapter."""
    execution = unit.view.execution(command.execution_id)
    if execution is None or execution.undos is None or not execution.undos.positions:
        return None
    if refuse_unless_owner(execution, command.execution_id, command.fence, unit.view.at.now):
        return None
    positions = execution.undos.positions
    rows = await unit.tied.successors.entries(execution, positions[:NAMED_UNDOS])
    return undos_left(execution, len(positions), [row.key for row in rows])


async def _open_children(unit: Unit, parent: Execution) -> list[str]:
    """Some of the children that have not ended."""
    ids = await unit.flows.graph.children_of(parent.execution_id)
    found: list[str] = []
    for start in range(0, len(ids), _CHILDREN_AT_ONCE):
        page = await unit.tx.get(ids[start : start + _CHILDREN_AT_ONCE])
        found += [
            key
            for key, each in sorted(page.items())
            if isinstance(each, Execution) and not each.is_terminal
        ]
        if len(found) >= NAMED_CHILDREN:
            break
    return found[:NAMED_CHILDREN]


@handles(Fork)
async def fork(unit: Unit, command: Fork) -> Forked | Refused:
    """The new execution, its journal, and a note about the one it comes from."""
    view, source = unit.view, unit.view.execution(command.execution_id)
    if source is None:
        return not_found(command.execution_id)
    created = view.decide(command.create)
    if isinstance(created, Refused):
        return created
    new = view.execution(command.create.execution_id)
    if new is None:
        return not_found(command.create.execution_id)
    if new.forked_from is None:  # else an earlier try has committed
        view.put(new, replace(new, forked_from=source.execution_id))
        view.rows.add(JOURNAL, command.entries)
        event = operator_event(
            source,
            OperatorEventType.FORKED,
            view.at.now,
            fork=new.execution_id,
            before=command.before,
        )
        view.note_event(replace(event, actor=command.actor) if command.actor else event)
    return Forked(new.execution_id, source.execution_id, len(command.entries))
