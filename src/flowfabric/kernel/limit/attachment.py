"""Which executions spend from which budgets."""

from __future__ import annotations

from flowfabric.kernel.decision import Decision
from flowfabric.model.budget import AttachmentRow
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace


def attach(execution: Execution, budget_id: str) -> Execution:
    """An execution that exists, with one more budget to spend from."""
    names = tuple(sorted({*execution.bounds.budget_ids, budget_id}))
    return replace(execution, bounds=replace(execution.bounds, budget_ids=names))


def attach_living(before: Execution, after: Execution) -> Decision[None]:
    """Only what has not ended is attached: a budget's list stays as long as its work."""
    if before.is_terminal == after.is_terminal:
        return Decision(None)
    rows = tuple(AttachmentRow(name, after.execution_id) for name in after.bounds.budget_ids)
    return Decision(None, drops=rows) if after.is_terminal else Decision(None, saves=rows)
