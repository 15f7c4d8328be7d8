"""An engine behind HTTP: the same operations, with the same meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, TypeVar

from flowfabric import forks, limits
from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import Bell
from flowfabric.api.leases import Renew
from flowfabric.api.operation import Kind, Operation, Request
from flowfabric.client.gather import Gatherer, Sendable
from flowfabric.client.hints import HintFeed
from flowfabric.client.repeats import is_safe_to_repeat, with_key
from flowfabric.client.transport import AiohttpTransport, Reply, Transport, server_url
from flowfabric.clock import monotonic
from flowfabric.config import DEFAULT_NAMESPACE
from flowfabric.errors import (
    FlowFabricError,
    InvalidInput,
    NotRemote,
    OutcomeUnknown,
    StoreUnavailable,
    WaitTimeout,
)
from flowfabric.model.checks import check_list
from flowfabric.model.record import from_json, replace
from flowfabric.model.results import BackendCapabilities

R = TypeVar("R")
_COMMANDS: Final = "/v1/commands"
_REQUEST_S: Final = 90.0  # for an answer that nothing is waited for
_SLICE_MS: Final = 20_000  # the longest wait of one request: shorter than what gateways cut
_MARGIN_S: Final = 10.0  # beside the wait itself
_TRIES: Final = 3
_PAUSE_S: Final = 0.1


class RemoteEngine(EngineBackend):
    """All operations of a server's engine.

    >>> RemoteEngine("http://localhost:9090").backend_label()
    'remote'
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        namespace: str | None = None,
        actor: str | None = None,
        ca: str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._url = server_url(url)
        self._token = token
        self._namespace = namespace
        self._actor = actor
        self._ca = ca
        self._transport = transport or AiohttpTransport(self._url, ca=ca)
        self._headers = {
            "content-type": wire.CONTENT_TYPE,
            "accept": f"{wire.CONTENT_TYPE}, application/json",
        }
        if namespace is not None:  # else it is that of the token
            self._headers["x-flowfabric-namespace"] = namespace
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._writes = Gatherer(self._send, in_flight=2)
        self._renewals = Gatherer(self._send, in_flight=1)
        self._hints = HintFeed(self._hear)
        self._about: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"RemoteEngine({self._url!r})"

    # --- requests ------------------------------------------------------------------------------

    async def call(self, request: Request[R]) -> R:
        """The reply to one request; a refusal is raised."""
        operation = self._operation(request)
        request = self._signed(operation, request)
        if operation.kind is Kind.WAIT and getattr(request, "wait_ms", 0) != 0:
            waited: R = await self._wait(operation, request)
            return waited
        if operation.kind is not Kind.WRITE:
            reply: R = await self._ask(operation, wire.encode_request(request), _REQUEST_S)
            return reply
        lane = self._renewals if isinstance(request, Renew) else self._writes
        written: R = await self._patiently(
            request, lambda: lane.run(operation, wire.encode_request(request))
        )
        return written

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The reply, or the error object, for each request."""
        answers: list[Any] = []
        sent: list[tuple[int, Sendable]] = []
        for index, request in enumerate(check_list(requests, field="requests")):
            answers.append(None)
            try:
                operation = self._operation(request)
                body = wire.encode_request(self._signed(operation, request))
                sent.append((index, Sendable(operation, body)))
            except FlowFabricError as error:
                answers[index] = error
        for start in range(0, len(sent), limits.COMMANDS_MAX):
            several = sent[start : start + limits.COMMANDS_MAX]
            replies = await self._send([each for _, each in several])
            for (index, _), reply in zip(several, replies, strict=True):
                answers[index] = reply
        return answers

    def _operation(self, request: Request[Any]) -> Operation:
        operation = wire.operation_of(request)
        if operation.is_local:
            detail = f"{operation.name} shares a transaction with the store"
            raise NotRemote(detail, operation=operation.name)
        return operation

    def _signed(self, operation: Operation, request: Request[R]) -> Request[R]:
        """With this client's actor, and with a key where a repetition must not double it."""
        if self._actor is not None and getattr(request, "actor", "") is None:
            request = replace(request, actor=self._actor)
        return with_key(request)

    async def _patiently(self, request: Request[Any], ask: Callable[[], Any]) -> Any:
        """Ask again where the first answer was lost and a repetition is safe."""
        for attempt in range(_TRIES):
            try:
                return await ask()
            except OutcomeUnknown:
                if attempt == _TRIES - 1 or not is_safe_to_repeat(request):
                    raise
            await asyncio.sleep(_PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")

    # --- waits ---------------------------------------------------------------------------------

    async def _wait(self, operation: Operation, request: Request[Any]) -> Any:
        """In slices, each short enough for every gateway on the way."""
        wait_ms: int | None = getattr(request, "wait_ms", None)
        if wait_ms is not None and (type(wait_ms) is not int or wait_ms < 0):
            return await self._ask(operation, wire.encode_request(request), _REQUEST_S)
        until = None if wait_ms is None else monotonic() + wait_ms / 1000
        while True:
            left_ms = _SLICE_MS if until is None else int((until - monotonic()) * 1000)
            slice_ms = max(0, min(_SLICE_MS, left_ms))
            body = wire.encode_request(replace(request, wait_ms=slice_ms))
            is_last = until is not None and left_ms <= _SLICE_MS
            try:
                reply = await self._ask(operation, body, slice_ms / 1000 + _MARGIN_S)
            except WaitTimeout:
                if is_last:
                    raise
                continue
            if is_last or has_news(reply):
                return reply

    async def _ask(self, operation: Operation, body: bytes, timeout_s: float) -> Any:
        """One request by itself: what it reads may be read again."""
        sendable = Sendable(operation, body)
        for attempt in range(_TRIES):
            try:
                (answer,) = await self._send([sendable], timeout_s)
            except OutcomeUnknown as error:
                if operation.name not in _READ_AGAIN and operation.kind is not Kind.READ:
                    raise
                if attempt == _TRIES - 1:
                    raise StoreUnavailable(error.detail) from None
                await asyncio.sleep(_PAUSE_S * 2**attempt)
                continue
            if isinstance(answer, FlowFabricError):
                raise answer
            return answer
        raise AssertionError("unreachable")

    # --- the wire ------------------------------------------------------------------------------

    async def _send(
        self, several: Sequence[Sendable], timeout_s: float = _REQUEST_S
    ) -> Sequence[Any]:
        body = wire.encode_requests([(each.operation.name, each.body) for each in several])
        reply = await self._transport.send(
            "POST", _COMMANDS, body=body, headers=self._headers, timeout_s=timeout_s
        )
        if reply.status != 200:
            raise refusal_of(reply)
        return wire.decode_answers([each.operation for each in several], reply.body)

    async def _hear(self, body: bytes, timeout_s: float) -> bytes:
        reply = await self._transport.send(
            "POST", "/v1/hints", body=body, headers=self._headers, timeout_s=timeout_s
        )
        if reply.status != 200:
            raise refusal_of(reply)
        return reply.body

    # --- the engine ----------------------------------------------------------------------------

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """An event that is set when one of the topics is hinted at."""
        return self._hints.listen(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call this with the topics that are listened to, until the returned function is called."""
        return self._hints.follow(told)

    def again(self) -> EngineBackend:
        """The same server for another event loop."""
        return RemoteEngine(
            self._url,
            token=self._token,
            namespace=self._namespace,
            actor=self._actor,
            ca=self._ca,
        )

    def at_home_in(self, namespace: str) -> EngineBackend:
        """The same server for calls of another tenant."""
        return RemoteEngine(
            self._url,
            token=self._token,
            namespace=namespace,
            actor=self._actor,
            ca=self._ca,
            transport=self._transport,
        )

    @property
    def home_namespace(self) -> str:
        """The tenant of calls that name none: once started, as the server told."""
        told: str | None = self._about.get("namespace")
        return self._namespace or told or DEFAULT_NAMESPACE

    def backend_label(self) -> str:
        """It knows nothing of the store behind the server."""
        return "remote"

    def capabilities(self) -> BackendCapabilities:
        """The operations of the server, as it told at the start."""
        features = {str(each): True for each in self._about.get("features", ())}
        return BackendCapabilities("remote", str(self._about.get("version", "")), 0, features)

    async def start(self, *, migrate: bool = True) -> None:
        """Ask the server what it can do. Its schema is its own affair."""
        reply = await self._transport.send(
            "GET", "/v1", body=b"", headers=self._headers, timeout_s=_REQUEST_S
        )
        if reply.status != 200:
            raise refusal_of(reply)
        about = from_json(reply.body, dict[str, Any], field="server")
        if about.get("name") != "flowfabric":
            raise InvalidInput("url: there is no FlowFabric server", field="url")
        self._about = about
        forks.inherit(self, RemoteEngine._after_fork)

    def _after_fork(self) -> None:
        """In a child process: the connections are the parent's."""
        forks.leave_alone((self._transport,))
        self._transport = AiohttpTransport(self._url, ca=self._ca)

    async def close(self) -> None:
        """Finish what is on its way and disconnect."""
        forks.disinherit(self)
        await self._hints.close()
        await self._writes.idle()
        await self._renewals.idle()
        await self._transport.close()


_READ_AGAIN: Final = frozenset(
    {
        "wait_for_result",
        "wait_for_outcome",
        "wait_for_flow",
        "wait_for_reply",
        "read_logs",
        "tail_stream",
        "read_execution_stream",
        "subscribe_events",
        "subscribe_completion",
        "subscribe_lease_history",
        "subscribe_signal_delivery",
        "subscribe_instance_tags",
        "read_group",
        "wait_for_stops",
    }
)


def has_news(reply: Any) -> bool:
    """Whether a wait has brought what it waited for."""
    if isinstance(reply, list):
        return bool(reply)
    for name in ("events", "frames", "lines", "stops"):
        if hasattr(reply, name):
            return bool(getattr(reply, name)) or bool(getattr(reply, "is_closed", False))
    return True


def refusal_of(reply: Reply) -> FlowFabricError:
    """The error that a whole request was answered with."""
    try:
        body = from_json(reply.body, dict[str, Any], field="problem")
    except InvalidInput:
        body = {}
    if "code" not in body:
        detail = f"the server, or something before it, answered {reply.status}"
        return StoreUnavailable(detail, status=reply.status)
    return wire.read_problem(body)
