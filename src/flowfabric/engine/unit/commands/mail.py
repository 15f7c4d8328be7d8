"""Commands about mailboxes. Their rows change under the lock of their execution."""

from __future__ import annotations

from flowfabric import ids
from flowfabric.engine.unit.commands import journal
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.handlers import handles
from flowfabric.engine.unit.unit import Unit
from flowfabric.errors import Corruption
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.mail import receive, reply, send
from flowfabric.kernel.mail.receive import with_message
from flowfabric.kernel.repeat import in_force
from flowfabric.kernel.wait.signal import TypeDeclared, deliver
from flowfabric.model.journal import EntryRow
from flowfabric.model.mailbox import (
    Listening,
    MailboxRow,
    Message,
    MessageKeyRow,
    MessageRow,
    Replied,
    Sent,
    recorded_message,
)
from flowfabric.model.record import replace
from flowfabric.model.suspension import WaitpointRow, WaitpointState
from flowfabric.stores.base import Corrupt
from flowfabric.stores.tables import MAILBOXES, MESSAGE_KEYS, MESSAGES


@handles(send.SendMessage)
async def send_message(unit: Unit, command: send.SendMessage) -> Sent | TypeDeclared | Refused:
    """By anything that may send."""
    view = unit.view
    if refusal := _refuse_corrupt(unit, command.execution_id):
        return refusal
    execution = view.execution(command.execution_id)
    mailbox = _mailbox(unit, command.execution_id, command.mailbox)
    seen = await _seen(unit, command)
    decision = send.send(execution, mailbox, seen, command, view.at)
    told = view.apply(None, decision, command)
    if decision.saves:
        await _wake(unit, command)
    return told


async def _seen(unit: Unit, command: send.SendMessage) -> MessageKeyRow | None:
    """An earlier message with the same key. A key whose time is over may be swept meanwhile: it is
    locked before it is used again."""
    if command.idempotency_key is None:
        return None
    rows, key = unit.view.rows, (command.execution_id, command.mailbox, command.idempotency_key)
    found = rows.get(MESSAGE_KEYS, key)
    lapsed = found is not None and in_force(found, unit.view.at.now) is None
    if lapsed and not await unit.tx.rows(MESSAGE_KEYS, [key]):
        rows.forget(MESSAGE_KEYS, [key])
    return found


async def _wake(unit: Unit, command: send.SendMessage) -> None:
    """Tell the receiver that wanted to be told, once. A wait that cannot be read is left for an
    operator, who ends it: then the message is found."""
    view, key = unit.view, command.execution_id
    mailbox, execution = _mailbox(unit, key, command.mailbox), view.execution(key)
    if mailbox is None or mailbox.waitpoint_id is None or execution is None:
        return
    if unit.waits.refuse_unreadable(key) is not None:
        return
    await unit.waits.look_at([execution], [(mailbox.waitpoint_id,)])
    place = unit.waits.waitpoint(mailbox.waitpoint_id)
    view.rows.put(MAILBOXES, replace(mailbox, waitpoint_id=None))
    if place is None or place.state is WaitpointState.CLOSED:
        return
    signal = send.arrival(mailbox, ids.new_secret_id())
    episode = unit.waits.episode(execution)
    decision = deliver(execution, place, episode, None, signal, view.at)
    view.apply(execution, decision, signal, ends_wait=True)


@handles(receive.ReceiveMessage)
async def receive_message(unit: Unit, command: receive.ReceiveMessage) -> Message | Refused:
    """By the owner of the lease. A repeated call finds the message in the journal."""
    view, key = unit.view, command.execution_id
    if refusal := _refuse_corrupt(unit, key):
        return refusal
    execution, mailbox = view.execution(key), _mailbox(unit, key, command.mailbox)
    first = None if mailbox is None else await _message(unit, mailbox)
    if isinstance(first, Refused):
        return first
    decision = receive.receive(execution, mailbox, first, command, view.at)
    entries, taken = command.entries, decision.reply
    if isinstance(taken, Message):
        entries = with_message(entries, taken)
    else:
        await journal.look_for(unit, entries)  # the repeated call may have taken the last one
    journaled = await journal.decided(unit, entries)
    if isinstance(journaled.reply, Refused):
        return journaled.reply
    if not any(isinstance(row, EntryRow) for row in journaled.saves):
        return _recorded(unit, command)
    if isinstance(taken, Refused):
        return taken
    recorded = journal.taken(unit, entries, journaled)
    return recorded if isinstance(recorded, Refused) else view.apply(None, decision, command)


