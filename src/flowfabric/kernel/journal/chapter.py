"""Continue: the owner of a lease ends the chapter of a journal and begins the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric.errors import ChildrenNotEnded
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.answer import kept
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.execution.transition import ended_attempt, lease_event, let_go
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import CONTINUED, LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.journal import CodeMark, Continued, EntryKind, EntryRow, EntryState
from flowfabric.model.state import AttemptState, waiting

CHAPTER_KEY: Final = "chapter"  # of the first entry of a chapter that was begun by another one
NAMED_CHILDREN: Final = 5  # of those that have not ended


class Continue(ExecutionCommand[Continued], frozen=True, kw_only=True):
    """The handler is called anew with these arguments, and with an empty chapter."""

    fence: Fence
    arguments: bytes
    code: CodeMark

    def needs(self, need: Needs) -> None:
        """The execution, its flow, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.catalog = True
        need.flows_of.add(self.execution_id)


def continue_as_new(
    execution: Execution | None, command: Continue, at: Moment
) -> Decision[Continued]:
    """The attempt has ended, and the execution waits for a worker as a new one does: counters begin
    anew, its name, its key, its tags and its flow stay."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    chapter = execution.chapter_index + 1
    again = let_go(
        execution,
        waiting(AttemptState.PENDING_FIRST_ATTEMPT),
        at,
        chapter_index=chapter,
        eligible_at=at.now,
        blocking_detail="",
        retry_count=0,
        reclaim_count=0,
        next_attempt_type=AttemptType.CONTINUED,
        failure_reason=None,
        failure_category=None,
        undos=None,
    )
    reply = Continued(execution.execution_id, chapter)
    attempt = ended_attempt(execution, AttemptOutcome.ENDED_CONTINUED, at.now)
    event = lease_event(execution, LeaseEventType.RELEASED, CONTINUED, at.now)
    told = kept(execution, execution.lease_epoch, reply, at)
    return Decision(reply, again, attempt, (event,), saves=(_first(again, command, at), told))


def _first(execution: Execution, command: Continue, at: Moment) -> EntryRow:
    """The first entry of the chapter."""
    return EntryRow(
        execution.execution_id,
        execution.journal_index,
        execution.chapter_index,
        position=0,
        asked=0,
        key=CHAPTER_KEY,
        kind=EntryKind.CHAPTER,
        state=EntryState.OK,
        tries=1,
        began_at=at.now,
        took_ms=0,
        recorded_at=at.now,
        attempt_index=execution.attempt_index or 0,
        lease_epoch=command.fence.lease_epoch,
        is_secret=0,
        value=command.arguments,
        code=command.code,
    )


def children_left(execution: Execution, count: int, named: Sequence[str]) -> Refused:
    """A chapter does not end before the children it began. `named`: some of them."""
    names = ", ".join(named)
    more = f" and {count - len(named)} more" if count > len(named) else ""
    detail = f"execution {execution.execution_id}: {count} of its children run: {names}{more}"
    return Refused(ChildrenNotEnded, detail, {"children": list(named), "count": count})
