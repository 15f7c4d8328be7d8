"""Messages to running executions: sent to a mailbox, received in order, answered once."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.refusals import BY_HANDLE, JOURNALED
from flowfabric.errors import (
    InvalidPayload,
    KeyringEmpty,
    MailboxEmpty,
    NoReply,
    NotFound,
    PayloadTooLarge,
    SignalLimitExceeded,
    TargetNotSignalable,
    UnknownMailbox,
    WaitTimeout,
)
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.mailbox import (
    Listening,
    MailboxInfo,
    Message,
    MessagePage,
    Replied,
    Reply,
    Sent,
)


@operation(
    "send_message",
    Kind.WRITE,
    Scope.APPROVE,
    errors=(
        NotFound,
        UnknownMailbox,
        TargetNotSignalable,
        InvalidPayload,
        PayloadTooLarge,
        SignalLimitExceeded,
    ),
)
class SendMessage(Request[Sent], frozen=True, kw_only=True):
    """Put a message (JSON) into a mailbox of an execution that has not ended.

    It must fit the schema that the mailbox was made with. A repeated `idempotency_key` answers
    as the first call, for `dedup_ttl_ms`. `wants_reply`: its answer is kept, see
    `wait_for_reply`.
    """

    execution_id: str
    mailbox: str
    payload: bytes
    sender: str = ""
    wants_reply: bool = False
    idempotency_key: str | None = None
    dedup_ttl_ms: int = limits.DEDUP_TTL_MS_DEFAULT


@operation(
    "receive_message",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, *JOURNALED, UnknownMailbox, MailboxEmpty),
)
class ReceiveMessage(Request[Message], frozen=True, kw_only=True):
    """Take the next unread message, and record it, in one transaction.

    `entries`: added to the journal; the last one is of the kind `message`, and its value
    becomes the message. A repeated call finds its entry and answers as the first.
    `MailboxEmpty` adds nothing.
    """

    handle: Handle
    mailbox: str
    entries: Sequence[NewEntry]


@operation(
    "listen_mailboxes",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, KeyringEmpty, UnknownMailbox),
)
class ListenMailboxes(Request[Listening], frozen=True, kw_only=True):
    """Have a signal when a message comes to one of some mailboxes.

    The reply names a pending waitpoint of each to wait on; or none, where a message is unread
    already: that is to be received first.
    """

    handle: Handle
    mailboxes: Sequence[str]


@operation("reply_message", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *JOURNALED))
class ReplyMessage(Request[Replied], frozen=True, kw_only=True):
    """Answer a message that was received, once, with JSON; `entries` are added with it."""

    handle: Handle
    mailbox: str
    number: int
    message_id: str
    payload: bytes
    entries: Sequence[NewEntry] = ()


@operation(
    "wait_for_reply",
    Kind.WAIT,
    Scope.APPROVE,
    errors=(NotFound, NoReply, WaitTimeout),
)
class WaitForReply(Request[Reply], frozen=True, kw_only=True):
    """The answer to a message, once there is one.

    `NoReply` when the execution has ended without; `WaitTimeout` when that takes too long.
    Answers are kept for a day.
    """

    execution_id: str
    mailbox: str
    number: int
    message_id: str
    wait_ms: int | None = None


@operation("list_mailboxes", Kind.READ, Scope.READ, errors=(NotFound,))
class ListMailboxes(Request[tuple[MailboxInfo, ...]], frozen=True, kw_only=True):
    """The mailboxes of an execution by name, with how many messages wait in each.

    All of them: it has at most `limits.MAILBOXES_MAX`.
    """

    execution_id: str


@operation("read_messages", Kind.READ, Scope.READ, errors=(NotFound, UnknownMailbox))
class ReadMessages(Request[MessagePage], frozen=True, kw_only=True):
    """Unread messages of a mailbox in their order, after a number."""

    execution_id: str
    mailbox: str
    after: int | None = None
    limit: int = limits.PAGE_DEFAULT
