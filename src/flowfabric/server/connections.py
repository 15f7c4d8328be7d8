"""Connections to a server: how many there may be, how long they last, and how fast a request comes.

A client that sends slowly, or never ends, must cost no more than its socket, and that for a while.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from flowfabric.errors import FlowFabricError, HeadersTooLarge, MalformedRequest
from flowfabric.ids import jitter, new_secret_id
from flowfabric.server.problems import answer_of

if TYPE_CHECKING:
    from flowfabric.server.settings import ServerSettings

HEAD_BYTES: Final = 16_384  # names and values of all headers
HEADERS: Final = 100
_UNREAD_BYTES: Final = 65_536  # of a head that has no end yet, its path included
HEAD_S: Final = 10.0  # for a head, from its first byte
BODY_S: Final = 60.0  # a body is looked at so often …
BODY_BYTES_PER_S: Final = 1_024  # … and must have come at this pace
AGE_S: Final = 300.0  # then it ends with an answer, so that balancers spread what comes next
_SPREAD: Final = 0.2


class Crowd:
    """The connections of one server, by the address that they come from."""

    def __init__(self, settings: ServerSettings) -> None:
        self._most = settings.connections_max
        self._most_of_one = settings.connections_per_address
        self._proxies = settings.trusted_proxies
        self._of: Counter[str] = Counter()
        self.count = 0

    def enter(self, address: str | None) -> bool:
        """Whether there is room for one more from there. Proxies, which stand for many clients, and
        sockets of the file system are bounded only by the whole."""
        if self.count >= self._most:
            return False
        if address is not None and not self._is_proxy(address):
            if self._of[address] >= self._most_of_one:
                return False
            self._of[address] += 1
        self.count += 1
        return True

    def leave(self, address: str | None) -> None:
        """One that was let in is gone."""
        self.count -= 1
        if address is not None and not self._is_proxy(address):
            self._of[address] -= 1
            if not self._of[address]:
                del self._of[address]

    def _is_proxy(self, address: str) -> bool:
        for each in self._proxies:
            if each in ("*", address):
                return True
            try:
                if ip_address(address) in ip_network(each, strict=False):
                    return True
            except ValueError:  # the name of a host
                continue
        return False


class Connection(HttpToolsProtocol):
    """One connection."""

    def __init__(self, crowd: Crowd, **given: Any) -> None:
        super().__init__(**given)
        self._crowd = crowd
        self._is_in = False
        self._ends_at = 0.0
        self._reads_head = self._reads_body = False
        self._head_bytes = self._unread_bytes = self._body_bytes = 0
        self._refusal: FlowFabricError | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # --- its life ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It is refused where there are too many; one that says nothing is idle."""
        super().connection_made(transport)
        if not self._crowd.enter(self._address):
            transport.abort()
            return
        self._is_in = True
        age_s = AGE_S * (1 - _SPREAD + 2 * _SPREAD * jitter())
        self._ends_at = self.loop.time() + age_s
        self._await(self.timeout_keep_alive, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """It counts no more."""
        self._rest()
        if self._is_in:
            self._is_in = False
            self._crowd.leave(self._address)
        super().connection_lost(exc)

    @property
    def _address(self) -> str | None:
        return self.client[0] if self.client else None

    # --- what comes ----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Some bytes. A request that came whole costs no timer."""
        was_in_head, was_in_body = self._reads_head, self._reads_body
        super().data_received(data)
        if self.transport.is_closing():
            self._rest()
        elif self._reads_head:
            self._unread_bytes = self._unread_bytes + len(data) if was_in_head else 0
            if self._unread_bytes > _UNREAD_BYTES:
                self._refuse(HeadersTooLarge(_TOO_LARGE))
            elif not was_in_head:
                self._await(HEAD_S, self._give_up)
        elif self._reads_body:
            self._body_bytes += len(data)
            if not was_in_body:
                self._body_bytes = 0
                self._await(BODY_S, self._look_at_body)
        else:
            self._rest()

    def _await(self, seconds: float, then: Any) -> None:
        self._rest()
        self._deadline = self.loop.call_later(seconds, then)

    def _rest(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def _look_at_body(self) -> None:
        """A body that nobody reads yet is held back by the server, and is not late."""
        is_late = self._body_bytes < BODY_S * BODY_BYTES_PER_S and not self.flow.read_paused
        if is_late:
            self.transport.abort()
            return
        self._body_bytes = 0
        self._await(BODY_S, self._look_at_body)

    # --- the parser tells ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A head begins."""
        self._reads_head = True
        self._head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header is there."""
        super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES or len(self.headers) > HEADERS:
            self._refusal = HeadersTooLarge(_TOO_LARGE)
            raise self._refusal  # ends the parsing; what it is, is told below

    def on_headers_complete(self) -> None:
        """The head is there: the request begins, perhaps as the last one of its connection."""
        self._reads_head, self._reads_body = False, True
        super().on_headers_complete()
        if self.loop.time() >= self._ends_at:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """The body is there."""
        self._reads_body = False
        super().on_message_complete()

    # --- what cannot be read -------------------------------------------------------------------

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is answered in the shape of all other errors."""
        self._refuse(self._refusal or MalformedRequest("the request is not HTTP/1.1"))

    def _refuse(self, error: FlowFabricError) -> None:
        cycle = self.cycle
        is_answering = cycle is not None and cycle.response_started and not cycle.response_complete
        if is_answering or self.pipeline:  # another answer would be taken for a part of it
            self.transport.close()
            return
        request_id = new_secret_id()
        answer = answer_of(error, request_id)
        head = (
            f"HTTP/1.1 {answer.status} \r\ncontent-type: {answer.media.decode()}\r\n"
            f"x-request-id: {request_id}\r\ncontent-length: {len(answer.body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + answer.body)
        self.transport.close()


_TOO_LARGE: Final = f"at most {HEADERS} headers, and {HEAD_BYTES} bytes of them"
