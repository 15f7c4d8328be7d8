"""The roll-up: a part of the background work that counts the logs into minute statistics.

One transaction holds the row that says how far the logs are counted, counts what is behind, and
moves it: an entry is counted with the place that is behind it, or not at all. So any number of
engines may do it, and any of them may die. Statistics belong to no tenant: an engine whose loop is
restricted to some counts for all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from flowfabric import limits
from flowfabric.engine.machine import Machine
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.errors import Corruption
from flowfabric.kernel import failures as alike
from flowfabric.kernel.statistics import (
    COMPLETION_COLUMNS,
    LEASE_COLUMNS,
    MinuteKey,
    Tally,
    advanced,
    spend_row,
    spent_since,
)
from flowfabric.model.checks import check_integer
from flowfabric.model.event import CompletionEvent, LeaseEvent
from flowfabric.model.failure import FailureEntry
from flowfabric.model.record import replace
from flowfabric.model.statistic import BUCKETS_MS, MINUTE_MS, RollUpRow, SeenUsage
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.logs import (
    AFTER_ALL,
    BEFORE_ALL,
    FAILURES,
    LOG_OF,
    WORK_COUNTS,
    Log,
    LogQuery,
    LogTally,
    Position,
)
from flowfabric.stores.tables import (
    FAILURE_GROUPS,
    FAILURE_HOURS,
    LOG_MARKS,
    MINUTES,
    ROLL_UP,
    SEEN_USAGE,
    SPEND_MINUTES,
    USAGE,
)

NAME: Final = "minutes"
_LEASES: Final = LOG_OF[LeaseEvent]
_ENDS: Final = LOG_OF[CompletionEvent]
_Count = Callable[[Position, Position], Awaitable[int]]


class _Stretch(NamedTuple):
    """What was read of the logs."""

    tally: Tally
    failures: list[FailureEntry]
    places: dict[str, Position]
    entries: int
    is_all: bool  # up to the end of each log


async def roll_up(machine: Machine, limit: int, every_ms: int) -> int:
    """Count a stretch of the logs; returns how many entries it had."""
    check_integer(limit, field="limit", least=1, most=limits.CREATE_MAX)
    try:
        if every_ms and await machine.read(lambda reader: _was_done(reader, every_ms)):
            return 0
        return await machine.transact(lambda tx: _count(tx, limit))
    except Corruption as error:
        text = "statistics cannot go on, all else does; `ff doctor` names the row: %s"
        machine.complaints.tell(text, error, error=error)
        return 0


async def _was_done(reader: Reader, every_ms: int) -> bool:
    await reader.catalog()  # with the clock
    row = (await reader.peek_rows(ROLL_UP, [(NAME,)])).get((NAME,))
    return row is not None and row.counted_at > reader.now - every_ms


async def _count(tx: Transaction, limit: int) -> int:
    await tx.catalog()  # with the clock, before the number of this transaction is drawn
    now, rows = tx.now, Rows()
    found = await tx.rows(ROLL_UP, [(NAME,)])
    rows.take(ROLL_UP, found)
    row = found.get((NAME,)) or RollUpRow(NAME, {}, 0, 0)
    front = await tx.log_front()
    stretch = await _read(tx, row.places, limit)
    await _put_minutes(tx, rows, stretch.tally)
    if stretch.failures:
        await _put_failures(tx, rows, stretch.failures)
    after = await _put_spending(tx, rows, row.usage_after)
    is_idle = not stretch.entries and rows.pending(SPEND_MINUTES) is None
    if is_idle and after == row.usage_after and now - row.counted_at < limits.STATISTIC_IDLE_MS:
        return 0
    moved = advanced(row, stretch.places, now=now, front=front, is_all=stretch.is_all)
    lost_until = await _lost(tx, row)
    rows.put(ROLL_UP, replace(moved, usage_after=after, lost_until=lost_until))
    await save_rows(tx, rows)
    return stretch.entries


async def _read(tx: Transaction, places: Mapping[str, Position], limit: int) -> _Stretch:
    """The entries behind these places, of each log at most so many."""
    ends, tally = await tx.log_ends(), Tally()
    failures: list[FailureEntry] = []
    counts: tuple[tuple[Log[Any], _Count], ...] = (
        (WORK_COUNTS, partial(_add_counts, tx, tally)),
        (_LEASES, partial(_add_alike, tx, _LEASES, LEASE_COLUMNS, tally.add_leases)),
        (_ENDS, partial(_add_alike, tx, _ENDS, COMPLETION_COLUMNS, tally.add_completions)),
        (FAILURES, partial(_add_failures, tx, failures)),
    )
    reached: dict[str, Position] = {}
    entries, is_all = 0, True
    for log, count in counts:
        after = places.get(log.name, BEFORE_ALL)
        end = max(after, ends[log])
        until = reached[log.name] = await tx.log_place(log, after, end, limit)
        entries += await count(after, until)
        is_all = is_all and until == end
    return _Stretch(tally, failures, reached, entries, is_all)


async def _add_counts(tx: Transaction, tally: Tally, after: Position, until: Position) -> int:
    page = await tx.read_log(WORK_COUNTS, LogQuery(after=after, until=until, limit=AFTER_ALL))
    tally.add_counts([each for _, each in page])
    return len(page)


async def _add_failures(
    tx: Transaction, found: list[FailureEntry], after: Position, until: Position
) -> int:
    if after == until:
        return 0
    page = await tx.read_log(FAILURES, LogQuery(after=after, until=until, limit=AFTER_ALL))
    found += [each for _, each in page if alike.is_timely(each)]
    return len(page)


async def _add_alike(
    tx: Transaction,
    log: Log[Any],
    columns: tuple[str, ...],
    add: Callable[..., None],
    after: Position,
    until: Position,
) -> int:
    """The store adds up what is alike: thousands of events are a few lines."""
    if after == until:
        return 0
    wanted = LogTally(
        after=after,
        until=until,
        by=columns,
        step_ms=MINUTE_MS,
        duration="took_ms",
        bounds=BUCKETS_MS,
    )
    found = await tx.count_log(log, wanted)
    for each in found:
        add(*each)
    return sum(each.entries for each in found)


async def _lost(tx: Transaction, row: RollUpRow) -> int | None:
    """Until when events were trimmed before they were counted, if ever."""
    marks = await tx.peek_rows(LOG_MARKS, [(name,) for name in sorted(row.places)])
    lost = [mark.trimmed_at for mark in marks.values() if row.places[mark.log] < mark.trimmed_id]
    return max([*lost, row.lost_until or 0]) or None


async def _put_minutes(tx: Transaction, rows: Rows, tally: Tally) -> None:
    """A row that cannot be read stays as it is, for `ff doctor` to name; the others go on."""
    keys: list[MinuteKey] = tally.keys
    stored, unreadable = await readable(tx.rows, MINUTES, keys)
    rows.take(MINUTES, stored)
    for key in keys:
        if key not in unreadable:
            rows.put(MINUTES, tally.row(key, stored.get(key)))


async def _put_failures(tx: Transaction, rows: Rows, entries: list[FailureEntry]) -> None:
    """The groups and hours that some failures belong to."""
    groups, hours = alike.by_group(entries), alike.by_hour(entries)
    known, spoiled = await readable(tx.rows, FAILURE_GROUPS, list(groups))
    rows.take(FAILURE_GROUPS, known)
    for group, several in groups.items():
        if group not in spoiled:
            rows.put(FAILURE_GROUPS, alike.grown(known.get(group), several))
    stored, unreadable = await readable(tx.rows, FAILURE_HOURS, list(hours))
    rows.take(FAILURE_HOURS, stored)
    for hour, several in hours.items():
        if hour not in unreadable:
            rows.put(FAILURE_HOURS, alike.hour_row(stored.get(hour), hour, several))


async def _put_spending(
    tx: Transaction, rows: Rows, after: tuple[str, str] | None
) -> tuple[str, str] | None:
    """What some budgets have spent since they were last looked at; returns the last of them, or
    None behind the last of all."""
    most = limits.STATISTIC_BUDGETS
    search = Search(by_key(USAGE), after=after, limit=most, skips_corrupt=True)
    page = await tx.search(search)
    keys = [USAGE.key_of(each) for each in page]
    seen, unreadable = await readable(tx.rows, SEEN_USAGE, keys)
    rows.take(SEEN_USAGE, seen)
    amounts = {
        key: amount
        for key, usage in zip(keys, page, strict=True)
        if key not in unreadable and (amount := spent_since(usage, seen.get(key)))
    }
    minute = tx.now - tx.now % MINUTE_MS
    stored, unreadable = await readable(tx.rows, SPEND_MINUTES, [(minute, *key) for key in amounts])
    rows.take(SPEND_MINUTES, stored)
    for key, usage in zip(keys, page, strict=True):
        place = (minute, *key)
        if key in amounts and place not in unreadable:
            rows.put(SPEND_MINUTES, spend_row(stored.get(place), usage, amounts[key], tx.now))
            rows.put(SEEN_USAGE, SeenUsage(usage.budget_id, usage.dimension, usage.total))
    return (keys[-1][0], keys[-1][1]) if len(page) == most else None
