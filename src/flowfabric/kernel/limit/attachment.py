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


def attach_living(execution: Execution) -> Decision[None]:
    """Only what has not ended is attached: a budget's list stays as long as its work. For an
    execution that has just ended, or lives again."""
    key, names = execution.execution_id, execution.bounds.budget_ids
    rows = tuple(AttachmentRow(name, key) for name in names)
    return Decision(None, drops=rows) if execution.is_terminal else Decision(None, saves=rows)
