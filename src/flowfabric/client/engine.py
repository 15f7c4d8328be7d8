"""An engine behind HTTP: the same operations, with the same meaning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_type_hints

from flowfabric import forks, limits
from flowfabric.api import wire
from flowfabric.api.backend import EngineBackend
from flowfabric.api.hints import Bell
from flowfabric.api.leases import Claim, GiveBackClaim, Renew
from flowfabric.api.operation import Kind, Operation, Request
from flowfabric.client.gather import Gatherer, Sendable, fitting
from flowfabric.client.hints import HintFeed
from flowfabric.client.pauses import Polls, Tries
from flowfabric.client.repeats import is_safe_to_repeat, with_claim_id, with_key
from flowfabric.client.transport import (
    AiohttpTransport,
    NoAnswer,
    NotSent,
    Reply,
    Transport,
    server_url,
)
from flowfabric.clock import monotonic
from flowfabric.config import DEFAULT_NAMESPACE
from flowfabric.errors import (
    BusyError,
    FlowFabricError,
    InvalidInput,
    NotRemote,
    OutcomeUnknown,
    StoreUnavailable,
    WaitTimeout,
)
from flowfabric.model.checks import check_list
from flowfabric.model.record import from_json, replace
from flowfabric.model.results import BackendCapabilities, Claimed
from flowfabric.tracing.spans import traced

R = TypeVar("R")
_COMMANDS: Final = "/v1/commands"
_REQUEST_S: Final = 90.0  # for an answer that nothing is waited for
_RENEWAL_S: Final = 5.0  # for that to a renewal: the next one may find another way
_MARGIN_S: Final = 10.0  # beside a wait itself
_PATIENCE_S: Final = 10.0  # for a server that restarts, or another one behind the same address
_CONNECTIONS: Final = 100
_GATEWAY: Final = (502, 504)  # something before the server got no answer, or cut it off


class RemoteEngine(EngineBackend):
    """All operations of a server's engine.

    Requests that wait, renewals and all others travel on connections of their own kind: neither a
    large result nor thousands of waits hold up a lease.

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
        self._connect(transport)
        self._headers = {
            "content-type": wire.CONTENT_TYPE,
            "accept": f"{wire.CONTENT_TYPE}, application/json",
        }
        if namespace is not None:  # else it is that of the token
            self._headers["x-flowfabric-namespace"] = namespace
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"
        self._gather()
        self._polls = Polls()
        self._hints = HintFeed(self._hear, self._polls)
        self._unanswered: dict[str, tuple[Claim, float]] = {}  # by worker, and until when
        self._giving_back: set[asyncio.Task[None]] = set()
        self._about: dict[str, Any] = {}

    def _connect(self, transport: Transport | None = None) -> None:
        self._transport = transport or AiohttpTransport(
            self._url, ca=self._ca, connections=_CONNECTIONS
        )
        self._urgent = transport or AiohttpTransport(self._url, ca=self._ca)
        self._waiting = transport or AiohttpTransport(self._url, ca=self._ca)

    def _gather(self) -> None:
        self._writes = Gatherer(self._send, in_flight=2)
        self._renewals = Gatherer(self._send_renewals, in_flight=1)

    def __repr__(self) -> str:
        return f"RemoteEngine({self._url!r})"

    # --- requests ------------------------------------------------------------------------------

    async def call(self, request: Request[R]) -> R:
        """The reply to one request; a refusal is raised."""
        operation = self._operation(request)
        reply: R
        if isinstance(request, Claim):
            return await self._claim(operation, request)  # type: ignore[return-value]
        request = self._signed(operation, request)
        if operation.kind is Kind.WAIT and getattr(request, "wait_ms", 0) != 0:
            reply = await self._wait(operation, request)
        elif operation.kind is not Kind.WRITE:
            reply = await self._ask(operation, request)
        else:
            lane = self._renewals if isinstance(request, Renew) else self._writes
            body = wire.encode_request(request)
            reply = await self._again(
                lambda: lane.run(operation, body), is_safe=is_safe_to_repeat(request)
            )
        return reply

    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The reply, or the error object, for each request."""
        answers: list[Any] = []
        sent: list[tuple[int, Sendable]] = []
        send: Callable[[Sequence[Sendable]], Awaitable[Sequence[Any]]] = self._send_renewals
        for index, request in enumerate(check_list(requests, field="requests")):
            answers.append(None)
            try:
                operation = self._operation(request)
                if operation.kind is Kind.WAIT and getattr(request, "wait_ms", 0) != 0:
                    answers[index] = await self.call(request)  # a wait travels alone
                    continue
                body = wire.encode_request(self._signed(operation, request))
                sent.append((index, Sendable(operation, body)))
            except FlowFabricError as error:
                answers[index] = error
            if not isinstance(request, Renew):
                send = self._send
        while sent:
            size = fitting([each for _, each in sent])
            several, sent = sent[:size], sent[size:]
            replies = await send([each for _, each in several])
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
        return with_key(traced(request))

    async def _again(self, ask: Callable[[], Awaitable[R]], *, is_safe: bool) -> R:
        """The reply, asked for again where there was no room, or where the answer was lost and a
        repetition is safe."""
        tries = Tries(_PATIENCE_S)
        while True:
            try:
                return await ask()
            except BusyError as error:
                if not await tries.again(error.fields.get("retry_after_ms")):
                    raise
            except OutcomeUnknown:
                if not (is_safe and await tries.again()):
                    raise

    async def _ask(self, operation: Operation, request: Request[Any]) -> Any:
        """One request by itself: what it reads may be read again."""
        body = wire.encode_request(request)
        is_read = operation.kind is Kind.READ or operation.name in _READ_AGAIN

        async def ask() -> Any:
            return await self._alone(operation, body, _REQUEST_S)

        try:
            return await self._again(ask, is_safe=is_read)
        except OutcomeUnknown as error:
            if is_read:
                raise StoreUnavailable(error.detail) from None
            raise

    # --- waits ---------------------------------------------------------------------------------

    async def _wait(self, operation: Operation, request: Request[Any]) -> Any:
        """In slices, each short enough for every gateway on the way."""
        wait_ms: int | None = getattr(request, "wait_ms", None)
        is_wait = waits_for_ever(operation) if wait_ms is None else type(wait_ms) is int
        if (
            not is_wait or not 0 <= (wait_ms or 0) <= limits.DURATION_MS_MAX
        ):  # the engine says what is wrong with it
            return await self._ask(operation, request)
        until = None if wait_ms is None else monotonic() + wait_ms / 1000
        is_safe = operation.name in _READ_AGAIN
        while True:
            began = monotonic()
            try:
                reply = await self._again(
                    lambda: self._slice(operation, request, until), is_safe=is_safe
                )
            except WaitTimeout:
                if _is_over(until):
                    raise
                continue
            # Nothing, and before its time: nothing can come, of what has ended for example.
            is_early = monotonic() - began < self._polls.ms / 2000
            if _is_over(until) or is_early or has_news(reply):
                return reply

    async def _slice(self, operation: Operation, request: Request[Any], until: float | None) -> Any:
        """One request that waits, for no longer than what is left."""
        slice_ms = self._polls.ms
        if until is not None:
            slice_ms = max(0, min(slice_ms, int((until - monotonic()) * 1000)))
        body = wire.encode_request(replace(request, wait_ms=slice_ms))
        began = monotonic()
        try:
            reply = await self._alone(operation, body, slice_ms / 1000 + _MARGIN_S, self._waiting)
        except OutcomeUnknown:
            self._polls.was_cut(monotonic() - began)
            raise
        except WaitTimeout:
            self._polls.was_whole()
            raise
        if not has_news(reply):
            self._polls.was_whole()
        return reply

    async def _alone(
        self,
        operation: Operation,
        body: bytes,
        timeout_s: float,
        transport: Transport | None = None,
    ) -> Any:
        """The reply to a request that travels alone."""
        sent = [Sendable(operation, body)]
        (answer,) = await self._send(sent, timeout_s, transport)
        if isinstance(answer, FlowFabricError):
            raise answer
        return answer

    # --- claims --------------------------------------------------------------------------------

    async def _claim(self, operation: Operation, request: Claim) -> list[Claimed]:
        """The leases of a claim, of which none is lost with its answer: a worker that got none asks
        for those of its last claim first."""
        worker = request.worker_instance_id
        lost = self._unanswered.pop(worker, None) if isinstance(worker, str) else None
        if lost is not None and monotonic() < lost[1]:
            try:
                former = await self._claim_once(operation, replace(lost[0], wait_ms=0))
            except BaseException:
                self._unanswered[worker] = lost
                raise
            if former:
                return former
        return await self._claim_once(operation, with_claim_id(request))

    async def _claim_once(self, operation: Operation, request: Claim) -> list[Claimed]:
        claimed: list[Claimed]
        try:
            if type(request.wait_ms) is not int or request.wait_ms == 0:
                claimed = await self._ask(operation, request)
            else:
                claimed = await self._wait(operation, request)
        except (OutcomeUnknown, StoreUnavailable, BusyError):
            if (lasts_s := _lasts_s(request)) is not None:
                self._unanswered[request.worker_instance_id] = (request, monotonic() + lasts_s)
            raise
        except asyncio.CancelledError:
            self._give_back(request)
            raise
        return claimed

    def _give_back(self, request: Claim) -> None:
        """Nobody waits for this claim any more. The server notices by itself, unless something
        between it and this client keeps the connection open."""
        worker, claim_id = request.worker_instance_id, request.claim_id
        if not (isinstance(worker, str) and isinstance(claim_id, str)):
            return

        async def give_back() -> None:
            with suppress(FlowFabricError):
                await self.call(GiveBackClaim(worker_instance_id=worker, claim_id=claim_id))

        task = asyncio.create_task(give_back())
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    # --- the wire ------------------------------------------------------------------------------

    async def _send(
        self,
        several: Sequence[Sendable],
        timeout_s: float = _REQUEST_S,
        transport: Transport | None = None,
        patience_s: float = _PATIENCE_S,
    ) -> Sequence[Any]:
        body = wire.encode_requests([(each.operation.name, each.body) for each in several])
        answer = await self._post(
            transport or self._transport, _COMMANDS, body, timeout_s, patience_s
        )
        return wire.decode_answers([each.operation for each in several], answer)

    async def _send_renewals(self, several: Sequence[Sendable]) -> Sequence[Any]:
        """Soon or not at all: whoever renews tries again until the lease has lapsed."""
        return await self._send(several, _RENEWAL_S, self._urgent, 0.0)

    async def _hear(self, body: bytes, timeout_s: float) -> bytes:
        return await self._post(self._waiting, "/v1/hints", body, timeout_s, 0.0)

    async def _post(
        self, transport: Transport, path: str, body: bytes, timeout_s: float, patience_s: float
    ) -> bytes:
        """The body of the answer. What never reached the server is sent again for a while."""
        tries = Tries(patience_s)
        while True:
            try:
                reply = await transport.send(
                    "POST", path, body=body, headers=self._headers, timeout_s=timeout_s
                )
            except NotSent as error:
                if not await tries.again():
                    raise StoreUnavailable(f"cannot reach the server: {error}") from None
                continue
            except NoAnswer as error:
                raise OutcomeUnknown(f"the connection to the server broke: {error}") from None
            if reply.status == 200:
                return reply.body
            raise refusal_of(reply)

    # --- the engine ----------------------------------------------------------------------------

    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """An event that is set when one of the topics is hinted at."""
        return self._hints.listen(topics)

    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call this with the topics that are listened to, until the returned function is called."""
        return self._hints.follow(told)

    @property
    def is_remote(self) -> bool:
        """It is."""
        return True

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
        twin = copy(self)
        twin._namespace = namespace
        twin._headers = {**self._headers, "x-flowfabric-namespace": namespace}
        twin._gather()
        return twin

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
        try:
            await self._ask_about()
        except BaseException:
            await self._transport.close()  # an engine that has not started may never be closed
            raise
        forks.inherit(self, RemoteEngine._after_fork)

    async def _ask_about(self) -> None:
        try:
            reply = await self._transport.send(
                "GET", "/v1", body=b"", headers=self._headers, timeout_s=_REQUEST_S
            )
        except (NotSent, NoAnswer) as error:
            raise StoreUnavailable(f"cannot reach the server: {error}") from None
        if reply.status != 200:
            raise refusal_of(reply)
        about = from_json(reply.body, dict[str, Any], field="server")
        if about.get("name") != "flowfabric":
            raise InvalidInput("url: there is no FlowFabric server", field="url")
        self._about = about

    def _after_fork(self) -> None:
        """In a child process: the connections are the parent's."""
        forks.leave_alone((self._transport, self._urgent, self._waiting))
        self._connect()

    async def close(self) -> None:
        """Finish what is on its way and disconnect."""
        forks.disinherit(self)
        await self._hints.close()
        while self._giving_back:
            await asyncio.wait(self._giving_back)
        await self._writes.idle()
        await self._renewals.idle()
        for transport in (self._transport, self._urgent, self._waiting):
            await transport.close()


