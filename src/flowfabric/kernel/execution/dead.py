"""Dead letters: which ends leave one, how it is dismissed, and restored."""

from __future__ import annotations

from typing import Final

from flowfabric.errors import ExecutionNotEligible
from flowfabric.kernel.command import ExecutionCommand
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.model.dead import DeadRow, Dismissed, Letter, Restored
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.state import PublicState

_DEAD: Final = (PublicState.FAILED, PublicState.EXPIRED)


class Dismiss(ExecutionCommand[Dismissed], frozen=True, kw_only=True):
    """An operator has seen to it: nothing will be run again."""

    reason: str = ""


class Restore(ExecutionCommand[Restored], frozen=True, kw_only=True):
    """An operator wants to see it again."""

    reason: str = ""


def is_dead(execution: Execution) -> bool:
    """Whether its end leaves a dead letter."""
    return execution.is_terminal and execution.public_state in _DEAD


def letter(execution: Execution) -> DeadRow:
    """The dead letter of an end."""
    ended_at = execution.completed_at or 0
    return DeadRow(
        execution.execution_id,
        execution.namespace,
        execution.execution_kind,
        execution.failure_category or execution.public_state.value,
        ended_at,
        ended_at,
    )


def dismiss(
    execution: Execution | None, row: DeadRow | None, command: Dismiss, at: Moment
) -> Decision[Dismissed]:
    """The execution stays as it is until its retention is over."""
    refusal = _refuse(execution, row, command.execution_id)
    if execution is None or row is None or refusal is not None:
        return Decision(refusal or not_found(command.execution_id))
    if row.letter is Letter.DISMISSED:
        return Decision(Dismissed(row.execution_id, is_new=False))
    audit = _audit(OperatorEventType.DISMISSED, execution, row, command.reason, at)
    closed = replace(row, open_at=None)
    return Decision(Dismissed(row.execution_id, is_new=True), events=(audit,), saves=(closed,))


def restore(
    execution: Execution | None, row: DeadRow | None, command: Restore, at: Moment
) -> Decision[Restored]:
    """In its old place: where its end belongs."""
    refusal = _refuse(execution, row, command.execution_id)
    if execution is None or row is None or refusal is not None:
        return Decision(refusal or not_found(command.execution_id))
    if row.letter is Letter.OPEN:
        return Decision(Restored(row.execution_id, is_new=False))
    audit = _audit(OperatorEventType.RESTORED, execution, row, command.reason, at)
    opened = replace(row, open_at=row.ended_at)
    return Decision(Restored(row.execution_id, is_new=True), events=(audit,), saves=(opened,))


def _refuse(execution: Execution | None, row: DeadRow | None, execution_id: str) -> Refused | None:
    """It is no dead letter, dismissed or not."""
    if execution is None:
        return not_found(execution_id)
    if not is_dead(execution) or row is None:
        return Refused(ExecutionNotEligible, f"execution is {execution.public_state.value}")
    return None


def _audit(
    kind: OperatorEventType, execution: Execution, row: DeadRow, reason: str, at: Moment
) -> OperatorEvent:
    return operator_event(execution, kind, at.now, reason=reason, category=row.category)
