"""Which states of unfinished work gauges count, and how an index finds them."""

from __future__ import annotations

from typing import Final

from flowfabric.model.state import (
    LEASED,
    VECTOR_OF_ID,
    EligibilityState,
    LifecyclePhase,
    StateVector,
)
from flowfabric.stores.indexes import IN_STATE, READY


def part_of(state: StateVector) -> str | None:
    """The part of the count that a state belongs to; None: it is not counted."""
    if state.eligibility_state is EligibilityState.ELIGIBLE_NOW:
        return "waits"
    if state is LEASED:
        return "runs"
    if state.lifecycle_phase is LifecyclePhase.SUSPENDED:
        return "suspended"
    is_unroutable = state.eligibility_state is EligibilityState.BLOCKED_BY_ROUTE
    return "unroutable" if is_unroutable else None


def _listed(part: str) -> str:
    """A condition that the index of all states serves."""
    numbers = [str(n) for n, state in VECTOR_OF_ID.items() if part_of(state) == part]
    return f"state_id IN ({', '.join(numbers)}) AND {IN_STATE.where}"


# Conditions on rows of executions, by part.
CONDITIONS: Final = {
    "waits": str(READY.where),
    "runs": "state_id = 60",
    "suspended": _listed("suspended"),
    "unroutable": _listed("unroutable"),
}
