"""Appending to streams, reading them, and waiting for what comes."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.api import streams as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.frames import check_frames
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.stream_reads import (
    Window,
    before,
    execution_page,
    found_execution,
    stream_page,
)
from flowfabric.engine.operations.tailing import check_attempt, check_wait_s, tail
from flowfabric.engine.tails import Reached, Subject
from flowfabric.kernel.stream.append import AppendFrames
from flowfabric.model.checks import check_integer
from flowfabric.model.limit_checks import check_word
from flowfabric.model.stream import (
    LAST,
    Place,
    StreamPage,
    Summary,
    SummaryRow,
    Visibility,
    bound_from,
    frame_id_from,
    place_from,
)
from flowfabric.stores.base import Reader
from flowfabric.stores.tables import STREAMS, SUMMARIES

# --- appending -----------------------------------------------------------------------------------


@commands(api.AppendFrame)
def append_frame(machine: Machine, request: api.AppendFrame) -> AppendFrames:
    """One."""
    return _append(machine, request.handle, (request.frame,))


@commands(api.AppendFrames)
def append_frames(machine: Machine, request: api.AppendFrames) -> AppendFrames:
    """Several."""
    return _append(machine, request.handle, request.frames)


def _append(machine: Machine, handle: Any, frames: Any) -> AppendFrames:
    checked = machine.check_handle(handle)
    return AppendFrames(
        execution_id=checked.execution_id,
        fence=checked.fence,
        attempt_index=checked.attempt_index,
        frames=check_frames(frames, least=1),
    )


# --- reading -------------------------------------------------------------------------------------


@answers(api.ReadStream)
async def read_stream(machine: Machine, request: api.ReadStream) -> StreamPage:
    """At once."""
    first = bound_from(request.from_cursor, field="from_cursor")
    window = Window(
        before(first), bound_from(request.to_cursor, field="to_cursor"), _count(request.count_limit)
    )
    key = machine.check_id(request.execution_id), check_attempt(request.attempt_index)
    sight = _sight(request.visibility)
    return await machine.read(lambda reader: stream_page(reader, key, window, sight))


@answers(api.TailStream)
async def tail_stream(machine: Machine, request: api.TailStream) -> StreamPage:
    """At once where there is something to tell, else when it comes."""
    key = machine.check_id(request.execution_id), check_attempt(request.attempt_index)
    count, sight = _count(request.count_limit), _sight(request.visibility)
    after, wait_s = frame_id_from(request.after, field="after"), check_wait_s(request.wait_ms)

    async def read(place: Reached) -> tuple[StreamPage, Place]:
        window = Window(Place(*place).frame_id, LAST, count)
        page = await machine.read(lambda reader: stream_page(reader, key, window, sight))
        return page, Place(key[1], frame_id_from(page.next_cursor, field="after"))

    subject = Subject(key[0], False, STREAMS, sight)
    return await tail(machine, subject, Place(key[1], after), wait_s, read)


@answers(api.ReadExecutionStream)
async def read_execution_stream(machine: Machine, request: api.ReadExecutionStream) -> StreamPage:
    """The same over all attempts."""
    checked = machine.check_id(request.execution_id)
    count, sight = _count(request.limit, field="limit"), _sight(request.visibility)
    after, wait_s = place_from(request.after), check_wait_s(request.wait_ms)

    async def read(place: Reached) -> tuple[StreamPage, Place]:
        page = await machine.read(
            lambda reader: execution_page(reader, checked, Place(*place), count, sight)
        )
        return page, place_from(page.next_cursor)

    return await tail(machine, Subject(checked, True, STREAMS, sight), after, wait_s, read)


@answers(api.ReadSummary)
async def read_summary(machine: Machine, request: api.ReadSummary) -> Summary | None:
    """By its key."""
    checked, wanted = machine.check_id(request.execution_id), request.attempt_index
    if wanted is not None:
        wanted = check_attempt(wanted)

    async def work(reader: Reader) -> SummaryRow | None:
        execution = await found_execution(reader, checked)
        index = (execution.attempt_index or 0) if wanted is None else wanted
        key = (checked, index)
        return (await reader.peek_rows(SUMMARIES, [key])).get(key)

    row = await machine.read(work)
    if row is None:
        return None
    return Summary(
        row.document, row.version, row.patch_kind, row.first_applied_at, row.last_updated_at
    )


# --- checks --------------------------------------------------------------------------------------


def _count(value: object, field: str = "count_limit") -> int:
    return check_integer(value, field=field, least=1, most=limits.READ_FRAMES_MAX)


def _sight(value: object) -> Visibility:
    return check_word(value, Visibility, field="visibility")
