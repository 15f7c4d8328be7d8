"""Cancel, in every phase."""

from __future__ import annotations

from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.answer import cancelled
from flowfabric.kernel.execution.fence import (
    OPERATOR_OVERRIDE,
    not_active,
    not_found,
    refuse_writer,
)
from flowfabric.kernel.execution.transition import finish, operator_event
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.results import Cancelled
from flowfabric.model.state import PublicState, TerminalOutcome


class Cancel(ExecutionCommand[Cancelled], frozen=True, kw_only=True):
    """Stop the execution. Without a fence the source must be the operator's."""

    reason: str
    source: str
    fence: Fence | None = None

    def needs(self, need: Needs) -> None:
        """The execution, and its flow."""
        need.executions.add(self.execution_id)
        need.flows_of.add(self.execution_id)


def cancel(execution: Execution | None, command: Cancel, at: Moment) -> Decision[Cancelled]:
    """The end, in any phase; a cancelled execution gives its reply again."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if execution.state.terminal_outcome is TerminalOutcome.CANCELLED:
        return Decision(cancelled(execution))
    if execution.is_terminal:
        return Decision(not_active(execution))
    by_operator = command.fence is None and command.source == OPERATOR_OVERRIDE
    if not by_operator:
        refusal = refuse_writer(
            execution, command.execution_id, command.fence, command.source, at.now
        )
        if refusal is not None:
            return Decision(refusal)
    decision = stop(execution, command.reason, command.source, at)
    if not by_operator:
        return decision
    audit = operator_event(execution, OperatorEventType.CANCELLED, at.now, reason=command.reason)
    return decision.audited(audit)


def stop(execution: Execution, reason: str, source: str, at: Moment) -> Decision[Cancelled]:
    """Cancel a non-terminal execution; the caller has already been authorised."""
    return finish(
        execution,
        TerminalOutcome.CANCELLED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_CANCELLED,
        cancellation_reason=reason,
        cancelled_by=source,
        reply=Cancelled(execution.execution_id, PublicState.CANCELLED),
    )
