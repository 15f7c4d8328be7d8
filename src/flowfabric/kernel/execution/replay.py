"""Replay: a finished execution runs again, as a new attempt with its history kept."""

from __future__ import annotations

from flowfabric.errors import ExecutionNotTerminal, InvalidInput, MaxReplaysExhausted
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.answer import kept_end
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import let_go, operator_event
from flowfabric.model.attempt import AttemptType
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.results import Replayed
from flowfabric.model.state import (
    AttemptState,
    BlockingReason,
    TerminalOutcome,
    blocked,
    waiting,
)


class Replay(ExecutionCommand[Replayed], frozen=True, kw_only=True):
    """An operator replays the work."""

    requested_by: str = ""
    reason: str = ""
    deadline_at: int | None = None
    cascade: bool = False  # in a flow: members it made impossible are replayed too
    fresh: bool = False  # from the top, instead of going on by the journal

    def needs(self, need: Needs) -> None:
        """The execution, its flow, and the status of its lane."""
        need.executions.add(self.execution_id)
        need.flows_of.add(self.execution_id)
        need.catalog = True


def replay(
    execution: Execution | None, command: Replay, at: Moment, *, has_journal: bool = False
) -> Decision[Replayed]:
    """Counters, outcome and deadline start anew; the old attempts and results stay on record.

    An execution with a journal goes on by it unless it is to start afresh. One without begins the
    next journal, whose children are new.
    """
    if execution is None or _goes_with_its_flow(execution):
        return Decision(not_found(command.execution_id))
    if refusal := _refuse_replay(execution, command, at):
        return Decision(refusal)
    outcome = execution.state.terminal_outcome
    goes_on = has_journal and not command.fresh and not is_undone(execution)
    # A skipped member waits again for its dependencies; its flow reopens the group.
    waits = execution.flow_id is not None and outcome is TerminalOutcome.SKIPPED
    attempt, reason = AttemptState.PENDING_REPLAY_ATTEMPT, BlockingReason.WAITING_FOR_CHILDREN
    again = let_go(
        execution,
        blocked(reason, attempt) if waits else waiting(attempt),
        at,
        open_group=int(waits),
        blocking_detail="waiting for others to end" if waits else "",
        replay_count=execution.replay_count + 1,
        journal_index=execution.journal_index + (not goes_on),
        chapter_index=execution.chapter_index if goes_on else 0,
        undos=execution.undos if goes_on else None,
        retry_count=0,
        reclaim_count=0,
        next_attempt_type=AttemptType.REPLAY,
        eligible_at=at.now,
        deadline_at=_deadline_at(execution, command, at),
        completed_at=None,
        purge_at=None,
        failure_reason=None,
        failure_category=None,
        cancellation_reason=None,
        cancelled_by=None,
        progress_pct=None,
        progress_message=None,
        progress_updated_at=None,
    )
    audit = operator_event(
        execution,
        OperatorEventType.REPLAYED,
        at.now,
        requested_by=command.requested_by,
        reason=command.reason,
        replay_count=again.replay_count,
        previous_outcome=outcome.value,
        journal_index=again.journal_index,
    )
    reply = Replayed(execution.execution_id, again.public_state, again.replay_count)
    answer = kept_end(execution, at)
    saves = () if answer is None else (answer,)
    return Decision(reply, again, None, (audit,), saves)


def _refuse_replay(execution: Execution, command: Replay, at: Moment) -> Refused | None:
    if not execution.is_terminal:
        return Refused(ExecutionNotTerminal, f"execution is {execution.public_state.value}")
    most = execution.policy.max_replay_count
    if execution.replay_count >= most:
        detail = f"{execution.replay_count} of {most}"
        return Refused(MaxReplaysExhausted, detail, {"limit": most})
    if command.deadline_at is not None and command.deadline_at <= at.now:
        return Refused(InvalidInput, "deadline_at: is in the past", {"field": "deadline_at"})
    return None


def is_undone(execution: Execution) -> bool:
    """Whether what an execution did was undone, by its end or by its handler: then its journal
    tells of effects that are no longer there, and no run can go on by it."""
    undos = execution.undos
    if undos is None:
        return False
    succeeded = execution.state.terminal_outcome is TerminalOutcome.SUCCESS
    return undos.had_run or (bool(undos.positions) and not succeeded)


def _deadline_at(execution: Execution, command: Replay, at: Moment) -> int | None:
    relative = execution.policy.timeout_policy.execution_deadline_ms
    if command.deadline_at is None and relative is not None:
        return at.now + relative
    return command.deadline_at


def _goes_with_its_flow(execution: Execution) -> bool:
    """Whether its flow was purged and its own rows are next: a replay would belong nowhere."""
    return execution.flow_id is not None and execution.purge_at is not None
