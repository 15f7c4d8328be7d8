"""Every index, declared once next to its order.

SQL stores hold each as a partial index; the memory store evaluates it; the audit compares the two.
"""

from __future__ import annotations

from typing import Final

from flowfabric.model.execution import Execution

# Which rows belong to each index, in SQL, by the numbers of their state vectors.
READY_WHERE: Final = "state_id < 10"
DUE_WHERE: Final = "due_at IS NOT NULL"
PURGE_WHERE: Final = "purge_at IS NOT NULL"
AUDITED_INDEXES: Final = (
    ("ff_exec_ready", READY_WHERE),
    ("ff_exec_due", DUE_WHERE),
    ("ff_exec_purge", PURGE_WHERE),
)


def uuid_of(execution_id: str) -> str:
    """The part of an id that orders and keys rows."""
    return execution_id[-36:]


def ready_order(execution: Execution) -> tuple[int, str]:
    """Best first."""
    return (execution.ready_rank, uuid_of(execution.execution_id))


def newest_first(execution: Execution) -> tuple[int, str]:
    """The order of listings, to be reversed."""
    return (execution.created_at, uuid_of(execution.execution_id))
