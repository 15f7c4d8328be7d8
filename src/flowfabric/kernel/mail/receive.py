"""Receive: the owner of a lease takes the next unread message, or asks to be told of it."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric import limits
from flowfabric.errors import Corruption, MailboxEmpty
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.mail.send import unknown_mailbox
from flowfabric.kernel.wait.waitpoint import CreateWaitpoint, create_waitpoint
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.journal import EntryKind
from flowfabric.model.mailbox import (
    Listening,
    MailboxRow,
    Message,
    MessageRow,
    place_of,
    recorded_value,
)
from flowfabric.model.record import replace
from flowfabric.model.suspension import SecretRow, WaitpointRow, WaitpointState


class ReceiveMessage(ExecutionCommand[Message], frozen=True, kw_only=True):
    """Take a message. `entries`: added to the journal with it; the last one records it."""

    fence: Fence
    mailbox: str
    entries: Checkpoint

    def needs(self, need: Needs) -> None:
        """The execution, the mailbox, and what the entries need."""
        need.executions.add(self.execution_id)
        need.mailboxes.add((self.execution_id, self.mailbox))
        self.entries.needs(need)


class ListenMailboxes(ExecutionCommand[Listening], frozen=True, kw_only=True):
    """Have a signal when a message comes. `places`: mailboxes, and ids for new waitpoints."""

    fence: Fence
    places: tuple[tuple[str, str], ...]

    def needs(self, need: Needs) -> None:
        """The execution, its mailboxes, and what new waitpoints need."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.mailboxes.update((self.execution_id, mailbox) for mailbox, _ in self.places)


def receive(
    execution: Execution | None,
    mailbox: MailboxRow | None,
    message: MessageRow | None,
    command: ReceiveMessage,
    at: Moment,
) -> Decision[Message]:
    """In the order in which they came. `message`: the next unread one."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None:
        return Decision(refusal)
    if mailbox is None:
        return Decision(unknown_mailbox(command.execution_id, command.mailbox))
    if not mailbox.unread:
        return Decision(Refused(MailboxEmpty, f"{command.mailbox}: no message is unread"))
    if message is None or message.payload is None:
        detail = f"execution {command.execution_id}: message {mailbox.received} of its mailbox "
        return Decision(Refused(Corruption, f"{detail}{command.mailbox!r} is missing"))
    reply = Message(
        message.mailbox,
        message.number,
        message.message_id,
        message.sent_at,
        message.sender,
        bool(message.wants_reply),
        message.payload,
    )
    size = max(0, mailbox.unread_bytes - len(message.payload))
    emptier = replace(mailbox, received=mailbox.received + 1, unread_bytes=size)
    if not message.wants_reply:
        return Decision(reply, saves=(emptier,), drops=(message,))
    kept = replace(message, payload=None, received_at=at.now)
    return Decision(reply, saves=(emptier, kept))


def with_message(command: Checkpoint, message: Message) -> Checkpoint:
    """The entries, of which the last recorded one has the message."""
    entries, recorded = list(command.entries), command.recorded
    place = len(recorded) - 1
    entries[place] = replace(recorded[place], value=recorded_value(message))
    return replace(command, entries=tuple(entries))


def is_about_a_message(command: Checkpoint) -> bool:
    """Whether its last entry is of the kind that records a message."""
    recorded = command.recorded
    return bool(recorded) and recorded[-1].kind is EntryKind.MESSAGE


def listen(
    execution: Execution | None,
    mailboxes: Mapping[str, MailboxRow | None],
    waitpoints: Mapping[str, WaitpointRow | None],
    key: SecretRow | None,
    command: ListenMailboxes,
    at: Moment,
) -> Decision[Listening]:
    """A pending waitpoint at each mailbox, or none where a message is there to be taken. One that
    no wait came to use serves again. `waitpoints`: those that the mailboxes name, by mailbox."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    rows = list[MailboxRow]()
    for name, _ in command.places:
        row = mailboxes.get(name)
        if row is None:
            return Decision(unknown_mailbox(command.execution_id, name))
        rows.append(row)
    if any(row.unread for row in rows):
        return Decision(Listening({}))
    after, places, saves = execution, dict[str, str](), list[MailboxRow | WaitpointRow]()
    for row, (name, waitpoint_id) in zip(rows, command.places, strict=True):
        known = waitpoints.get(name)
        if known is not None and _serves(known, execution, at):
            places[name] = known.waitpoint_id
            continue
        create = CreateWaitpoint(
            execution_id=command.execution_id,
            fence=command.fence,
            waitpoint_id=waitpoint_id,
            waitpoint_key=place_of(name),
            expires_in_ms=limits.DURATION_MS_MAX,
        )
        made = create_waitpoint(after, None, key, create, at)
        if isinstance(made.reply, Refused):
            return Decision(made.reply)
        after, places[name] = made.execution or after, waitpoint_id
        saves += [made.reply, replace(row, waitpoint_id=waitpoint_id)]
    changed = after if after is not execution else None
    return Decision(Listening(places), changed, saves=tuple(saves))


def _serves(waitpoint: WaitpointRow, execution: Execution, at: Moment) -> bool:
    """Whether a waitpoint can still be waited on."""
    return (
        waitpoint.state is WaitpointState.PENDING
        and waitpoint.attempt_index == execution.attempt_index
        and (waitpoint.expires_at is None or waitpoint.expires_at > at.now)
    )
