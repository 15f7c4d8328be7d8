"""The server as an ASGI application: each request finds its route, its caller and its answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Final

from flowfabric.api.origins import coming_from
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError, NotAcceptable, StoreError, UriTooLong
from flowfabric.ids import new_secret_id
from flowfabric.server.access.guard import refuse_in_address
from flowfabric.server.compressing import compressed
from flowfabric.server.exchange import (
    PROBLEM,
    Answer,
    Call,
    Gone,
    Receive,
    Scope,
    Send,
    Streamed,
)
from flowfabric.server.hosts import Hosts
from flowfabric.server.lines import REQUEST, told
from flowfabric.server.problems import DEFECT, answer_of, answer_of_defect
from flowfabric.server.routes.route import Route
from flowfabric.server.routes.table import RouteTable
from flowfabric.server.service import Service
from flowfabric.server.ui.pages import places_of
from flowfabric.server.ui.refusals import is_for_people, refusal

_LOGGER = logging.getLogger("flowfabric.server")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_PROBLEM: Final = PROBLEM.decode()
_PATH_MAX: Final = 2_048
_QUERY_MAX: Final = 8_192
_GONE: Final = 499  # in the log: the client went away before its answer


class Application:
    """Answers requests by a table of routes."""

    def __init__(self, service: Service, routes: Iterable[Route]) -> None:
        self.service = service
        has_ui = service.settings.ui
        self.table = RouteTable(each for each in routes if has_ui or not each.is_page)
        service.places = places_of(self.table.routes)
        self._hosts = Hosts(service.settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; other protocols are none of ours."""
        if scope["type"] != "http":
            await _refuse_protocol(scope, receive, send)
            return
        call = Call(scope, receive, _request_id(dict(scope["headers"]).get(b"x-request-id")))
        began = monotonic()
        status = _GONE
        before = REQUEST.set(call.request_id)
        with self.service.answering():
            try:
                answer = await self._answer(call)
                status = answer.status
                await _write(call, answer, send, closes=self.service.is_leaving)
            except Gone:
                status = _GONE
            finally:
                seconds = monotonic() - began
                told(call, status, seconds)
                if self.service.metering is not None:
                    path = None if call.route is None else call.route.path
                    self.service.metering.answered(call.method, path, status, seconds)
                REQUEST.reset(before)

    async def _answer(self, call: Call) -> Answer | Streamed:
        try:
            self._hosts.check(call)
            raw_path = call.scope.get("raw_path") or call.scope["path"].encode()
            check_length(raw_path, call.scope.get("query_string", b""))
            refuse_in_address(call)
            call.route, call.params = self.table.find(call.method, raw_path.partition(b"?")[0])
            if not call.route.is_health:
                self.service.require_open()
                await self.service.admit(call, call.route)
            if not call.accepts((call.route.media, *call.route.other_media, _PROBLEM)):
                detail = f"Accept: this is answered as {call.route.media}"
                raise NotAcceptable(detail, field="Accept")
            with coming_from(call.origin):
                return await call.route.handler(self.service, call)
        except Gone:
            raise
        except FlowFabricError as error:
            if error.status >= 500 and not error.retryable:
                _LOGGER.error("request %s: %s", call.request_id, error.code, exc_info=error)
            return self._refused(call, error, answer_of(error, call.request_id))
        except Exception as error:  # noqa: BLE001 - a defect has an answer, too
            what = call.method if call.route is None else f"{call.method} {call.route.path}"
            answer = answer_of_defect(error, call.request_id, what)
            return self._refused(call, StoreError(DEFECT), answer)

    def _refused(self, call: Call, error: FlowFabricError, answer: Answer) -> Answer:
        """An error as JSON, or as a page where a page was asked for."""
        self.service.note_refusal(call, error)
        if self.service.settings.ui and is_for_people(call):
            return refusal(self.service, call, error, answer)
        return answer


def check_length(path: bytes, query: bytes) -> None:
    """Refuse what no route needs."""
    if len(path) > _PATH_MAX or len(query) > _QUERY_MAX:
        detail = f"at most {_PATH_MAX} bytes of path and {_QUERY_MAX} of query"
        raise UriTooLong(f"the address is too long: {detail}")


def _request_id(given: bytes | None) -> str:
    """The caller's own where it may be repeated, else a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    return new_secret_id()


async def _write(call: Call, answer: Answer | Streamed, send: Send, *, closes: bool) -> None:
    """`closes`: the connection ends with this answer, so that the next request finds another
    server."""
    headers = [
        (b"content-type", answer.media),
        (b"x-request-id", call.request_id.encode()),
    ]
    if closes:
        headers.append((b"connection", b"close"))
    if isinstance(answer, Streamed):
        await _stream(call, answer, send, [*headers, *answer.headers])
        return
    answer = await compressed(call, answer)
    headers += answer.headers
    body = answer.body
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if call.method == "HEAD" else body})


async def _stream(
    call: Call, answer: Streamed, send: Send, headers: list[tuple[bytes, bytes]]
) -> None:
    async def write(part: bytes) -> None:
        await send({"type": "http.response.body", "body": part, "more_body": True})

    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        if call.method != "HEAD":
            await answer.write(write)
        await send({"type": "http.response.body", "body": b""})
    finally:
        answer.close()


async def _refuse_protocol(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":  # the server is started and stopped around the application
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1003})
