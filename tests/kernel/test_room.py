"""Room: what goes on when a budget or a gate has some, and when to look again."""

from __future__ import annotations

import pytest

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.limit.admission import budget_key
from flowfabric.kernel.limit.budget import Budget
from flowfabric.kernel.limit.quota import LOOK_AGAIN_MS, Gate
from flowfabric.kernel.limit.room import (
    after_cancelling,
    after_offering,
    after_unblocking,
    call_up,
    cancel_waiting,
    slots_freed,
    slots_unused,
    without_offer,
    work_of,
    work_when_due,
)
from flowfabric.model.budget import BudgetPolicy, BudgetRow, PendingWork, UsageRow
from flowfabric.model.quota import GateRow, QuotaPolicy
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason, PublicState, blocked
from tests.support.builders import NOW, completed, created, leased
from tests.support.decisions import the

AT = Moment(NOW)
RESET = NOW + 10**6


def budget(*, full: bool, pending: PendingWork = PendingWork.NONE, due_at: int = RESET) -> Budget:
    policy = BudgetPolicy(hard_limits={"a": 5}, reset_interval_ms=10**6)
    row = BudgetRow("b", policy, 0, 0, next_reset_at=RESET, pending=pending, due_at=due_at)
    return Budget(row, {"a": UsageRow("b", "a", 5 if full else 4, 0, 0)})


# --- budgets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("full", "pending", "work"),
    [
        (True, PendingWork.CANCEL, PendingWork.CANCEL),
        (False, PendingWork.CANCEL, PendingWork.CANCEL),
        (False, PendingWork.NONE, PendingWork.UNBLOCK),
        (False, PendingWork.UNBLOCK, PendingWork.UNBLOCK),
        (True, PendingWork.NONE, PendingWork.NONE),
        (True, PendingWork.UNBLOCK, PendingWork.NONE),
    ],
)
def test_a_budget_cancels_first_and_unblocks_while_it_has_room(
    full: bool, pending: PendingWork, work: PendingWork
) -> None:
    assert work_of(budget(full=full, pending=pending)) is work


@pytest.mark.parametrize("pending", [PendingWork.CANCEL, PendingWork.UNBLOCK])
def test_the_loop_goes_on_with_what_is_left(pending: PendingWork) -> None:
    assert work_when_due(budget(full=False, pending=pending, due_at=NOW), AT) == Decision(pending)


@pytest.mark.parametrize(
    "found",
    [
        budget(full=True, pending=PendingWork.UNBLOCK, due_at=NOW),
        budget(full=True, due_at=NOW),
        budget(full=False, due_at=NOW),
    ],
)
def test_what_is_due_in_vain_waits_for_its_reset(found: Budget) -> None:
    decision = work_when_due(found, AT)
    row = the(decision, Budget).row
    assert (decision.reply, row.pending, row.due_at) == (PendingWork.NONE, PendingWork.NONE, RESET)


def test_a_budget_that_is_not_due_is_left_alone() -> None:
    assert work_when_due(budget(full=False), AT) == Decision(PendingWork.NONE)


@pytest.mark.parametrize(
    ("decision", "pending", "due_at"),
    [
        (after_cancelling(budget(full=True), True, AT), PendingWork.CANCEL, NOW),
        (after_cancelling(budget(full=True), False, AT), PendingWork.NONE, RESET),
        (after_unblocking(budget(full=False), 3, True, AT), PendingWork.UNBLOCK, NOW),
        (
            after_unblocking(budget(full=False), 0, True, AT),
            PendingWork.UNBLOCK,
            NOW + LOOK_AGAIN_MS,
        ),
        (after_unblocking(budget(full=False), 3, False, AT), PendingWork.NONE, RESET),
    ],
)
def test_what_is_left_is_due_at_once_unless_all_of_it_is_locked(
    decision: Decision[PendingWork], pending: PendingWork, due_at: int
) -> None:
    row = the(decision, Budget).row
    assert (row.pending, row.due_at) == (pending, due_at)


