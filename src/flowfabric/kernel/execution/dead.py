"""Dead letters: which ends leave one, and their dismissal."""

from __future__ import annotations

from typing import Final

from flowfabric.errors import ExecutionNotEligible
from flowfabric.kernel.command import ExecutionCommand
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.execution.fence import not_found
from flowfabric.kernel.execution.transition import operator_event
from flowfabric.model.dead import DeadRow, Dismissed
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.state import PublicState

_DEAD: Final = (PublicState.FAILED, PublicState.EXPIRED)


class Dismiss(ExecutionCommand[Dismissed], frozen=True, kw_only=True):
    """An operator has seen to it: nothing will be run again."""

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
    if execution is None:
        return Decision(not_found(command.execution_id))
    if not is_dead(execution) or row is None:
        return refuse(ExecutionNotEligible, f"execution is {execution.public_state.value}")
    if row.open_at is None:
        return Decision(Dismissed(row.execution_id, is_new=False))
    audit = operator_event(
        execution,
        OperatorEventType.DISMISSED,
        at.now,
        reason=command.reason,
        category=row.category,
    )
    closed = replace(row, open_at=None)
    return Decision(Dismissed(row.execution_id, is_new=True), events=(audit,), saves=(closed,))
