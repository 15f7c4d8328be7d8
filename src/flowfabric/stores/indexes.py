"""Every index, declared once next to what it orders.

SQL stores turn each into a partial index of the same name; the memory store evaluates it; the
audit compares the two. A due index is also what a background loop sleeps on.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, NamedTuple

from flowfabric.model.execution import Execution
from flowfabric.model.state import EligibilityState


class DueIndex(StrEnum):
    """The times at which something happens by itself."""

    DEADLINE = "deadline"
    ATTEMPT = "attempt"
    LEASE = "lease"
    LOST = "lost"
    DELAY = "delay"
    PURGE = "purge"


class Due(NamedTuple):
    """Which column holds the time, which rows belong (in SQL), and the same for a record."""

    column: str
    where: str
    at: Callable[[Execution], int | None]


def _deadline(execution: Execution) -> int | None:
    return None if execution.is_terminal else execution.deadline_at


def _lease(execution: Execution) -> int | None:
    return execution.lease_expires_at if execution.is_leased else None


def _delay(execution: Execution) -> int | None:
    timed = execution.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME
    return execution.eligible_at if timed else None


DUE: Final[dict[DueIndex, Due]] = {
    DueIndex.DEADLINE: Due(
        "deadline_at", "deadline_at IS NOT NULL AND lifecycle_phase <> 'terminal'", _deadline
    ),
    DueIndex.ATTEMPT: Due(
        "attempt_due_at", "attempt_due_at IS NOT NULL", lambda execution: execution.attempt_due_at
    ),
    DueIndex.LEASE: Due("lease_expires_at", "ownership_state = 'leased'", _lease),
    DueIndex.LOST: Due(
        "lease_lost_at", "lease_lost_at IS NOT NULL", lambda execution: execution.lease_lost_at
    ),
    DueIndex.DELAY: Due("eligible_at", "eligibility_state = 'not_eligible_until_time'", _delay),
    DueIndex.PURGE: Due("purge_at", "purge_at IS NOT NULL", lambda execution: execution.purge_at),
}

READY_WHERE: Final = "eligibility_state = 'eligible_now'"


def uuid_of(execution_id: str) -> str:
    """The part of an id that orders and keys rows."""
    return execution_id[-36:]


def ready_order(execution: Execution) -> tuple[int, int, str]:
    """Best first: higher priority, then older."""
    return (-execution.priority, execution.created_at, uuid_of(execution.execution_id))


def newest_first(execution: Execution) -> tuple[int, str]:
    """The order of listings, to be reversed."""
    return (execution.created_at, uuid_of(execution.execution_id))
