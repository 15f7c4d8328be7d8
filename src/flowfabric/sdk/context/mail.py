"""Messages that a handler receives, and its answers to them."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar, overload

import msgspec

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import InvalidInput, MailboxEmpty, UnknownMailbox
from flowfabric.model.journal import EntryError, EntryKind, EntryState, NewEntry
from flowfabric.model.mailbox import Message as Received
from flowfabric.model.mailbox import Replied, recorded_message, recorded_value
from flowfabric.model.shown import shown
from flowfabric.model.suspension import ResumeInfo
from flowfabric.sdk import codec
from flowfabric.sdk.context.waiting import MISSING, Missing, Waits
from flowfabric.sdk.durations import Moment, instant_ms, to_datetime, to_ms
from flowfabric.sdk.errors import ResultMismatch, WaitTimedOut
from flowfabric.sdk.journal.failures import Failure
from flowfabric.sdk.journal.interruption import interruptible, to_its_end
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.room import Waiter
from flowfabric.sdk.journal.scopes import Scope, name_with, own_scope

T = TypeVar("T")
_OVER: Final = b"null"  # the value of a wait whose time was over
_UNTIL: Final[msgspec.json.Decoder[int]] = msgspec.json.Decoder(int)


class _Facts(Generic[T]):
    """What is known of a message."""

    __slots__ = ("_owner", "_received", "value")

    def __init__(self, owner: Any, received: Received, value: T) -> None:
        self._owner = owner
        self._received = received
        self.value: T = value

    @property
    def mailbox(self) -> str:
        """Where it came."""
        return self._received.mailbox

    @property
    def number(self) -> int:
        """Which message of its mailbox it is, from 0."""
        return self._received.number

    @property
    def sent_at(self) -> datetime:
        """When it came, by the store's clock."""
        return to_datetime(self._received.sent_at)

    @property
    def sender(self) -> str:
        """The name that its sender gave, or nothing."""
        return self._received.sender

    @property
    def wants_reply(self) -> bool:
        """Whether its sender waits for an answer (`run.ask`)."""
        return self._received.wants_reply

    def __repr__(self) -> str:
        return f"Message({self.mailbox!r}, {self.number}, {self.value!r})"


class Message(_Facts[T]):
    """A message that an async handler has received: `value` is what was sent."""

    __slots__ = ()

    async def reply(self, value: Any) -> None:
        """Answer it, once: the sender that asked gets the value. It is recorded with the answer,
        so another run of the handler does not answer again. To a message whose sender does not wait
        it does nothing."""
        scope = own_scope("reply", self._owner.journal)
        await reply(self._owner, scope, self._received, value)


class SyncMessage(_Facts[T]):
    """A message that a sync handler has received: `value` is what was sent."""

    __slots__ = ()

    def reply(self, value: Any) -> None:
        """Answer it, once: see `Message.reply`."""
        scope = own_scope("reply", self._owner.journal)
        self._owner.wait_for(reply(self._owner, scope, self._received, value))


class ReceiveCall:
    """One receive of a handler, as it stands in the journal."""

    def __init__(self, owner: Any, scope: Scope, mailbox: str, timeout: Moment | None) -> None:
        self._owner = owner
        self._journal: Journal = owner.journal
        self._mailbox = mailbox
        self._timeout = timeout
        self._due: int | None = None
        self._is_noted = False
        if timeout is not None:  # refused here, where the traceback helps
            _instant(owner, timeout)
        self.key = scope.key(name_with("receive", mailbox)).now
        self._asked = self._journal.ask(scope, self.key, kind=EntryKind.MESSAGE)

    async def message(self) -> Received | None:
        """The next unread one; None where its time is over."""
        answer = self._asked.answer
        if answer is not None:
            return None if answer.value in (None, _OVER) else recorded_message(answer.value or b"")
        while (found := await self._take()) is None:
            waiter = Waiter(self._until(), mailbox=self._mailbox, began_at=self._began_at)
            ended = await interruptible(self._owner, self._journal.room.wait(waiter))
            if isinstance(ended, ResumeInfo):
                found = await self._take()  # it may have come in the last moment
                if found is None:
                    self._note(EntryState.OK, value=_OVER)
                break
        return found

    async def _take(self) -> Received | None:
        """A message with its entry, in one transaction; None where the mailbox is empty."""
        journal = self._journal
        entry = NewEntry(
            position=0,
            key=self.key,
            kind=EntryKind.MESSAGE,
            asked=self._asked.number,
            began_at=max(0, self._owner.now_ms()),
        )
        try:
            found = await interruptible(
                self._owner, to_its_end(journal.outbox.carry([entry], self._ask))
            )
        except MailboxEmpty:
            return None
        journal.note_size(len(recorded_value(found)))
        return found

    async def _ask(self, entries: tuple[NewEntry, ...]) -> Received:
        take = partial(_receive, self._owner.claimed.handle, self._mailbox, entries)
        found: Received = await self._owner.ask(take)
        return found

    @property
    def _began_at(self) -> int | None:
        entry = self._asked.entry
        return None if entry is None else entry.recorded_at

    def _until(self) -> int | None:
        """When the wait ends, as the first run has recorded it."""
        if not self._is_noted:
            entry, self._is_noted = self._asked.entry, True
            if entry is not None and entry.state is EntryState.OPEN:
                self._due = _UNTIL.decode(entry.value) if entry.value else None
            else:
                due = None if self._timeout is None else _instant(self._owner, self._timeout)
                self._due = due
                self._note(EntryState.OPEN, value=None if due is None else str(due).encode())
        return self._due

    def _note(self, state: EntryState, **more: Any) -> None:
        number = self._asked.number
        self._journal.add(self.key, number, kind=EntryKind.MESSAGE, state=state, **more)

    def timed_out(self) -> WaitTimedOut:
        """The exception of a receive without a message; the next attempt waits again if it ends
        this one."""
        error = WaitTimedOut(f"{self.key}: no message came in time", key=self.key)
        kept = EntryError(WaitTimedOut.__name__, error.detail)
        number = self._asked.number
        self._journal.failed(Failure(self.key, number, None, kept, 1, error, EntryKind.MESSAGE))
        return error


