"""Signals, approvals and waits, as a program outside the handler deals with them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, Protocol

from flowfabric.api.backend import EngineBackend
from flowfabric.api.waits import Signal, WaitInfo
from flowfabric.errors import InvalidInput, NotFound, WaitpointClosed
from flowfabric.limits import DEDUP_TTL_MS_DEFAULT, PAGE_MAX, SIGNAL_PAYLOAD_BYTES
from flowfabric.model.checks import check_integer, check_text
from flowfabric.model.suspension import (
    SignalAccepted,
    SignalDuplicate,
    Token,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.sdk import codec
from flowfabric.sdk.context.conditions import APPROVED, REJECTED
from flowfabric.sdk.context.received import Waitpoint
from flowfabric.sdk.errors import InvalidLink
from flowfabric.sdk.links import Address, is_link, make_link, read_link

Delivered = SignalAccepted | SignalDuplicate
NO_PAYLOAD: Final = object()
_NAME: Final = "signal"  # of a signal without a name
_PERSON: Final = "user"  # the type of a source that is only a name


class HasId(Protocol):
    """A run, blocking or not."""

    @property
    def id(self) -> str:
        """The id of the execution."""
        ...


class WaitMethods:
    """The part of a fabric that signals waiting executions.

    ```
    await ff.signal(link, "done", {"rows": 3})               # by the link a handler gave out
    await ff.signal(run, "reply", payload={"rows": 3})       # by the key, inside your installation
    await ff.approve(run, "publish", by="ada", comment="looks good")
    ```
    """

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    async def signal(
        self,
        target: HasId | Waitpoint | str,
        word: str | None = None,
        payload: Any = NO_PAYLOAD,
        *,
        name: str | None = None,
        source: str | None = None,
        idempotency_key: str | None = None,
    ) -> Delivered:
        """Deliver a signal; the reply's `effect` says what it did.

        With a link or a waitpoint, `word` is the signal's name. With a run or its id, `word` is the
        key of the wait and `name` the signal's name (the key, unless given); the caller is trusted
        as an operator then, no token is needed. `source` is `"user:ada"`, or `"ada"` for a person.
        A repeated `idempotency_key` gets the first reply and counts once.
        """
        body = encoded(payload)
        source_type, source_identity = read_source(source)
        engine = await self.start()
        token: Token | None = None
        if isinstance(target, Waitpoint) or is_link(target):
            execution_id, waitpoint_id, token = _address(target)
            deliver = engine.deliver_signal
        else:
            if not word:
                raise InvalidInput("signal: name the key of the wait", field="word")
            execution_id = execution_of(target)
            found = await waitpoint_of(engine, execution_id, word)
            if idempotency_key is None:  # else it may be a repetition, which has a reply
                _refuse_closed(found)
            waitpoint_id = found.waitpoint_id
            deliver = engine.deliver_trusted_signal
        return await deliver(
            Signal(
                execution_id=execution_id,
                waitpoint_id=waitpoint_id,
                token=token,
                signal_name=next((each for each in (name, word) if each is not None), _NAME),
                source_type=source_type,
                source_identity=source_identity,
                payload=body,
                idempotency_key=idempotency_key,
                dedup_ttl_ms=DEDUP_TTL_MS_DEFAULT,
            )
        )

    async def approve(
        self,
        run: HasId | str,
        key: str,
        *,
        by: str,
        comment: str | None = None,
        payload: Any = NO_PAYLOAD,
    ) -> Delivered:
        """Approve in a person's name; the caller vouches for it. Twice counts once.

        A comment arrives as `{"comment": …}`; give a `payload` instead where the wait expects one.
        """
        return await self._decide(run, key, APPROVED, by, comment, payload)

    async def reject(
        self,
        run: HasId | str,
        key: str,
        *,
        by: str,
        comment: str | None = None,
        payload: Any = NO_PAYLOAD,
    ) -> Delivered:
        """Reject in a person's name: see `approve`."""
        return await self._decide(run, key, REJECTED, by, comment, payload)

    async def _decide(
        self,
        run: HasId | str,
        key: str,
        name: str,
        by: str,
        comment: str | None,
        payload: Any,
    ) -> Delivered:
        body = encoded(payload)
        if comment is not None:
            if body is not None:
                raise InvalidInput("comment: or a payload, not both", field="comment")
            check_text(comment, field="comment", max_bytes=SIGNAL_PAYLOAD_BYTES, control=True)
            body = encoded({"comment": comment})
        engine = await self.start()
        execution_id = execution_of(run)
        found = await waitpoint_of(engine, execution_id, key)
        return await engine.deliver_approval_signal(
            execution_id=execution_id,
            waitpoint_id=found.waitpoint_id,
            signal_name=name,
            idempotency_suffix=by,
            actor=by,
            comment=body,
        )

    async def resume(self, run: HasId | str, *, by: str | None = None) -> None:
        """End a wait whatever its condition says; the handler sees no signal for it."""
        engine = await self.start()
        await engine.resume_execution(execution_id=execution_of(run), actor=by)

    async def link(self, run: HasId | str, key: str, *, to: str | None = None) -> str:
        """The link of a wait, for one more callback. It is a credential: do not log it.

        `to`: a personal link, `ff.link(run, "review", to="ada")`: what is sent with it comes from
        this person. Others count as one source, however often they are used.

        It is signed with the current key: after a rotation it is another one than before, and
        good for as long as that key verifies.
        """
        engine = await self.start()
        return make_link(await _address_of(engine, execution_of(run), key, to))

    async def waits(
        self, *, lane: str | None = None, kind: str | None = None, limit: int | None = None
    ) -> list[WaitInfo]:
        """The open waits of suspended executions of this namespace, newest first; no tokens."""
        if limit is not None:
            limit = check_integer(limit, field="limit", least=0, most=1 << 53)
        engine = await self.start()
        return await all_waits(
            engine, namespace=engine.home_namespace, lane=lane, kind=kind, limit=limit
        )


