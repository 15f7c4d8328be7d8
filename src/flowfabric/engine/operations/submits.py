"""Submits that are recorded in the journal of the handler that makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.new_entries import check_answers, checkpoint_command
from flowfabric.errors import InvalidInput
from flowfabric.kernel.journal.submit import Start, SubmitRecorded
from flowfabric.model.checks import check_list
from flowfabric.model.journal import EntryKind
from flowfabric.model.submitted import SubmitResult


def recorded_submit(
    machine: Machine, handle: Any, entries: Any, starts: Sequence[Start]
) -> SubmitRecorded | None:
    """The command of an owner; None where nobody owns what submits."""
    several = check_list(entries, field="entries")
    if handle is None:
        if several:
            detail = "handle: entries need that of the execution whose journal they are for"
            raise InvalidInput(detail, field="handle")
        return None
    owner = machine.check_handle(handle)
    if not several:
        detail = "entries: with a handle, one of kind submit tells of what is submitted"
        raise InvalidInput(detail, field="entries")
    checkpoint = checkpoint_command(owner, several, None, machine.config)
    check_answers(checkpoint, EntryKind.SUBMIT, len(starts), "submits")
    return SubmitRecorded(execution_id=owner.execution_id, starts=tuple(starts), entries=checkpoint)


async def submit_recorded(machine: Machine, command: SubmitRecorded) -> list[SubmitResult]:
    """One start shares a commit with others; several are all recorded, or none of them."""
    if len(command.starts) == 1:
        return await machine.execute(command)
    (answers,) = await machine.execute_together([command])
    return answers
