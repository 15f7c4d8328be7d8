"""Moves bulk operations on: a bounded piece of one in each transaction.

A piece is a batch like any other. It locks the operation, then those of the next executions that
no other transaction has locked, decides each by the rule of the call for it alone, and writes how
far it came. So whatever process dies, and whichever goes on, each execution is acted on once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flowfabric import limits
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import routes_of
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
from flowfabric.model.bulk import BulkFilter, BulkState, OperationRow
from flowfabric.model.dead import DeadRow
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.route import Catalog
from flowfabric.stores.base import Corrupt, ListFilter, Reader, Transaction
from flowfabric.stores.indexes import due_search, newest_first
from flowfabric.stores.tables import DEAD, OPERATIONS, Key
from flowfabric.trouble import is_passing

_STEP_OVER: Final = 0  # the size of a piece that acts on nothing: it passes one execution
_SIZES: Final = (limits.OPERATION_PIECE, 1, _STEP_OVER)


def listing_of(catalog: Catalog, wanted: BulkFilter, until: int) -> ListFilter | None:
    """The listing that finds the executions of an operation; None: there can be none. `until`: they
    were created before."""
    routes = routes_of(catalog, wanted.namespace, wanted.lane_id, wanted.execution_kind)
    if routes == ():
        return None
    before = wanted.created_before
    return ListFilter(
        routes=routes,
        states=tuple(each.value for each in wanted.states),
        tag=wanted.tag,
        created_after=wanted.created_after,
        created_before=until if before is None else min(before, until),
    )


def readable(rows: Sequence[Execution | Corrupt]) -> list[Execution]:
    """Those that can be decoded."""
    return [each for each in rows if isinstance(each, Execution)]


async def letters_of(
    reader: Reader, wanted: BulkFilter, execution_ids: Sequence[str]
) -> dict[Key, DeadRow]:
    """The dead letters of executions, where the filter asks how they stand."""
    if wanted.dead_letter is None or not execution_ids:
        return {}
    return await reader.peek_rows(DEAD, [(key,) for key in execution_ids])


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
    page: list[Execution | Corrupt] = []
    is_last, place = False, None
    if len(again) < room and len(row.put_off) < limits.OPERATION_PIECE:
        place = None if row.place_at is None else (row.place_at, row.place_id or "")
        listed = listing_of(catalog, row.filter, row.created_at + 1)
        asked = room - len(again)
        if listed is not None:
            page = await tx.list_executions(replace(listed, before=place), asked)
        is_last = len(page) < asked
    known = readable(page)
    while known and not is_last and isinstance(page[-1], Corrupt):
        page.pop()  # it is met again behind the last place that is known
    if known:
        place = newest_first(known[-1])
    is_last = is_last or (bool(page) and not known)  # nothing tells where to go on
    next_ones = [each.execution_id for each in known if is_meant(row.filter, each)]
    met = [*again, *next_ones]
    held = await tx.load_free(met) if met else {}
    away = set(met) - held.keys()
    there = await tx.get(sorted(away)) if away else {}
    locked = tuple(each for each in met if each in there)
    corrupt = sum(isinstance(each, Corrupt) for each in (*page, *held.values()))
    meant = [
        key
        for key in met
        if isinstance(each := held.get(key), Execution) and is_meant(row.filter, each)
    ]
    letters = await letters_of(tx, row.filter, meant)
    meant = [key for key in meant if is_letter(row.filter, letters.get((key,)))]
    commands = [command_for(row, key) for key in meant]
    return _Found(commands, corrupt, (*row.put_off[room:], *locked), place, is_last)


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
