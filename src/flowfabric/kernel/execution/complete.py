"""Complete: the work succeeded."""

from __future__ import annotations

from typing import Final

from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.answer import completed
from flowfabric.kernel.execution.fence import (
    OPERATOR_OVERRIDE,
    not_found,
    refuse_writer,
    released_by,
)
from flowfabric.kernel.execution.transition import finish, operator_event
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.results import Completed
from flowfabric.model.state import PublicState, TerminalOutcome

_SUCCESS: Final = TerminalOutcome.SUCCESS
_ENDED_SUCCESS: Final = AttemptOutcome.ENDED_SUCCESS
_COMPLETED: Final = PublicState.COMPLETED


class Complete(ExecutionCommand[Completed], frozen=True, kw_only=True):
    """The owner (or an operator for it) reports success."""

    fence: Fence | None
    source: str
    result: bytes | None = None
    result_encoding: str | None = None

    def needs(self, need: Needs) -> None:
        """The execution, and its flow."""
        need.executions.add(self.execution_id)
        need.flows_of.add(self.execution_id)


def complete(execution: Execution | None, command: Complete, at: Moment) -> Decision[Completed]:
    """The live owner ends the execution; its repeated call gets the first reply."""
    refusal = refuse_writer(execution, command.execution_id, command.fence, command.source, at.now)
    if execution is None:
        return Decision(refusal or not_found(command.execution_id))
    if refusal is not None:
        is_repeated = _was_completed_by(execution, command)
        return Decision(completed(execution) if is_repeated else refusal)
    decision = finish(
        execution,
        _SUCCESS,
        at,
        attempt_outcome=_ENDED_SUCCESS,
        result=command.result,
        result_encoding=command.result_encoding,
        reply=Completed(execution.execution_id, _COMPLETED, at.now),
    )
    if command.fence is not None:
        return decision
    audit = operator_event(execution, OperatorEventType.COMPLETED, at.now, source=OPERATOR_OVERRIDE)
    return decision.audited(audit)


def _was_completed_by(execution: Execution, command: Complete) -> bool:
    return execution.state.terminal_outcome is _SUCCESS and released_by(execution, command.fence)
