"""Messages to running executions; see docs/guides/messages.md."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from flowfabric import ids, limits
from flowfabric.api import mail as api
from flowfabric.api.hints import end_topic, stream_topic, wait_event
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.new_entries import checkpoint_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.requests import check_mailbox
from flowfabric.engine.operations.signals import problem_of
from flowfabric.engine.operations.stream_reads import found_execution
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.errors import (
    InvalidInput,
    InvalidPayload,
    NoReply,
    NotFound,
    PayloadTooLarge,
    WaitTimeout,
)
from flowfabric.kernel.mail.receive import (
    ListenMailboxes,
    ReceiveMessage,
    is_about_a_message,
)
from flowfabric.kernel.mail.reply import ReplyMessage
from flowfabric.kernel.mail.send import SendMessage, unknown_mailbox
from flowfabric.kernel.wait.signal import TypeDeclared
from flowfabric.model.checks import (
    check_flag,
    check_integer,
    check_list,
    check_name,
    check_text,
)
from flowfabric.model.execution import Execution
from flowfabric.model.mailbox import MailboxInfo, Message, MessagePage, MessageRow, Reply, Sent
from flowfabric.model.nesting import JSON, check_nesting
from flowfabric.model.record import replace
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import MAILBOXES, MESSAGES

_NUMBER_MAX: Final = (1 << 53) - 1

# --- sending and receiving -----------------------------------------------------------------------


@answers(api.SendMessage)
async def send_message(machine: Machine, request: api.SendMessage) -> Sent:
    """A payload is compared with its type while no transaction is open, as those of signals."""
    key = request.idempotency_key
    if key is not None:
        key = check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
    command = SendMessage(
        execution_id=machine.check_id(request.execution_id),
        mailbox=check_mailbox(request.mailbox),
        message_id=ids.new_secret_id(),
        payload=_json(request.payload),
        sender=check_text(request.sender, field="sender", max_bytes=limits.NAME_BYTES, empty=True),
        wants_reply=check_flag(request.wants_reply, field="wants_reply"),
        idempotency_key=key,
        dedup_ttl_ms=check_integer(
            request.dedup_ttl_ms, field="dedup_ttl_ms", least=0, most=limits.DURATION_MS_MAX
        ),
    )
    told = await machine.execute(command)
    while isinstance(told, TypeDeclared):  # it never changes, so this is twice at most
        if problem := await problem_of(command.payload, told.payload_type):
            raise problem.to_error()
        told = await machine.execute(replace(command, fits=told.payload_type))
    return told


@commands(api.ReceiveMessage)
def receive_message(machine: Machine, request: api.ReceiveMessage) -> ReceiveMessage:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    entries = checkpoint_command(handle, request.entries, None, machine.config)
    if not is_about_a_message(entries):
        detail = "entries: the last one must be of the kind message"
        raise InvalidInput(detail, field="entries")
    return ReceiveMessage(
        execution_id=handle.execution_id,
        fence=handle.fence,
        mailbox=check_mailbox(request.mailbox),
        entries=entries,
    )


@commands(api.ListenMailboxes)
def listen_mailboxes(machine: Machine, request: api.ListenMailboxes) -> ListenMailboxes:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    names = [
        check_mailbox(each, field="mailboxes")
        for each in check_list(request.mailboxes, field="mailboxes")
    ]
    if not 1 <= len(names) <= limits.MAILBOXES_MAX:
        most = limits.MAILBOXES_MAX
        detail = f"mailboxes: {len(names)} is not between 1 and {most}"
        raise InvalidInput(detail, field="mailboxes")
    return ListenMailboxes(
        execution_id=handle.execution_id,
        fence=handle.fence,
        places=tuple((name, ids.new_secret_id()) for name in dict.fromkeys(names)),
    )


@commands(api.ReplyMessage)
def reply_message(machine: Machine, request: api.ReplyMessage) -> ReplyMessage:
    """By the owner."""
    handle = machine.check_handle(request.handle)
    several: Any = request.entries
    entries = None
    if several != ():
        entries = checkpoint_command(handle, several, None, machine.config)
    return ReplyMessage(
        execution_id=handle.execution_id,
        fence=handle.fence,
        mailbox=check_mailbox(request.mailbox),
        number=_number(request.number),
        message_id=check_name(request.message_id, field="message_id"),
        payload=_json(request.payload),
        entries=entries,
    )


# --- answers -------------------------------------------------------------------------------------


@answers(api.WaitForReply)
async def wait_for_reply(machine: Machine, request: api.WaitForReply) -> Reply:
    """Read, and read again after each hint, until there is one, the end, or no time left."""
    checked, mailbox = machine.check_id(request.execution_id), check_mailbox(request.mailbox)
    key = (checked, mailbox, _number(request.number))
    message_id = check_name(request.message_id, field="message_id")
    until = wait_until(request.wait_ms)

    async def look(reader: Reader) -> tuple[Execution, MessageRow | None]:
        # The execution first: an answer that came before its end is seen then.
        execution = await found_execution(reader, checked)
        return execution, (await reader.peek_rows(MESSAGES, [key])).get(key)

    with machine.wakeups.listening((stream_topic(checked), end_topic(checked))) as woken:
        while True:
            execution, row = await machine.read(look)
            if row is None or row.message_id != message_id or not row.wants_reply:
                detail = f"message {key[2]} of {mailbox}: no answer of it is kept"
                raise NotFound(detail, entity="message")
            if row.replied_at is not None:
                return Reply(row.reply or b"null", row.replied_at)
            if execution.is_terminal:
                state = execution.public_state.value
                detail = f"execution {checked} is {state}, and message {key[2]} of {mailbox} has "
                raise NoReply(f"{detail}no answer", public_state=state)
            pause = min(left_s(until), machine.config.poll_interval_ms / 1000)
            if pause <= 0:
                detail = f"message {key[2]} of {mailbox} has no answer yet"
                raise WaitTimeout(detail, public_state=execution.public_state.value)
            await wait_event(woken, pause)


# --- for people ----------------------------------------------------------------------------------


@answers(api.ListMailboxes)
async def list_mailboxes(machine: Machine, request: api.ListMailboxes) -> tuple[MailboxInfo, ...]:
    """By name."""
    checked = machine.check_id(request.execution_id)

    async def work(reader: Reader) -> tuple[MailboxInfo, ...]:
        await found_execution(reader, checked)
        rows = await reader.peek_rows(MAILBOXES, [(checked,)])
        return tuple(
            MailboxInfo(
                each.mailbox, each.unread, each.received, each.unread_bytes, each.payload_type
            )
            for _, each in sorted(rows.items())
        )

    return await machine.read(work)


@answers(api.ReadMessages)
async def read_messages(machine: Machine, request: api.ReadMessages) -> MessagePage:
    """Oldest first."""
    checked, mailbox = machine.check_id(request.execution_id), check_mailbox(request.mailbox)
    after = None if request.after is None else _number(request.after, field="after")
    limit = check_integer(request.limit, field="limit", least=1, most=limits.PAGE_MAX)

    async def work(reader: Reader) -> MessagePage:
        await found_execution(reader, checked)
        key = (checked, mailbox)
        box = (await reader.peek_rows(MAILBOXES, [key])).get(key)
        if box is None:
            raise unknown_mailbox(checked, mailbox).to_error()
        first = box.received if after is None else max(after + 1, box.received)
        search = Search(by_key(MESSAGES), (key,), after=(first - 1,), limit=limit + 1)
        rows = await reader.search(search)
        found = tuple(_shown(row) for row in rows[:limit] if row.payload is not None)
        return MessagePage(found, len(rows) > limit)

    return await machine.read(work)


def _shown(row: MessageRow) -> Message:
    return Message(
        row.mailbox,
        row.number,
        row.message_id,
        row.sent_at,
        row.sender,
        bool(row.wants_reply),
        row.payload or b"null",
    )


# --- checks --------------------------------------------------------------------------------------


def _json(value: object) -> bytes:
    """JSON, as large as that of a signal."""
    field = "payload"
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{field}: expected bytes, got {type(value).__name__}", field=field)
    data, most = bytes(value), limits.SIGNAL_PAYLOAD_BYTES
    if len(data) > most:
        detail = f"{field}: {len(data)} bytes is over the limit {most}"
        raise PayloadTooLarge(detail, field=field, limit=most)
    check_nesting(data, JSON, field=field, error=InvalidPayload)
    try:
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidPayload(f"{field}: is not JSON: {error}", field=field) from None
    return data


def _number(value: object, *, field: str = "number") -> int:
    return check_integer(value, field=field, least=0, most=_NUMBER_MAX)
