"""Send: a message comes to a mailbox of an execution, in any state of it but the end."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.errors import SignalLimitExceeded, TargetNotSignalable, UnknownMailbox
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.repeat import in_force
from flowfabric.kernel.wait.signal import SYSTEM, DeliverSignal, TypeDeclared
from flowfabric.model.execution import Execution
from flowfabric.model.mailbox import MESSAGE, MailboxRow, MessageKeyRow, MessageRow, Sent
from flowfabric.model.record import replace


class SendMessage(ExecutionCommand[Sent | TypeDeclared], frozen=True, kw_only=True):
    """Put a message behind those that are there. `payload`: JSON."""

    mailbox: str
    message_id: str
    payload: bytes
    sender: str
    wants_reply: bool
    idempotency_key: str | None
    dedup_ttl_ms: int
    fits: str | None = None  # the declared type that the payload was compared with, and fits

    def needs(self, need: Needs) -> None:
        """The execution with its wait, the mailbox, an earlier message under the key."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.mailboxes.add((self.execution_id, self.mailbox))
        if self.idempotency_key is not None:
            need.message_keys.add((self.execution_id, self.mailbox, self.idempotency_key))


def send(
    execution: Execution | None,
    mailbox: MailboxRow | None,
    seen: MessageKeyRow | None,
    command: SendMessage,
    at: Moment,
) -> Decision[Sent | TypeDeclared]:
    """The key first: a repeated call is answered as the first, whatever came of the execution."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    known = in_force(seen, at.now)
    if known is not None:
        return Decision(Sent(command.mailbox, known.number, known.message_id, is_new=False))
    if execution.is_terminal:
        detail = f"execution is {execution.public_state.value}"
        return Decision(Refused(TargetNotSignalable, detail))
    if mailbox is None:
        return Decision(unknown_mailbox(command.execution_id, command.mailbox))
    if refusal := _refuse_full(execution, mailbox, command):
        return Decision(refusal)
    if mailbox.payload_type is not None and mailbox.payload_type != command.fits:
        return Decision(TypeDeclared(mailbox.payload_type))
    number = mailbox.sent
    message = MessageRow(
        command.execution_id,
        command.mailbox,
        number,
        command.message_id,
        at.now,
        command.sender,
        int(command.wants_reply),
        command.payload,
    )
    size = mailbox.unread_bytes + len(command.payload)
    fuller = replace(mailbox, sent=number + 1, unread_bytes=size)
    reply = Sent(command.mailbox, number, command.message_id)
    return Decision(reply, saves=(fuller, message, *_remembered(command, number, at)))


def _refuse_full(execution: Execution, mailbox: MailboxRow, command: SendMessage) -> Refused | None:
    """What waits to be received is bounded, as signals are; what was received no longer counts."""
    most = execution.policy.max_signals_per_execution
    if 0 < most <= mailbox.unread:
        detail = f"mailbox {mailbox.mailbox}: {mailbox.unread} unread messages are the limit {most}"
        return Refused(SignalLimitExceeded, detail, {"field": "mailbox", "limit": most})
    most = limits.SIGNAL_BYTES_TOTAL
    if mailbox.unread_bytes + len(command.payload) > most:
        detail = f"mailbox {mailbox.mailbox}: its unread messages are over {most} bytes"
        return Refused(SignalLimitExceeded, detail, {"field": "payload", "limit": most})
    return None


def _remembered(command: SendMessage, number: int, at: Moment) -> tuple[MessageKeyRow, ...]:
    key = command.idempotency_key
    if key is None or command.dedup_ttl_ms <= 0:
        return ()
    until = at.now + command.dedup_ttl_ms
    row = MessageKeyRow(
        command.execution_id, command.mailbox, key, number, command.message_id, until
    )
    return (row,)


def unknown_mailbox(execution_id: str, mailbox: str) -> Refused:
    """It was not declared when the execution was created."""
    detail = f"execution {execution_id} has no mailbox {mailbox!r}"
    return Refused(UnknownMailbox, detail, {"field": "mailbox", "mailbox": mailbox})


def arrival(mailbox: MailboxRow, signal_id: str) -> DeliverSignal:
    """The signal that wakes a receiver."""
    return DeliverSignal(
        execution_id=mailbox.execution_id,
        waitpoint_id=mailbox.waitpoint_id or "",
        presented=None,
        signal_id=signal_id,
        signal_name=MESSAGE,
        signal_category=MESSAGE,
        source_type=SYSTEM,
        source_identity=mailbox.mailbox,
        correlation_id="",
        payload=None,
        payload_encoding="json",
        created_at=None,
        idempotency_key=None,
        dedup_ttl_ms=0,
        resume_delay_ms=0,
    )
