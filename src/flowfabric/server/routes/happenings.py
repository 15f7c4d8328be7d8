"""What happens: the feed of events, and what handlers show while they run."""

from __future__ import annotations

from typing import Final

from flowfabric.api.streams import AppendFrames
from flowfabric.errors import InvalidInput
from flowfabric.server.exchange import Answer, Call
from flowfabric.server.routes.asking import answered, ask
from flowfabric.server.routes.forms import form_of
from flowfabric.server.routes.route import Reach, Repeat, Size
from flowfabric.server.routes.rows import get, post
from flowfabric.server.routes.values import full_id
from flowfabric.server.service import Service

_ID: Final = "/v1/executions/{execution_id}"


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
        defaults={"after": None},
        tag="events",
    ),
    get(f"{_ID}/stream", "read_execution_stream", tag="events"),
    get(f"{_ID}/logs", "read_logs", tag="events"),
    get(f"{_ID}/summary", "read_summary", absent="summary", revision="version", tag="events"),
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