def execution_of(run: object) -> str:
    """The id of a run, or the id itself. A token or half a link is refused without repeating it."""
    if isinstance(run, str):
        if not run.startswith("{"):
            raise InvalidLink("target: neither a run's id nor a link", field="target")
        return run
    found = getattr(run, "id", None)
    if not isinstance(found, str):
        detail = f"target: expected a run, its id or a link, got {type(run).__name__}"
        raise InvalidInput(detail, field="target")
    return found


def read_source(source: str | None) -> tuple[str, str]:
    """`user:ada` in its two parts; a bare name is a person's.

    >>> read_source("ada"), read_source("service:crm"), read_source(None)
    (('user', 'ada'), ('service', 'crm'), ('', ''))
    """
    if source is None:
        return "", ""
    if not isinstance(source, str) or not source.strip(":"):
        raise InvalidInput('source: write "user:ada" or "ada"', field="source")
    kind, colon, identity = source.partition(":")
    return (kind, identity) if colon else (_PERSON, source)


def encoded(payload: Any) -> bytes | None:
    """A payload as JSON; a missing payload is not null."""
    if payload is NO_PAYLOAD:
        return None
    if isinstance(payload, bytes):
        return payload
    try:
        return codec.encode(payload)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"payload: {error}", field="payload") from None


async def waitpoint_of(engine: EngineBackend, execution_id: str, key: str) -> WaitpointRow:
    """The waitpoint of a key, open or not; an error names the existing keys."""
    found = await engine.find_waitpoint(execution_id=execution_id, waitpoint_key=key)
    if found is not None:
        return found
    page = await engine.list_pending_waitpoints(execution_id=execution_id, limit=PAGE_MAX)
    keys = sorted({each.waitpoint_key for each in page.items})
    there = f"it waits on {', '.join(keys)}" if keys else "it waits on nothing"
    raise NotFound(f"waitpoint {key} of {execution_id}: {there}", entity="waitpoint")


async def all_waits(
    engine: EngineBackend,
    *,
    namespace: str | None = None,
    lane: str | None = None,
    kind: str | None = None,
    limit: int | None = None,
) -> list[WaitInfo]:
    """Every page of waits, up to a number."""
    found: list[WaitInfo] = []
    cursor: str | None = None
    while limit is None or len(found) < limit:
        size = PAGE_MAX if limit is None else min(PAGE_MAX, limit - len(found))
        page = await engine.list_waits(
            namespace=namespace, lane_id=lane, execution_kind=kind, cursor=cursor, limit=size
        )
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _address(target: object) -> Address:
    if isinstance(target, Waitpoint):
        return Address(target.execution_id, target.id, target.token)
    return read_link(target)


async def _address_of(
    engine: EngineBackend, execution_id: str, key: str, recipient: str | None
) -> Address:
    """The address of a key; only an open waitpoint has one."""
    found = await waitpoint_of(engine, execution_id, key)
    _refuse_closed(found)
    waitpoint_id = found.waitpoint_id
    token = await engine.read_waitpoint_token(
        execution_id=execution_id, waitpoint_id=waitpoint_id, recipient=recipient
    )
    if token is None:
        raise _closed(found)
    return Address(execution_id, waitpoint_id, token)


def _refuse_closed(waitpoint: WaitpointRow) -> None:
    if waitpoint.state is WaitpointState.CLOSED:
        raise _closed(waitpoint)


def _closed(waitpoint: WaitpointRow) -> WaitpointClosed:
    reason = waitpoint.close_reason or "just now"
    return WaitpointClosed(f"waitpoint {waitpoint.waitpoint_key}: closed, {reason}")
