"""Reply: the owner of a lease answers a message that it has received."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.mailbox import MessageRow, Replied
from flowfabric.model.record import replace


class ReplyMessage(ExecutionCommand[Replied], frozen=True, kw_only=True):
    """Answer a message, once. `entries`: added to the journal with it."""

    fence: Fence
    mailbox: str
    number: int
    message_id: str
    payload: bytes
    entries: Checkpoint | None = None

    def needs(self, need: Needs) -> None:
        """The execution, the message, and what the entries need."""
        need.executions.add(self.execution_id)
        need.messages.add((self.execution_id, self.mailbox, self.number))
        if self.entries is not None:
            self.entries.needs(need)


def reply(
    execution: Execution | None, message: MessageRow | None, command: ReplyMessage, at: Moment
) -> Decision[Replied]:
    """The answer is kept for a while. A message that a fork has copied is not this execution's: its
    sender waits for the other one."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None:
        return Decision(refusal)
    if message is None or message.message_id != command.message_id:
        return Decision(Replied(is_wanted=False))
    name = f"message {command.number} of {command.mailbox}"
    if message.received_at is None:
        return refuse(InvalidInput, f"{name} was not received yet", field="number")
    if message.replied_at is not None:
        return refuse(InvalidInput, f"{name} has its answer", field="number")
    answered = replace(
        message,
        reply=command.payload,
        replied_at=at.now,
        due_at=at.now + limits.REPLY_TTL_MS,
    )
    return Decision(Replied(is_wanted=True), saves=(answered,))
