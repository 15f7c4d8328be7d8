"""What an execution holds beside its own quota's slot, and when it gives back what it holds.

That is: reservations, slots of other quotas, waitpoints that it does not wait on yet. Their number
stands in the execution (`side_holds`), so that one without any pays nothing for the feature.
"""

from __future__ import annotations

from flowfabric.kernel.decision import Decision
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace


def with_holdings(execution: Execution | None, change: int) -> Execution | None:
    """The execution, which holds so many more, or fewer."""
    if execution is None:
        return None
    return replace(execution, side_holds=max(0, execution.side_holds + change))


def occupies_slot(execution: Execution, now: int) -> bool:
    """Whether its quota counts it: it runs, or it is promised to a worker."""
    return execution.is_leased or execution.granted_to_other(now)


def slot_until(expires_at: int) -> int:
    """When a slot reserved for a grant lapses: the grant's last millisecond is still its own."""
    return expires_at + 1


def gives_back_holdings(before: Execution, after: Execution) -> bool:
    """Whether what an execution holds goes back: its lease is over, or the execution is."""
    if not before.side_holds:
        return False
    lost = before.is_leased and not after.is_leased
    ended = after.is_terminal and not before.is_terminal
    return lost or ended


def return_all(execution: Execution, pending: int) -> Decision[None]:
    """Everything went back but for waitpoints that are still pending."""
    return Decision(None, replace(execution, side_holds=pending))


def gives_back_slot(before: Execution, after: Execution, now: int) -> bool:
    """Whether the slot of an execution's own quota becomes free: it runs no longer, and is promised
    to no worker."""
    if before.bounds.quota_policy_id is None:
        return False
    return occupies_slot(before, now) and not occupies_slot(after, now)


def uses_reserved_slots(before: Execution, after: Execution) -> bool:
    """Whether slots that an external scheduler reserved are used from now on: it runs."""
    return bool(after.side_holds) and after.is_leased and not before.is_leased