def _receive(
    handle: Any, mailbox: str, entries: tuple[NewEntry, ...], engine: EngineBackend
) -> Awaitable[Received]:
    return engine.receive_message(handle, mailbox=mailbox, entries=entries)


def _instant(owner: Any, timeout: Moment) -> int:
    if isinstance(timeout, datetime):
        return instant_ms(timeout, field="timeout")
    now: int = owner.now_ms()
    return now + to_ms(timeout, field="timeout")


async def receive(
    owner: Any,
    scope: Scope,
    mailbox: str,
    kind: Any,
    timeout: Moment | None,
    default: Any,
    made: Any,
) -> Any:
    """The next unread message as `made`, or the default."""
    declared = owner.task.mailboxes
    if not isinstance(mailbox, str) or mailbox not in declared:
        known = ", ".join(sorted(declared)) or "none"
        detail = f"{owner.task.name} has no mailbox {shown(mailbox, 80)}; it declares: {known}"
        raise UnknownMailbox(detail, field="mailbox", mailbox=shown(mailbox, 80))
    decoder = declared[mailbox].decoder if kind is None else codec.decoder_of(kind, field="kind")
    call = ReceiveCall(owner, scope, mailbox, timeout)
    found = await call.message()
    if found is None:
        if not isinstance(default, Missing):
            return default
        raise call.timed_out()
    try:
        value = decoder.decode(found.payload)
    except codec.DecodeErrors as error:
        detail = f"{call.key}: message {found.number}: {error}"
        raise ResultMismatch(
            detail, execution_id=owner.claimed.execution_id, result=found.payload
        ) from None
    return made(owner, found, value)


async def reply(owner: Any, scope: Scope, received: Received, value: Any) -> None:
    """Answer a message, and record it, in one transaction."""
    try:
        payload = codec.encode(value)
    except codec.EncodeErrors as error:
        raise InvalidInput(f"reply: cannot be written as JSON: {error}", field="reply") from None
    if not received.wants_reply:
        return
    journal: Journal = owner.journal
    key = scope.key(name_with("reply", received.mailbox)).now
    asked = journal.ask(scope, key, kind=EntryKind.REPLY)
    if asked.answer is not None:
        return
    entry = journal.entry(key, asked.number, kind=EntryKind.REPLY, value=payload)

    async def send(entries: tuple[NewEntry, ...]) -> Replied:
        answer = partial(_reply, owner.claimed.handle, received, payload, entries)
        told: Replied = await owner.ask(answer)
        return told

    await interruptible(owner, to_its_end(journal.outbox.carry([entry], send)))
    journal.note_size(len(payload))


def _reply(
    handle: Any,
    received: Received,
    payload: bytes,
    entries: tuple[NewEntry, ...],
    engine: EngineBackend,
) -> Coroutine[Any, Any, Replied]:
    return engine.reply_message(
        handle,
        mailbox=received.mailbox,
        number=received.number,
        message_id=received.message_id,
        payload=payload,
        entries=entries,
    )


class Receiving(Waits):
    """The mailboxes of an async handler."""

    __slots__ = ()

    @overload
    async def receive(
        self, mailbox: str, kind: type[T], *, timeout: Moment | None = None
    ) -> Message[T]: ...
    @overload
    async def receive(
        self, mailbox: str, kind: None = None, *, timeout: Moment | None = None
    ) -> Message[Any]: ...
    @overload
    async def receive(
        self, mailbox: str, kind: Any = None, *, timeout: Moment | None = None, default: Any
    ) -> Any: ...

    async def receive(
        self,
        mailbox: str,
        kind: Any = None,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> Any:
        """The next unread message of a mailbox, in the order in which they came.

            message = await ctx.receive("orders", Order, timeout="1h")
            await message.reply(await accept(message.value))

        While none is there it waits without a worker. When its time is over it gives `default`, or
        raises `WaitTimedOut`. Messages are sent with `run.send` and `run.ask`.
        """
        return await receive(self._owner, self._here(), mailbox, kind, timeout, default, Message)


class SyncReceiving(Waits):
    """The mailboxes of a sync handler."""

    __slots__ = ()

    @overload
    def receive(
        self, mailbox: str, kind: type[T], *, timeout: Moment | None = None
    ) -> SyncMessage[T]: ...
    @overload
    def receive(
        self, mailbox: str, kind: None = None, *, timeout: Moment | None = None
    ) -> SyncMessage[Any]: ...
    @overload
    def receive(
        self, mailbox: str, kind: Any = None, *, timeout: Moment | None = None, default: Any
    ) -> Any: ...

    def receive(
        self,
        mailbox: str,
        kind: Any = None,
        *,
        timeout: Moment | None = None,
        default: Any = MISSING,
    ) -> Any:
        """The next unread message of a mailbox: see `Context.receive`."""
        waiting = receive(self._owner, self._here(), mailbox, kind, timeout, default, SyncMessage)
        return self._owner.wait_for(waiting)
