"""A retry with another input is a new execution: the record of the old one stays as it is."""

from __future__ import annotations

from flowfabric.errors import ExecutionNotTerminal
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.model.execution import Execution
from flowfabric.model.retry import Retried


class RetryWithInput(ExecutionCommand[Retried], frozen=True, kw_only=True):
    """The same work once more, with another input. `execution_id`: of the one that has ended."""

    create: CreateExecution
    reason: str = ""

    def needs(self, need: Needs) -> None:
        """What a create needs, and the execution: its end must not be undone meanwhile."""
        need.executions.update((self.execution_id, self.create.execution_id))
        self.create.needs(need)


def refuse_unless_ended(execution: Execution) -> Refused | None:
    """One that goes on may still succeed; both would do the work."""
    if execution.is_terminal:
        return None
    return Refused(ExecutionNotTerminal, f"execution is {execution.public_state.value}")
