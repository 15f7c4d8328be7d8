"""Bulk operations at a terminal: begun for filters that select many, watched to their end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, not_found
from flowfabric.cli.show.times import count
from flowfabric.model.bulk import BulkCounted, BulkOperation, BulkState

if TYPE_CHECKING:
    from flowfabric.cli.many import Verb

OPERATION_ABOVE: Final = 1_000  # more executions than these are changed by an operation
_LOOK_EVERY_S: Final = 0.2


async def change_by_operation(call: Call, verb: Verb, listing: dict[str, Any]) -> Exit:
    """Begin an operation, and wait for it unless that is not wanted."""
    is_waiting = not call.arguments.no_wait
    async with call.engine(works=is_waiting) as engine:
        begun = await engine.start_operation(**listing, **verb.operation)
        if isinstance(begun, BulkCounted):
            raise TypeError("an operation was asked for, and not a count")
        call.terminal.note(f"operation {begun.operation_id} changes {begun.matched}")
        if is_waiting:
            begun = await watched(call, engine, begun)
    return told(call, begun, verb.done, refused=verb.refused)


async def watched(call: Call, engine: EngineBackend, begun: BulkOperation) -> BulkOperation:
    """The operation once it is over, with its progress on a terminal. Ctrl-C ends only the wait."""
    found = begun
    try:
        while not found.is_over:
            call.terminal.status(f"{found.handled} of {found.matched} …")
            await asyncio.sleep(_LOOK_EVERY_S)
            found = await described(engine, begun.operation_id)
    except asyncio.CancelledError:
        raise _interrupted(found) from None
    finally:
        call.terminal.end_status()
    return found


async def described(engine: EngineBackend, operation_id: str) -> BulkOperation:
    """An operation that must be there."""
    found = await engine.describe_operation(operation_id=operation_id)
    if found is None:
        raise not_found(f"no operation {operation_id}", advice="ff operations lists them")
    return found


def _interrupted(found: BulkOperation) -> CommandFailed:
    name = found.operation_id
    return CommandFailed(
        f"interrupted: {found.handled} of {found.matched} so far, and the operation goes on",
        advice=f"ff operations show {name} tells how far it is, ff operations stop {name} ends it",
        exit_code=Exit.INTERRUPTED,
        code="interrupted",
        fields={"operation_id": name, "matched": found.matched, "done": found.handled},
    )


def told(call: Call, found: BulkOperation, done: str, *, refused: Exit = Exit.OK) -> Exit:
    """Say what it did."""
    number = found.done + found.unchanged
    if call.terminal.as_json:
        call.terminal.document(
            {
                "matched": found.matched,
                "done": number,
                "refused": dict(found.refused),
                "operation_id": found.operation_id,
                "state": found.state.value,
            }
        )
    elif not found.is_over:
        call.terminal.line(found.operation_id)
    else:
        call.terminal.line(f"{count(number, 'execution')} {done}")
    if found.state is BulkState.STOPPED:
        call.terminal.complain(f"stopped: {found.handled} of {found.matched}")
        return Exit.FAILED
    if not found.refused:
        return Exit.OK
    codes = ", ".join(f"{n} {code}" for code, n in found.refused.items())
    total = sum(found.refused.values())
    call.terminal.complain(f"{total} refused ({codes}) — their state does not allow it")
    return refused
