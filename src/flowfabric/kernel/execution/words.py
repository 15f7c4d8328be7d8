"""The words by which executions are found."""

from __future__ import annotations

from flowfabric.model.execution import Execution


def searchable(execution: Execution) -> str:
    """The words by which a text search finds an execution."""
    parts = (
        execution.execution_id,
        execution.execution_kind,
        execution.failure_reason or "",
        execution.cancellation_reason or "",
        execution.progress_message or "",
        *(f"{key}={value}" for key, value in execution.tags.items()),
    )
    return "\n".join(parts).lower()
