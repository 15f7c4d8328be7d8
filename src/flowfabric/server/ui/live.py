"""Live parts of pages: a stream that sends what has changed, and a question that tells it once.

Both are asked for a page by its address (`of`), and see exactly what the page itself would show
this caller. Viewers with the same rights share what is rendered; only the proof in forms is each
one's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from flowfabric.errors import FlowFabricError, InvalidInput, NotFound
from flowfabric.model.record import to_json
from flowfabric.server.exchange import Answer, Call, Streamed
from flowfabric.server.routes.route import Repeat, Route
from flowfabric.server.routes.table import RouteTable
from flowfabric.server.service import Service
from flowfabric.server.streams.reader import Reader, told
from flowfabric.server.streams.sending import MEDIA, EventStream
from flowfabric.server.streams.watches import Viewer, Watch
from flowfabric.server.ui.clocks import later
from flowfabric.server.ui.forms import csrf_of, is_local
from flowfabric.server.ui.pages import Page, Showing
from flowfabric.server.ui.preferences import look_of

_INLINE_MAX: Final = 16_384  # a part that is larger is fetched by those that want it
_NO_STORE: Final = ((b"cache-control", b"no-store"),)


class Rendered(NamedTuple):
    """The parts of a page at one moment: for each its digest and its markup."""

    now: int
    parts: Mapping[str, tuple[str, str]]
    is_quiet: bool = False  # time alone changes nothing
    topics: tuple[str, ...] = ()  # that the view adds to those of the page


class Seen:
    """One page as one caller sees it: the call that shows it."""

    def __init__(self, service: Service, call: Call, table: RouteTable) -> None:
        of = dict(call.query).get("of", "")
        if not is_local(of):
            raise InvalidInput("of: expected the address of a page", field="of")
        path, _, query = of.partition("?")
        route, params = table.find("GET", path.encode("latin-1", "replace"))
        if not isinstance(route.handler, Showing) or not route.handler.page.topics:
            raise NotFound("of: this page has no live parts")
        route.check(call.caller)
        scope = {
            **call.scope,
            "method": "GET",
            "path": path,
            "raw_path": path.encode("latin-1", "replace"),
            "query_string": query.encode("latin-1", "replace"),
        }
        self.of = of
        self.page: Page = route.handler.page
        self.call = Call(scope, call.receive, call.request_id)
        self.call.caller, self.call.route, self.call.params = call.caller, route, params
        service.count_expensive(self.call, route)
        self._service = service

    @property
    def key(self) -> Hashable:
        """Equal for callers that see the same."""
        caller = self.call.caller
        actor = caller.actor if self.page.is_personal else None
        return (self.of, caller.scopes, caller.namespaces, actor, look_of(self.call))

    async def look(self) -> Rendered:
        """The parts as they are now."""
        from flowfabric.server.ui.rendering import live_parts

        later(self.call)
        return Rendered(*await live_parts(self._service, self.call, self.page, self.of))


class LiveRoutes:
    """The stream and the question, about the pages of a table."""

    def __init__(self, pages: tuple[Route, ...]) -> None:
        self._table = RouteTable(pages)
        self.routes = (
            Route(
                method="GET",
                path="/ui/live",
                title="The parts of a page as they change",
                handler=self.stream,
                is_for_known=True,
                streams=True,
                is_page=True,
                media=MEDIA,
                tag="ui",
            ),
            Route(
                method="GET",
                path="/ui/parts",
                title="The parts of a page that have changed",
                handler=self.parts,
                repeat=Repeat.READ,
                is_for_known=True,
                is_page=True,
                tag="ui",
            ),
        )

    async def parts(self, service: Service, call: Call) -> Answer:
        """Those that the client has not, now."""
        seen = Seen(service, call, self._table)
        rendered = await seen.look()
        changed = _changed(rendered, _had(call), csrf_of(service, call), most=None)
        return Answer(to_json({"now": rendered.now, "parts": changed}), headers=_NO_STORE)

    async def stream(self, service: Service, call: Call) -> Streamed:
        """Those that the client has not, and from then on what changes."""
        seen = Seen(service, call, self._table)
        watch = await service.watches.watch(
            seen.key, seen.page.topics_of(seen.call.params), seen.look
        )
        reader = Reader()
        try:
            viewer = _Showing(reader, csrf_of(service, call), _had(call))
            last = call.header(b"last-event-id")
            if last is not None and last != watch.place:
                viewer.had.clear()  # what it has by now is not known
            if last != watch.place:
                viewer.see(watch)
            return _Live(service, call, reader, viewer, (seen.key, watch))
        except BaseException:
            service.watches.leave(seen.key, watch)
            raise


class _Live(EventStream):
    """A stream of a watch, which is left when the stream is closed, even if nothing was sent."""

    def __init__(
        self,
        service: Service,
        call: Call,
        reader: Reader,
        viewer: Viewer,
        watched: tuple[Hashable, Watch],
    ) -> None:
        key, watch = watched
        super().__init__(
            service, call, reader, lambda _: service.watches.follow(key, watch, viewer)
        )
        self._leave_watch = partial(service.watches.leave, key, watch)

    def close(self) -> None:
        """It counts no more, and its watch ends with its last viewer."""
        super().close()
        self._leave_watch()


class _Showing:
    """What one client has by now, and what it is sent."""

    def __init__(self, reader: Reader, csrf: str, had: dict[str, str]) -> None:
        self._reader = reader
        self._csrf = csrf
        self.had = had

    def see(self, watch: Watch) -> None:
        """Send what is new to this client."""
        if watch.trouble is not None:
            self._put("trouble", _told(watch.trouble), watch)
            return
        rendered: Any = watch.seen
        if rendered is None:
            return
        changed = _changed(rendered, self.had, self._csrf, most=_INLINE_MAX)
        self.had.update({name: digest for name, (digest, _) in rendered.parts.items()})
        if changed:
            self._put(
                "parts",
                {"seq": watch.version, "now": rendered.now, "parts": changed},
                watch,
            )

    def _put(self, name: str, data: dict[str, Any], watch: Watch) -> None:
        self._reader.put(told(name, to_json(data), watch.place), 1, watch.place)


def _had(call: Call) -> dict[str, str]:
    """The parts that a client has, with their digests: `why:0a1b,log:2c3d`."""
    given = dict(call.query).get("have", "")
    return dict(each.split(":", 1) for each in given.split(",") if ":" in each)


def _changed(
    rendered: Rendered, had: Mapping[str, str], csrf: str, *, most: int | None
) -> list[dict[str, str]]:
    from flowfabric.server.ui.rendering import with_proof

    found = []
    for name, (digest, text) in rendered.parts.items():
        if had.get(name) == digest:
            continue
        part = {"name": name, "v": digest}
        if most is None or len(text) <= most:
            part["html"] = with_proof(text, csrf)
        found.append(part)
    return found


def _told(error: FlowFabricError) -> dict[str, Any]:
    return {"code": error.code, "detail": error.detail, "advice": error.advice}