def _recorded(unit: Unit, command: receive.ReceiveMessage) -> Message | Refused:
    """The message that the same call has taken before."""
    entry = journal.last_recorded(unit, command.entries)
    if entry is None or entry.value is None:
        detail = f"execution {command.execution_id}: the entry of a message has none"
        return Refused(Corruption, detail)
    return recorded_message(entry.value)


async def _message(unit: Unit, mailbox: MailboxRow) -> MessageRow | Refused | None:
    """The next unread message."""
    if not mailbox.unread:
        return None
    rows, key = unit.view.rows, (mailbox.execution_id, mailbox.mailbox, mailbox.received)
    if rows.get(MESSAGES, key) is None:
        found, spoiled = await readable(unit.tx.peek_rows, MESSAGES, [key])
        if spoiled:
            return Refused(Corruption, next(iter(spoiled.values())))
        rows.take(MESSAGES, found)
    return rows.get(MESSAGES, key)


@handles(receive.ListenMailboxes)
async def listen_mailboxes(unit: Unit, command: receive.ListenMailboxes) -> Listening | Refused:
    """By the owner of the lease."""
    view, key = unit.view, command.execution_id
    if refusal := _refuse_corrupt(unit, key) or unit.waits.refuse_unreadable(key):
        return refusal
    execution = view.execution(key)
    found = {name: _mailbox(unit, key, name) for name, _ in command.places}
    named = {
        name: row.waitpoint_id
        for name, row in found.items()
        if row is not None and row.waitpoint_id is not None
    }
    waitpoints: dict[str, WaitpointRow | None] = {}
    if named and execution is not None:
        await unit.waits.look_at([execution], sorted((each,) for each in named.values()))
        waitpoints = {name: unit.waits.waitpoint(each) for name, each in named.items()}
    decision = receive.listen(
        execution, found, waitpoints, unit.waits.signing_key, command, view.at
    )
    return view.apply(execution, decision, command, ends_wait=True)


@handles(reply.ReplyMessage)
async def reply_message(unit: Unit, command: reply.ReplyMessage) -> Replied | Refused:
    """By the owner of the lease. A repeated call finds its entry."""
    view = unit.view
    if refusal := _refuse_corrupt(unit, command.execution_id):
        return refusal
    execution = view.execution(command.execution_id)
    message = view.rows.get(MESSAGES, (command.execution_id, command.mailbox, command.number))
    decision = reply.reply(execution, message, command, view.at)
    if command.entries is not None:
        if isinstance(decision.reply, Refused):
            await journal.look_for(unit, command.entries)
        journaled = await journal.decided(unit, command.entries)
        if isinstance(journaled.reply, Refused):
            return journaled.reply
        if not any(isinstance(row, EntryRow) for row in journaled.saves):
            return Replied(is_wanted=message is not None)
        if isinstance(decision.reply, Refused):
            return decision.reply
        recorded = journal.taken(unit, command.entries, journaled)
        if isinstance(recorded, Refused):
            return recorded
    view.effects.grown.add(command.execution_id)  # its sender may wait for it
    return view.apply(None, decision, command)


def _mailbox(unit: Unit, execution_id: str, mailbox: str) -> MailboxRow | None:
    return unit.view.rows.get(MAILBOXES, (execution_id, mailbox))


def _refuse_corrupt(unit: Unit, execution_id: str) -> Refused | None:
    current = unit.view.executions.get(execution_id)
    if isinstance(current, Corrupt):
        return Refused(Corruption, f"execution {current.execution_id}: {current.detail}")
    return None
