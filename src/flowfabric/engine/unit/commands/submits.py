"""Submits by handlers: what they create, and the entries of the journal that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.handlers import HANDLERS, handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.kernel.journal.checkpoint import Checkpoint, with_answers
from flowfabric.kernel.journal.submit import (
    Start,
    SubmitRecorded,
    refused_start,
    submitted_before,
)
from flowfabric.model.journal import EntryKind, EntryRow
from flowfabric.model.record import replace
from flowfabric.model.submitted import SubmitResult, kept_answers
from flowfabric.stores.tables import JOURNAL


@handles(SubmitRecorded)
async def submit(unit: Unit, command: SubmitRecorded) -> list[SubmitResult] | Refused:
    """By the owner. What it recorded before, by the same call sent before, is answered again."""
    entries = command.entries
    decision = await journal.decided(unit, entries)
    if isinstance(decision.reply, Refused):
        return decision.reply
    if (before := submitted_before(_rows(unit, entries), len(command.starts))) is not None:
        return before
    if (refusal := journal.refused_settlement(unit, entries)) is not None:
        return refusal
    answers = await _started(unit, command.starts)
    if isinstance(answers, Refused):
        return await _recorded(unit, command) or answers
    filled = with_answers(entries, EntryKind.SUBMIT, answers, kept_answers)
    values = {each.position: each.value for each in filled.recorded}
    # Decided while the owner had its lease: what it submits may replace it.
    saves = tuple(
        replace(each, value=values[each.position]) if isinstance(each, EntryRow) else each
        for each in decision.saves
    )
    recorded = journal.taken(unit, filled, replace(decision, saves=saves))
    return recorded if isinstance(recorded, Refused) else answers


async def _recorded(unit: Unit, command: SubmitRecorded) -> list[SubmitResult] | Refused | None:
    """What the same call, sent before, was answered: what it made may be why it is refused now.
    Several starts are looked for before they are made."""
    if len(command.starts) > 1:
        return None
    await journal.look_for(unit, command.entries)
    decision = await journal.decided(unit, command.entries)
    if isinstance(decision.reply, Refused):
        return decision.reply
    return submitted_before(_rows(unit, command.entries), 1)


def _rows(unit: Unit, command: Checkpoint) -> list[EntryRow | None]:
    """What stands where the entries about submits are to be."""
    owner = unit.view.execution(command.execution_id)
    if owner is None:
        return []
    journal_key = (owner.execution_id, owner.journal_index, owner.chapter_index)
    return [
        unit.view.rows.get(JOURNAL, (*journal_key, entry.position))
        for entry in command.entries
        if entry.kind is EntryKind.SUBMIT
    ]


async def _started(unit: Unit, starts: Sequence[Start]) -> list[SubmitResult] | Refused:
    """Each after what follows from the one before it, as in a batch."""
    answers: list[SubmitResult] = []
    for at, start in enumerate(starts):
        if unit.owes:
            await unit.follow_up()
        handler = HANDLERS.get(type(start))
        if handler is None:
            answer = unit.view.decide(cast("CreateExecution", start))
        else:
            answer = await handler(unit, start)
        if isinstance(answer, Refused):
            return refused_start(answer, at, len(starts))
        answers.append(answer)
    return answers
