"""Mailboxes: addresses of an execution that are open from its creation to its end.

Messages are taken in the order in which they came. The one that a handler takes is copied into its
journal in the same transaction; its row goes, or stays without its payload until it is answered.
"""

from __future__ import annotations

from typing import Final

import msgspec

from flowfabric.model.columns import Counter, Instant, Long
from flowfabric.model.record import Record, to_json

# The signal that wakes a receiver; with the name of its mailbox the key of the waitpoint there.
MESSAGE: Final = "__message"
_PLACE: Final = f"{MESSAGE}:"


def place_of(mailbox: str) -> str:
    """The key of the waitpoint at which receivers of a mailbox wait.

    >>> place_of("orders")
    '__message:orders'
    """
    return f"{_PLACE}{mailbox}"


def mailbox_at(waitpoint_key: str) -> str | None:
    """The mailbox that such a waitpoint is about.

    >>> mailbox_at("__message:orders"), mailbox_at("orders")
    ('orders', None)
    """
    is_place = waitpoint_key.startswith(_PLACE)
    return waitpoint_key.removeprefix(_PLACE) if is_place else None


# --- rows, written under the lock of their execution ---------------------------------------------


class MailboxRow(Record, frozen=True):
    """One open mailbox."""

    execution_id: str
    mailbox: str
    payload_type: str | None = None  # a JSON schema that messages must fit
    sent: Long = 0  # how many ever came: the number of the next one
    received: Long = 0  # how many were taken: the number of the next unread one
    unread_bytes: Long = 0
    waitpoint_id: str | None = None  # where a receiver wants to be told

    @property
    def unread(self) -> int:
        """How many messages wait to be received."""
        return self.sent - self.received


class MessageRow(Record, frozen=True):
    """A message that is unread, or whose sender wants an answer."""

    execution_id: str
    mailbox: str
    number: Long
    message_id: str
    sent_at: Instant
    sender: str
    wants_reply: Counter  # 1: it does
    payload: bytes | None = None  # none once it was received
    received_at: Instant | None = None
    reply: bytes | None = None
    replied_at: Instant | None = None
    due_at: Instant | None = None  # when one that is answered goes


class MessageKeyRow(Record, frozen=True):
    """Which message was sent first under a key."""

    execution_id: str
    mailbox: str
    idempotency_key: str
    number: Long
    message_id: str
    due_at: Instant


# --- what callers get ----------------------------------------------------------------------------


class Sent(Record, frozen=True):
    """A message that is accepted. `is_new`: it is not one sent before under its key."""

    mailbox: str
    number: int
    message_id: str
    is_new: bool = True


class Message(Record, frozen=True):
    """A message as its receiver gets it; `payload` is JSON."""

    mailbox: str
    number: int
    message_id: str
    sent_at: int
    sender: str
    wants_reply: bool
    payload: bytes


class MessagePage(Record, frozen=True):
    """Unread messages in their order; read on after the number of the last one."""

    messages: tuple[Message, ...]
    has_more: bool = False


class MailboxInfo(Record, frozen=True):
    """One mailbox: how many messages are unread, and how many were received."""

    mailbox: str
    unread: int
    received: int
    unread_bytes: int
    payload_type: str | None


class Listening(Record, frozen=True):
    """Where the receiver is told of the next message, by mailbox. Nowhere, where an unread one is
    there already."""

    places: dict[str, str]


class Replied(Record, frozen=True):
    """An answer that is kept for its sender. `is_wanted`: one waits for it, or may."""

    is_wanted: bool


class Reply(Record, frozen=True):
    """The answer to a message, as JSON."""

    payload: bytes
    replied_at: int


# --- a received message as the value of an entry -------------------------------------------------


class _Head(Record, frozen=True):
    mailbox: str
    number: int
    message_id: str
    sent_at: int
    sender: str
    wants_reply: bool


class _Recorded(_Head, frozen=True):
    payload: msgspec.Raw


_RECORDED: Final[msgspec.json.Decoder[_Recorded]] = msgspec.json.Decoder(_Recorded)


def recorded_value(message: Message) -> bytes:
    """A message as the value of the entry that records its receipt."""
    head = _Head(
        message.mailbox,
        message.number,
        message.message_id,
        message.sent_at,
        message.sender,
        message.wants_reply,
    )
    return to_json(head)[:-1] + b',"payload":' + message.payload + b"}"


def recorded_message(value: bytes) -> Message:
    """The message of such an entry."""
    found = _RECORDED.decode(value)
    return Message(
        found.mailbox,
        found.number,
        found.message_id,
        found.sent_at,
        found.sender,
        found.wants_reply,
        bytes(found.payload),
    )
