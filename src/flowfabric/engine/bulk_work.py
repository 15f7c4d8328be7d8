"""Moves bulk operations on: a bounded piece of one in each transaction.

A piece is a batch like any other. It locks the operation, then those of the next executions that
no other transaction has locked, decides each by the rule of the call for it alone, and writes how
far it came. So whatever process dies, and whichever goes on, each execution is acted on once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flowfabric import limits
from flowfabric.engine.bulk_met import NOTHING_MET, letters_of, met_by
from flowfabric.engine.machine import Machine
from flowfabric.engine.unit import fold
from flowfabric.engine.unit.unit import Unit
from flowfabric.engine.unit.view import Effects
from flowfabric.errors import Corruption, RetryExhausted, StoreError
from flowfabric.kernel import bulk as rules
from flowfabric.kernel.bulk import (
    Piece,
    command_for,
    is_letter,
    is_meant,
    outcomes_of,
    room_for,
)
from flowfabric.kernel.command import ExecutionCommand
from flowfabric.model.bulk import BulkState, OperationRow
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Corrupt, Transaction
from flowfabric.stores.indexes import due_search
from flowfabric.stores.tables import OPERATIONS
from flowfabric.trouble import is_passing

_STEP_OVER: Final = 0  # the size of a piece that acts on nothing: it passes one execution
_SIZES: Final = (limits.OPERATION_PIECE, 1, _STEP_OVER)


async def move_operation(machine: Machine, operation_id: str) -> int:
    """Do the next piece of an operation, in a transaction of its own; how many executions it acted
    on, or 1 where it only went on. 0: another process is at it.

    A piece that fails is tried again with a single execution, and that one is stepped over if it
    fails alone.
    """
    failure: Exception | None = None
    for size in _SIZES:
        try:
            return await _move(machine, operation_id, size)
        except Exception as error:
            if is_passing(error) or isinstance(error, RetryExhausted):
                raise  # another try may succeed, so none is stepped over
            failure = error
    raise failure or StoreError("no piece was tried")


async def _move(machine: Machine, operation_id: str, size: int) -> int:
    async def work(tx: Transaction) -> tuple[int, Effects]:
        catalog = await tx.catalog()
        row = await _held(tx, operation_id)
        if row is None:
            return 0, Effects()
        if row.state is not BulkState.RUNNING:
            return 1, await _forget(machine, tx, row)
        found = await _find(tx, catalog, row, size)
        unit = await machine.open_unit(tx, found.commands if size else ())
        return await _act(unit, row, found, size)

    moved, effects = await machine.transact(work)
    machine.publish(effects)
    return moved


async def _held(tx: Transaction, operation_id: str) -> OperationRow | None:
    """The row if it is due, unless another process is at it."""
    of_it = (("operation_id", operation_id),)
    search = replace(due_search(OPERATIONS, tx.now, 1), only=of_it, is_held=True)
    found = await tx.search(search)
    return found[0] if found else None


async def _forget(machine: Machine, tx: Transaction, row: OperationRow) -> Effects:
    unit = await machine.open_unit(tx, ())
    key = OPERATIONS.key_of(row)
    unit.view.rows.take(OPERATIONS, {key: row})
    unit.view.rows.drop(OPERATIONS, [key])
    await tx.save(unit.view.take_changes())
    return unit.view.effects


class _Found(NamedTuple):
    """The executions that a piece meets."""

    commands: list[ExecutionCommand[object]]  # for those that it acts on
    corrupt: int
    locked: tuple[str, ...]  # elsewhere: they are met again
    place: tuple[int, str] | None
    is_last: bool


async def _find(tx: Transaction, catalog: Catalog, row: OperationRow, size: int) -> _Found:
    """Those that were locked before, then the next ones of the listing."""
    room = max(1, room_for(row, size))
    again = row.put_off[:room]
    met, asked = NOTHING_MET, room - len(again)
    if asked and len(row.put_off) < limits.OPERATION_PIECE:
        before = None if row.place_at is None else (row.place_at, row.place_id or "")
        met = await met_by(tx, catalog, row.filter, row.created_at, before, asked)
    next_ones = [each.execution_id for each in met.known if is_meant(row.filter, each)]
    names = [*again, *next_ones]
    held = await tx.load_free(names) if names else {}
    away = set(names) - held.keys()
    there = await tx.get(sorted(away)) if away else {}
    locked = tuple(each for each in names if each in there)
    corrupt = met.corrupt + sum(isinstance(each, Corrupt) for each in held.values())
    meant = [
        key
        for key in names
        if isinstance(each := held.get(key), Execution) and is_meant(row.filter, each)
    ]
    letters = await letters_of(tx, row.filter, meant)
    meant = [key for key in meant if is_letter(row.filter, letters.get((key,)))]
    commands = [command_for(row, key) for key in meant]
    return _Found(commands, corrupt, (*row.put_off[room:], *locked), met.place, met.is_last)


async def _act(unit: Unit, row: OperationRow, found: _Found, size: int) -> tuple[int, Effects]:
    view = unit.view
    view.operation_id = row.operation_id
    if size == _STEP_OVER:
        outcomes = {StoreError.code: len(found.commands)} if found.commands else {}
    else:
        before = {each.execution_id: view.execution(each.execution_id) for each in found.commands}
        replies = await fold.fold(unit, found.commands)
        pairs = zip(found.commands, replies, strict=True)
        outcomes = outcomes_of(
            (reply, view.execution(each.execution_id) is not before[each.execution_id])
            for each, reply in pairs
        )
    view.operation_id = ""
    if found.corrupt:
        outcomes[Corruption.code] = outcomes.get(Corruption.code, 0) + found.corrupt
    view.rows.take(OPERATIONS, {OPERATIONS.key_of(row): row})
    piece = Piece(outcomes, found.place, found.locked, found.is_last)
    decision = rules.advance(row, piece, view.at)
    moved = view.apply(None, decision)
    await unit.tx.save(view.take_changes())
    return max(1, moved if isinstance(moved, int) else 1), view.effects
