"""Every index, declared once next to its order.

SQL stores hold each as a partial index; the memory store evaluates it; the audit compares the two.
"""

from __future__ import annotations

from typing import Final

from flowfabric.model.execution import Execution
from flowfabric.model.state import EligibilityState, OwnershipState

STRICT_STEP: Final = 10**15  # one step of priority outweighs any difference of age
# Which rows belong to each index, in SQL, by the numbers of their state vectors.
READY_WHERE: Final = "state_id < 10"
DUE_WHERE: Final = "due_at IS NOT NULL"
PURGE_WHERE: Final = "purge_at IS NOT NULL"
AUDITED_INDEXES: Final = (
    ("ff_exec_ready", READY_WHERE),
    ("ff_exec_due", DUE_WHERE),
    ("ff_exec_purge", PURGE_WHERE),
)

_LEASED: Final = OwnershipState.LEASED
_TIMED: Final = EligibilityState.NOT_ELIGIBLE_UNTIL_TIME


def due_at(execution: Execution) -> int | None:
    """When the loop must act on the execution: the earliest of all its times.

    An ended execution is due only for its purge, which has an index of its own.
    """
    if execution.completed_at is not None:
        return None
    state = execution.state
    if state.ownership_state is _LEASED:
        due = execution.lease_expires_at
    elif state.eligibility_state is _TIMED:
        due = execution.eligible_at
    elif execution.blocked_until is not None:
        due = execution.blocked_until
    else:
        due = execution.reclaim_at
    deadline, attempt_due = execution.deadline_at, execution.attempt_due_at
    if deadline is not None and (due is None or deadline < due):
        due = deadline
    if attempt_due is not None and (due is None or attempt_due < due):
        due = attempt_due
    return due


def uuid_of(execution_id: str) -> str:
    """The part of an id that orders and keys rows."""
    return execution_id[-36:]


def ready_order(execution: Execution) -> tuple[int, str]:
    """Best first."""
    return (ready_rank(execution), uuid_of(execution.execution_id))


def ready_rank(execution: Execution) -> int:
    """The order among the ready, smallest first: strictly by priority, then age.

    With aging, `aging_ms` of waiting weigh as much as one step of priority. All executions age
    alike, so the order of two of them never changes and one indexed number expresses it.
    """
    step = execution.aging_ms or STRICT_STEP
    return execution.created_at - execution.priority * step


def newest_first(execution: Execution) -> tuple[int, str]:
    """The order of listings, to be reversed."""
    return (execution.created_at, uuid_of(execution.execution_id))
