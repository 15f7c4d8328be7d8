"""Room: what goes on when a budget or a gate has some, and when to look again."""

from __future__ import annotations

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.operate import Unblock, unblock
from flowfabric.kernel.limit.admission import cancel_unpayable
from flowfabric.kernel.limit.budget import Budget, closed, with_pending
from flowfabric.kernel.limit.quota import (
    LOOK_AGAIN_MS,
    Gate,
    is_idle,
    look_again_at,
    unused,
    window_opens_at,
    without_waves,
)
from flowfabric.model.budget import PendingWork
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Unblocked

# --- budgets -------------------------------------------------------------------------------------


def work_of(budget: Budget) -> PendingWork:
    """What is to be done now for the executions that wait for a budget."""
    if budget.row.pending is PendingWork.CANCEL:
        return PendingWork.CANCEL
    return PendingWork.UNBLOCK if closed(budget) is None else PendingWork.NONE


def work_when_due(budget: Budget, at: Moment) -> Decision[PendingWork]:
    """What an earlier transaction has left to be done.

    There is nothing to unblock while the budget is closed; the next room starts it anew.
    """
    row = budget.row
    is_due = row.due_at is not None and row.due_at <= at.now
    in_vain = row.pending is PendingWork.UNBLOCK and closed(budget) is not None
    if in_vain or (is_due and row.pending is PendingWork.NONE):
        return left_to_do(budget, PendingWork.NONE, at.now)
    return Decision(row.pending)


def left_to_do(budget: Budget, work: PendingWork, look_at: int) -> Decision[PendingWork]:
    """The budget after some work, with what is left of it, and when to go on."""
    row = with_pending(replace(budget.row, pending=PendingWork.NONE), work, look_at)
    return Decision(work, saves=(replace(budget, row=row),))


def after_cancelling(budget: Budget, more: bool, at: Moment) -> Decision[PendingWork]:
    """Some of what waits for a budget was cancelled; the loop goes on with the rest at once."""
    return left_to_do(budget, PendingWork.CANCEL if more else PendingWork.NONE, at.now)


def after_unblocking(budget: Budget, found: int, more: bool, at: Moment) -> Decision[PendingWork]:
    """Some of what waits for a budget was unblocked; the rest follows at once, or later if all of
    it is locked elsewhere."""
    work = PendingWork.UNBLOCK if more else PendingWork.NONE
    return left_to_do(budget, work, at.now + (0 if found else LOOK_AGAIN_MS))


def cancel_waiting(execution: Execution, budget_id: str, at: Moment) -> Decision[None]:
    """What waits is cancelled where the budget's policy says so; what runs goes on."""
    if execution.is_leased or execution.is_terminal:
        return Decision(None)
    return cancel_unpayable(execution, f"budget {budget_id} is exhausted", at)


# --- gates ---------------------------------------------------------------------------------------


def slots_freed(before: Gate | None, after: Gate) -> int | None:
    """How many slots are to be offered after a change of a gate; none: nothing that waits is
    concerned.

    Not all the room there is: the rest was offered before, and those it was offered to may be on
    their way. A new policy is a new start.
    """
    if before is None or after.policy is not before.policy:
        return after.room
    freed = before.row.active - after.row.active
    return freed if freed > 0 else None


def slots_unused(gate: Gate, on_their_way: int) -> int:
    """All the room of a gate, but for executions that come by themselves at this moment."""
    return max(0, gate.room - on_their_way)


def after_offering(gate: Gate, more: bool, at: Moment) -> Decision[None]:
    """Slots were offered. Where more executions wait, room that was not used is offered again."""
    if more:
        return _looked_at(gate, look_again_at(gate, at.now, at.now), at)
    return _looked_at(without_waves(gate), None, at)


def without_offer(gate: Gate, is_awaited: bool, at: Moment) -> Decision[None]:
    """A gate has no slot to offer: every start of its window is taken, or the executions it has
    room for are on their way."""
    if not is_awaited:
        return _looked_at(gate, None, at)
    opens_at = None if gate.room else window_opens_at(gate)
    if opens_at is None:
        opens_at = look_again_at(gate, at.now, at.now)
    return _looked_at(gate, opens_at, at)


def _looked_at(gate: Gate, when: int | None, at: Moment) -> Decision[None]:
    """The gate with the time of its next look; none: when it is time to tidy up.

    A gate that counts nothing by then is forgotten. Not at once: a key that is used again and again
    would be inserted and deleted each time, and rivals would collide on it.
    """
    planned = gate.row.due_at
    is_due = planned is not None and planned <= at.now
    if when is None and is_due and is_idle(gate):
        return Decision(None, saves=(unused(gate),))
    if when is None and not is_due:
        when = planned
    return Decision(None, saves=(replace(gate, row=replace(gate.row, due_at=when)),))


# --- what waits ----------------------------------------------------------------------------------


def call_up(execution: Execution, awaited: str, at: Moment) -> Decision[Unblocked | None]:
    """An execution that waits for this becomes claimable; one that has moved on stays as it is."""
    if execution.blocked_on != awaited:
        return Decision(None)
    lift = Unblock(execution_id=execution.execution_id, expected=execution.state.blocking_reason)
    return unblock(execution, lift, at)