def test_only_what_waits_is_cancelled() -> None:
    assert cancel_waiting(leased(), "b", AT) == Decision(None)
    assert cancel_waiting(completed(), "b", AT) == Decision(None)
    after = cancel_waiting(created(), "b", AT).execution
    assert after is not None
    assert after.public_state is PublicState.CANCELLED
    assert after.cancellation_reason == "budget b is exhausted"


def test_only_what_still_waits_for_it_is_called_up() -> None:
    state = blocked(BlockingReason.WAITING_FOR_BUDGET, created().state.attempt_state)
    waiting = replace(created(), state=state, blocked_on=budget_key("b"))
    assert call_up(waiting, budget_key("other"), AT) == Decision(None)
    assert call_up(leased(), budget_key("b"), AT) == Decision(None)
    after = call_up(waiting, budget_key("b"), AT).execution
    assert after is not None
    assert after.is_waiting
    assert after.blocked_on is None


# --- gates -------------------------------------------------------------------------------------


def gate(rate: int = 0, cap: int = 0, oldest_at: int | None = None, **row: int) -> Gate:
    return Gate(QuotaPolicy("q", 10, rate, cap, 0, 0, 0), GateRow("q", "default", **row), oldest_at)


def due_of(decision: Decision[None]) -> int | None:
    return the(decision, Gate).row.due_at


def test_only_freed_slots_are_offered_and_all_of_a_new_policy() -> None:
    full = gate(cap=5, active=3)
    assert slots_freed(full, replace(full, row=replace(full.row, active=1))) == 2
    assert slots_freed(full, replace(full, row=replace(full.row, active=4))) is None
    assert slots_freed(full, full) is None
    assert slots_freed(full, replace(full, policy=gate(cap=9).policy)) == 6
    assert slots_freed(full, replace(full, policy=gate(cap=3).policy)) == 0
    assert slots_freed(None, full) == 2


@pytest.mark.parametrize(("coming", "slots"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_slots_are_kept_for_executions_on_their_way(coming: int, slots: int) -> None:
    assert slots_unused(gate(cap=5, active=3), coming) == slots


def test_an_offer_is_looked_at_again_only_while_more_wait() -> None:
    used = gate(rate=5, cap=5, active=1, in_window=1, wave_at=NOW + 9, wave_size=2, due_at=RESET)
    again = after_offering(used, True, AT)
    assert due_of(again) == NOW + LOOK_AGAIN_MS
    assert the(again, Gate).row.wave_size == 2
    last = after_offering(used, False, AT)
    assert due_of(last) == RESET
    assert the(last, Gate).row.wave_size == 0


@pytest.mark.parametrize(
    ("found", "is_awaited", "due_at"),
    [
        (gate(rate=1, in_window=1, oldest_at=NOW - 4_000), True, NOW + 6_000),
        (gate(rate=2, in_window=1, oldest_at=NOW - 4_000), True, NOW + LOOK_AGAIN_MS),
        (gate(cap=1, active=1), True, NOW + LOOK_AGAIN_MS),
        (gate(cap=1, active=1, due_at=NOW + 3), False, NOW + 3),
    ],
)
def test_without_an_offer_the_next_look_is_when_there_may_be_room(
    found: Gate, is_awaited: bool, due_at: int
) -> None:
    assert due_of(without_offer(found, is_awaited, AT)) == due_at


def test_a_gate_that_counts_nothing_is_forgotten_when_its_time_comes() -> None:
    idle = gate(cap=1, due_at=NOW, seen_at=5)
    assert the(without_offer(idle, False, AT), Gate) == gate(cap=1)
    assert due_of(without_offer(idle, True, AT)) == NOW + LOOK_AGAIN_MS
    early = gate(cap=1, due_at=NOW + 1)
    assert the(without_offer(early, False, AT), Gate) == early
    busy = gate(cap=1, active=1, due_at=NOW)
    assert the(without_offer(busy, False, AT), Gate) == gate(cap=1, active=1)
