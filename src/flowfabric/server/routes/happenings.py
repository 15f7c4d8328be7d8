"""What happens: the feed of events, and what handlers show while they run."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.events import ReadEvents, SubscribeEvents
from flowfabric.api.streams import AppendFrames, ReadExecutionStream
from flowfabric.errors import InvalidInput
from flowfabric.model.record import replace
from flowfabric.server.exchange import Answer, Call, Streamed
from flowfabric.server.routes.asking import answered, ask, passed_by
from flowfabric.server.routes.forms import form_of
from flowfabric.server.routes.route import Reach, Repeat, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service
from flowfabric.server.streams.feeds import PAGE, put
from flowfabric.server.streams.frames import Frames
from flowfabric.server.streams.reader import Reader
from flowfabric.server.streams.sending import MEDIA, EventStream, asks_for_stream

_NO_CONTENT: Final = 204
_ID: Final = "/v1/executions/{execution_id}"


async def events(service: Service, call: Call) -> Answer | Streamed:
    """A page, or all that comes as a stream."""
    request: SubscribeEvents = await form_of(call.row).read(service, call)  # type: ignore[assignment]
    if not asks_for_stream(call):
        return answered(call, await ask(service, call, request))
    after = resumed_after(call) or request.after
    request = replace(request, after=after, wait_ms=0, limit=PAGE)
    reader = Reader(after)
    put(reader, await ask(service, call, request))
    passed: Any = (await passed_by(service, call, request)).request
    wanted = ReadEvents(kinds=passed.kinds, filter=passed.filter)
    return EventStream(service, call, reader, lambda one: service.feeds.follow(wanted, one))


async def frames(service: Service, call: Call) -> Answer | Streamed:
    """A page, or all that comes as a stream, until the execution has ended."""
    request: ReadExecutionStream = await form_of(call.row).read(service, call)  # type: ignore[assignment]
    if not asks_for_stream(call):
        return answered(call, await ask(service, call, request))
    last = resumed_after(call)
    request = replace(request, after=last or request.after, wait_ms=0, limit=PAGE)
    page = await ask(service, call, request)
    if last is not None and page.closed_at is not None and not page.frames:
        return Answer(status=_NO_CONTENT)  # by which a browser knows not to come again
    frames = Frames(service.engine, request)
    reader = Reader(request.after)
    frames.put(reader, page)
    return EventStream(service, call, reader, frames.follow)


def resumed_after(call: Call) -> str | None:
    """Where a client that comes again was."""
    return call.header(b"last-event-id") or None


async def append(service: Service, call: Call) -> Answer:
    """Frames of the execution that the path names, by the handle of its lease."""
    request: AppendFrames = await form_of(call.row).read(service, call)  # type: ignore[assignment]
    if request.handle.execution_id != full_id(call.params["execution_id"]):
        raise InvalidInput("handle: is of another execution than the path", field="handle")
    return answered(call, await ask(service, call, request))


HAPPENING_ROUTES: Final = (
    get(
        "/v1/events",
        "subscribe_events",
        title="Events, oldest first; `after=now` begins behind the newest",
        handler=events,
        defaults={"after": None},
        streams=True,
        other_media=(MEDIA,),
        tag="events",
    ),
    get(
        f"{_ID}/stream",
        "read_execution_stream",
        handler=frames,
        streams=True,
        other_media=(MEDIA,),
        other_statuses=(204,),
        tag="events",
    ),
    get(f"{_ID}/logs", "read_logs", tag="events"),
    get(
        f"{_ID}/summary",
        "read_summary",
        absent="summary",
        revision="version",
        is_whole=True,
        tag="events",
    ),
    post(
        f"{_ID}/frames",
        "append_frames",
        handler=append,
        size=Size.BATCH,
        repeat=Repeat.FENCE,
        reach=Reach.OBJECT,
        tag="events",
    ),
)
