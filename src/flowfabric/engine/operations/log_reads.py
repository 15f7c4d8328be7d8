"""Pages of logs, each consistent though it takes several reads.

As with [streams](stream_reads.py): first whether more may come, then how many lines there are, then
lines up to that number, which were all committed with it or before.
"""

from __future__ import annotations

from typing import Final

from flowfabric.engine.operations.stream_reads import closed_attempt, found_execution
from flowfabric.kernel.stream.closing import Closed, closed_with
from flowfabric.model.log_lines import LineChunk, LinePlace, LogLine, LogPage, RunLogRow
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import LINES, RUN_LOGS

_CHUNKS: Final = 16  # that one search reads
_LOGS_MAX: Final = 100  # attempts that one page looks at


async def attempt_page(reader: Reader, execution_id: str, after: LinePlace, limit: int) -> LogPage:
    """A page of one attempt's log."""
    execution = await found_execution(reader, execution_id)
    closed = await closed_attempt(reader, execution, after.attempt_index)
    key = (execution_id, after.attempt_index)
    log = (await reader.peek_rows(RUN_LOGS, [key])).get(key)
    if log is None:
        return _page((), after, closed, dropped_count=0)
    lines = await _lines(reader, log, after.number, limit)
    place = _last_of(lines, after)
    is_last = place.number >= log.line_count
    return _page(lines, place, closed if is_last else None, dropped_count=log.dropped_count)


async def execution_page(
    reader: Reader, execution_id: str, after: LinePlace, limit: int
) -> LogPage:
    """A page over all attempts. The log of a later attempt was begun when the ones before it had
    ended, so nothing comes any more in front of it."""
    execution = await found_execution(reader, execution_id)
    closed = closed_with(execution)
    search = Search(
        by_key(RUN_LOGS), ((execution_id,),), after=(after.attempt_index - 1,), limit=_LOGS_MAX
    )
    logs = await reader.search(search)
    lines: list[LogLine] = []
    place, is_last = after, len(logs) < _LOGS_MAX
    for log in logs:
        begin = after.number if log.attempt_index == after.attempt_index else 0
        found = await _lines(reader, log, begin, limit - len(lines))
        lines += found
        place = _last_of(found, LinePlace(log.attempt_index, begin))
        if place.number < log.line_count or len(lines) >= limit:
            is_last = is_last and log is logs[-1] and place.number >= log.line_count
            break
    dropped_count = sum(log.dropped_count for log in logs)
    return _page(tuple(lines), place, closed if is_last else None, dropped_count=dropped_count)


def _page(
    lines: tuple[LogLine, ...], place: LinePlace, closed: Closed | None, *, dropped_count: int
) -> LogPage:
    if closed is None:
        return LogPage(lines, str(place), dropped_count=dropped_count)
    return LogPage(lines, str(place), closed.at, closed.reason, dropped_count)


def _last_of(lines: tuple[LogLine, ...], otherwise: LinePlace) -> LinePlace:
    return LinePlace(lines[-1].attempt_index, lines[-1].number) if lines else otherwise


async def _lines(reader: Reader, log: RunLogRow, after: int, limit: int) -> tuple[LogLine, ...]:
    """The lines after a number, as many as are wanted."""
    key = (log.execution_id, log.attempt_index)
    lines: list[LogLine] = []
    reached = after
    while reached < log.line_count and len(lines) < limit:
        search = Search(by_key(LINES), (key,), after=(reached,), limit=_CHUNKS)
        found = await reader.search(search)
        if not found:  # the execution was purged meanwhile
            break
        for chunk in found:
            lines += [each for each in _shown(chunk) if after < each.number <= log.line_count]
        reached = found[-1].last_line
    return tuple(lines[:limit])


def _shown(chunk: LineChunk) -> list[LogLine]:
    first = chunk.last_line - len(chunk.lines) + 1
    return [
        LogLine(chunk.attempt_index, number, each.at, each.level, each.logger, each.message)
        for number, each in enumerate(chunk.lines, first)
    ]
