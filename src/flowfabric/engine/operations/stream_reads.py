"""Pages of streams, each consistent though it takes several reads.

How far the attempt got is read first, then the stream's last id, then frames up to that id. Every
frame up to it was committed with it or before, and an attempt that was over can have written none
since: a page skips nothing that a later one would have to bring.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from flowfabric import limits
from flowfabric.errors import Corruption, NotFound
from flowfabric.kernel.stream.closing import Closed, closed_by, closed_with, may_grow
from flowfabric.model.execution import Execution
from flowfabric.model.stream import (
    BEGINNING,
    LAST,
    Frame,
    FrameId,
    FrameRow,
    Place,
    StreamPage,
    StreamRow,
    Visibility,
)
from flowfabric.model.words import StreamMode
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import FRAMES, STREAMS

_CHUNK: Final = 256  # frames of a mode that one search reads
_STREAMS_MAX: Final = 100  # attempts that one page looks at


class Window(NamedTuple):
    """The frames a page is about: after one place, up to another, so many."""

    after: FrameId
    until: FrameId
    limit: int


_SEEN: Final = {
    Visibility.ALL: tuple(StreamMode),
    Visibility.EXCLUDE_BEST_EFFORT: (StreamMode.DURABLE, StreamMode.SUMMARY),
}


def before(place: FrameId) -> FrameId:
    """The place after which this one comes first."""
    return FrameId(place.ms, place.seq - 1)


async def found_execution(reader: Reader, execution_id: str) -> Execution:
    """The execution, or the error that says why there is none to read."""
    found = (await reader.get((execution_id,))).get(execution_id)
    if found is None:
        raise NotFound(f"execution {execution_id}", entity="execution")
    if isinstance(found, Corrupt):
        raise Corruption(f"execution {execution_id}: {found.detail}")
    return found


# --- one attempt ---------------------------------------------------------------------------------


async def stream_page(
    reader: Reader, key: tuple[str, int], window: Window, sight: Visibility
) -> StreamPage:
    """A page of one attempt's stream."""
    execution = await found_execution(reader, key[0])
    closed = await closed_attempt(reader, execution, key[1])
    stream = (await reader.peek_rows(STREAMS, [key])).get(key)
    frames, reached = await _frames(reader, stream, window, sight)
    following = max(reached, window.after, BEGINNING)
    is_last = stream is None or reached >= min(stream.last, window.until)
    if closed is None or not is_last:
        return StreamPage(frames, str(following))
    return StreamPage(frames, str(following), closed.at, closed.reason)


async def closed_attempt(reader: Reader, execution: Execution, attempt_index: int) -> Closed | None:
    """The end of an attempt, and so of its stream and its log, if it has ended."""
    if may_grow(execution, attempt_index):
        return None
    for attempt in reversed(await reader.attempts(execution.execution_id)):
        if attempt.attempt_index == attempt_index:
            return closed_by(attempt)
    return closed_with(execution)


async def _frames(
    reader: Reader, stream: StreamRow | None, window: Window, sight: Visibility
) -> tuple[tuple[Frame, ...], FrameId]:
    """Frames of a window, and the place up to which there are no others."""
    if stream is None:
        return (), window.after
    until = min(stream.last, window.until)
    rows: list[FrameRow] = []
    modes = [mode for mode in _SEEN[sight] if stream.count_of(mode) > stream.trimmed_of(mode)]
    reached, size = window.after, 0
    while reached < until and len(rows) < window.limit and size < limits.READ_FRAME_BYTES:
        chunk = min(_CHUNK, window.limit - len(rows) + 1)
        found, reached = await _merged(reader, stream, modes, reached, until, chunk)
        live = await _unexpired(reader, found)
        size += sum(len(row.payload) for row in live)
        rows += live
    if len(rows) > window.limit:
        rows = rows[: window.limit]
        reached = rows[-1].frame_id
    return tuple(map(_shown, rows)), reached


async def _unexpired(reader: Reader, rows: list[FrameRow]) -> list[FrameRow]:
    """Frames that have not expired; the clock is asked for only where some may have."""
    if all(row.due_at is None for row in rows):
        return rows
    await reader.catalog()  # it tells the time
    return [row for row in rows if row.due_at is None or row.due_at > reader.now]


async def _merged(
    reader: Reader,
    stream: StreamRow,
    modes: list[StreamMode],
    after: FrameId,
    until: FrameId,
    chunk: int,
) -> tuple[list[FrameRow], FrameId]:
    """The next frames of several modes in order, and the place up to which none is missing."""
    rows: list[FrameRow] = []
    reached = until
    for mode in modes:
        key = (stream.execution_id, stream.attempt_index, mode.value)
        search = Search(by_key(FRAMES), (key,), after=after, limit=chunk)
        found = await reader.search(search)
        if len(found) == chunk:
            reached = min(reached, found[-1].frame_id)
        rows += found
    return sorted(
        (row for row in rows if row.frame_id <= reached), key=lambda row: row.frame_id
    ), reached


def _shown(row: FrameRow) -> Frame:
    return Frame(
        str(row.frame_id),
        row.attempt_index,
        row.mode,
        row.kind,
        row.frame_type,
        row.payload,
        row.encoding,
        row.source,
        row.appended_at,
        row.correlation_id,
        row.summary_version,
        row.due_at,
    )


# --- all attempts --------------------------------------------------------------------------------


async def execution_page(
    reader: Reader, execution_id: str, after: Place, limit: int, sight: Visibility
) -> StreamPage:
    """A page over all attempts. A stream of a later attempt was begun when the ones before it had
    ended, so nothing comes any more in front of it."""
    execution = await found_execution(reader, execution_id)
    closed = closed_with(execution)
    search = Search(
        by_key(STREAMS),
        ((execution_id,),),
        after=(after.attempt_index - 1,),
        limit=_STREAMS_MAX,
    )
    streams = await reader.search(search)
    frames: list[Frame] = []
    place, is_last = after, len(streams) < _STREAMS_MAX
    for stream in streams:
        index = stream.attempt_index
        begin = after.frame_id if index == after.attempt_index else BEGINNING
        window = Window(begin, LAST, limit - len(frames))
        found, reached = await _frames(reader, stream, window, sight)
        frames += found
        place = Place(index, max(reached, BEGINNING))
        if reached < stream.last:
            is_last = False
            break
        if len(frames) >= limit:
            is_last = is_last and stream is streams[-1]
            break
    if closed is None or not is_last:
        return StreamPage(tuple(frames), str(place))
    return StreamPage(tuple(frames), str(place), closed.at, closed.reason)