_READ_AGAIN: Final = frozenset(
    {
        "claim",
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


@cache
def waits_for_ever(operation: Operation) -> bool:
    """Whether it may wait without an end."""
    return type(None) in get_args(get_type_hints(operation.request)["wait_ms"])


def _is_over(until: float | None) -> bool:
    """Whether less than a millisecond is left of a wait."""
    return until is not None and until - monotonic() < 0.001


def has_news(reply: Any) -> bool:
    """Whether a wait has brought what it waited for."""
    if isinstance(reply, list):
        return bool(reply)
    for name in ("events", "frames", "lines", "stops"):
        if hasattr(reply, name):
            told = bool(getattr(reply, "is_closed", False)) or bool(
                getattr(reply, "is_rung", False)
            )
            return told or bool(getattr(reply, name))
    return True


def _lasts_s(request: Claim) -> float | None:
    """How long leases of a claim may be in force, of one that names all it takes to repeat it."""
    ttl_ms = request.lease_ttl_ms
    if not (isinstance(request.worker_instance_id, str) and isinstance(request.claim_id, str)):
        return None
    return (limits.LEASE_TTL_MS_DEFAULT if not isinstance(ttl_ms, int) else ttl_ms) / 1000


def refusal_of(reply: Reply) -> FlowFabricError:
    """The error that a whole request was answered with."""
    try:
        body = from_json(reply.body, dict[str, Any], field="problem")
    except InvalidInput:
        body = {}
    if "code" not in body:
        detail = f"the server, or something before it, answered {reply.status}"
        if reply.status in _GATEWAY:
            return OutcomeUnknown(detail, status=reply.status)
        return StoreUnavailable(detail, status=reply.status)
    return wire.read_problem(body)
