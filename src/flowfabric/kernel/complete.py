"""Complete: the work succeeded."""

from __future__ import annotations

from typing import Final

from flowfabric.kernel.answer import end_of
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.fence import OPERATOR_OVERRIDE, refuse_writer, released_by
from flowfabric.kernel.transition import finish, operator_event
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Completed
from flowfabric.model.state import PublicState, TerminalOutcome

_SUCCESS: Final = TerminalOutcome.SUCCESS
_ENDED_SUCCESS: Final = AttemptOutcome.ENDED_SUCCESS
_COMPLETED: Final = PublicState.COMPLETED


class Complete(Record, frozen=True):
    """The owner (or an operator in its stead) reports success."""

    execution_id: str
    fence: Fence | None
    source: str
    result: bytes | None = None
    result_encoding: str | None = None


def complete(execution: Execution | None, command: Complete, at: Moment) -> Decision:
    """The live owner ends the execution; its own repeated call is answered, not repeated."""
    refusal = refuse_writer(execution, command.execution_id, command.fence, command.source, at.now)
    if execution is not None and _was_completed_by(execution, command):
        return Decision(end_of(execution))
    if refusal is not None or execution is None:
        return Decision(refusal)
    decision = finish(
        execution,
        _SUCCESS,
        at,
        attempt_outcome=_ENDED_SUCCESS,
        reason="completed",
        result=command.result,
        result_encoding=command.result_encoding,
        reply=Completed(execution.execution_id, _COMPLETED, at.now),
    )
    if command.fence is not None:
        return decision
    audit = operator_event(execution, OperatorEventType.COMPLETED, at.now, source=OPERATOR_OVERRIDE)
    return replace(decision, events=(*decision.events, audit))


def _was_completed_by(execution: Execution, command: Complete) -> bool:
    return execution.state.terminal_outcome is _SUCCESS and released_by(execution, command.fence)
