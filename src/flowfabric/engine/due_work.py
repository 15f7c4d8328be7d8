"""Background work of an engine: it moves due executions, and deletes expired rows."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.engine.bulk_work import move_operation
from flowfabric.engine.machine import Machine
from flowfabric.engine.own_work import purge_only
from flowfabric.engine.unit.commands.due import WakeDue
from flowfabric.engine.unit.due import Due, Thing, alone, named, rows_due
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.errors import InvalidSchedule, RetryExhausted
from flowfabric.kernel.place.workers import SweepWorkers
from flowfabric.model.checks import check_integer
from flowfabric.model.feed import LogMark
from flowfabric.model.record import Record
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.indexes import DUE, Search
from flowfabric.stores.logs import LOGS
from flowfabric.stores.tables import LOG_MARKS, OPERATIONS, SCHEDULES, Key
from flowfabric.trouble import is_passing


class DueLook(Record, frozen=True):
    """The store's clock and the earliest due time; None when nothing will be due."""

    now: int
    due_at: int | None


async def look(machine: Machine, reader: Reader) -> DueLook:
    """The store's clock, and the earliest due time of what this engine's loop moves."""
    own = machine.own_work
    due_at = await (own.next_due(reader) if own.is_restricted else reader.next_due())
    return DueLook(reader.now, due_at)


async def clock_of(reader: Reader) -> int:
    """The store's clock."""
    await reader.catalog()
    return reader.now


# --- due work -------------------------------------------------------------------------------------


async def move_due(machine: Machine, limit: int = limits.DUE_BATCH) -> int:
    """Move everything that is due, in one transaction; returns how many were moved."""
    check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)
    moved = await _try_again(machine)
    command = WakeDue(limit=limit, aside=machine.aside.things)
    if machine.own_work.is_restricted:
        command = WakeDue(limit=limit, named=await machine.read(lambda r: _own(machine, r, limit)))
    try:
        return moved + await _move(machine, command)
    except Exception as error:
        if _is_outage(error):
            raise
        return moved + await _move_each(machine, limit)


async def _own(machine: Machine, reader: Reader, limit: int) -> Due:
    return await machine.own_work.due(reader, limit, machine.aside.things)


async def _move(machine: Machine, command: WakeDue) -> int:
    """Move what is due together; then each bulk operation that is due."""
    (moved,) = await machine.execute_together([command])
    if machine.plans.left:
        await _leave_to_others(machine)
    count = moved.count
    for key in moved.operations:
        count += await _move_operation(machine, key)
    return count


async def _move_operation(machine: Machine, key: Key) -> int:
    """One that cannot be moved is set aside: it must not delay the others."""
    thing = (OPERATIONS.name, key)
    try:
        moved = await move_operation(machine, key[0])
    except Exception as error:
        if _is_outage(error):
            raise
        _set_aside(machine, thing, error, await machine.read(clock_of))
        return 0
    machine.aside.forget(thing)
    return moved


async def _leave_to_others(machine: Machine) -> None:
    """Schedules that this process does not understand are for others. It is said only when no other
    process has started them for a while."""
    left, machine.plans.left = machine.plans.left, {}
    now = await machine.read(clock_of)
    overdue: dict[str, str] = {}
    for key, (problem, next_at) in left.items():
        machine.aside.put((SCHEDULES.name, key), InvalidSchedule(problem), now)
        if now - next_at > limits.LATE_TICK_MS:
            overdue["/".join(key)] = problem
    machine.unread_schedules.tell(overdue)


async def _move_each(machine: Machine, limit: int) -> int:
    """A due row cannot be moved: try each in a transaction of its own."""
    aside = machine.aside.things

    async def find(tx: Transaction) -> tuple[int, list[Thing]]:
        await tx.catalog()
        if machine.own_work.is_restricted:
            return tx.now, list((await _own(machine, tx, limit)).things())
        found = await tx.search_keys(Search(DUE, until=tx.now, limit=limit + len(aside)))
        rows = await rows_due(tx.search_keys, tx.now, limit, aside)
        due = Due([key[0] for key in found], rows.keys)
        return tx.now, [thing for thing in due.things() if thing not in aside]

    now, things = await machine.transact(find)
    return sum([await _move_alone(machine, thing, now) for thing in things])


async def _try_again(machine: Machine) -> int:
    """Retry rows that were set aside long enough ago."""
    if not machine.aside.things:
        return 0
    now = await machine.read(clock_of)
    return sum([await _move_alone(machine, thing, now) for thing in machine.aside.due(now)])


async def _move_alone(machine: Machine, thing: Thing, now: int) -> int:
    """Move one due row, or set it aside: a bad record is no reason to stop."""
    where, key = thing
    if where == OPERATIONS.name:
        return await _move_operation(machine, key)
    try:
        moved = await _move(machine, WakeDue(limit=1, named=alone(thing)))
    except Exception as error:
        if _is_outage(error):
            raise
        _set_aside(machine, thing, error, now)
        return 0
    if machine.aside.again_at(thing) <= now:
        machine.aside.forget(thing)
    return moved


def _set_aside(machine: Machine, thing: Thing, error: Exception, now: int) -> None:
    noted = machine.aside.put(thing, error, now)
    text = "%s cannot be moved and is set aside; all else goes on, `ff doctor` names it: %s"
    machine.complaints.tell(text, named(noted.thing), error, error=error)


def _is_outage(error: Exception) -> bool:
    """Whether nothing can be moved just now. A conflict that no retry resolves is no outage: a row
    that blocks one record alone must not delay all the others."""
    return is_passing(error) and not isinstance(error, RetryExhausted)


# --- expired rows ---------------------------------------------------------------------------------


async def trim_retention(machine: Machine, limit: int) -> int:
    """Delete executions past their retention."""
    own = machine.own_work
    if own.is_restricted:
        ids = await machine.read(lambda reader: own.past_retention(reader, limit))
        return await machine.transact(lambda tx: purge_only(tx, ids)) if ids else 0

    async def work(tx: Transaction) -> int:
        await tx.catalog()
        return await tx.purge(tx.now, limit)

    return await machine.transact(work)


async def sweep(machine: Machine, limit: int) -> int:
    """Delete expired idempotency keys and old events."""
    check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)

    async def work(tx: Transaction) -> int:
        await tx.catalog()
        swept = await tx.sweep(keys_until=tx.now, limit=limit)
        until = tx.now - machine.config.event_retention_ms
        return swept + await trim_logs(tx, until, limit)

    return await machine.transact(work)


async def trim_logs(tx: Transaction, until: int, limit: int) -> int:
    """Delete old events, and mark how far: a reader that is behind learns that it lost some."""
    gone = {log: found for log in LOGS if (found := await tx.trim(log, until, limit))}
    if not gone:
        return 0
    rows = Rows()
    rows.take(LOG_MARKS, await tx.rows(LOG_MARKS, [(log.name,) for log in gone]))
    for log, positions in gone.items():
        rows.put(LOG_MARKS, LogMark(log.name, max(positions), until))
    await save_rows(tx, rows)
    return sum(map(len, gone.values()))


async def sweep_workers(machine: Machine, limit: int) -> int:
    """Remove workers without a recent heartbeat from the registry."""
    check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)
    return await machine.execute(SweepWorkers(limit=limit))
