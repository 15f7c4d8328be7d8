"""Budgets as pure rules: limits, when a budget is closed, schedules and events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flowfabric.errors import InvalidInput, LimitConflict, NotFound
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.limit.attachment import attach, attach_living
from flowfabric.kernel.limit.budget import (
    BREACH_EVENT_PERIOD_MS,
    Budget,
    Closed,
    closed,
    count_hard_breach,
    hard_breach,
    moved,
    new_budget,
    overflow,
    soft_breach,
    with_pending,
)
from flowfabric.kernel.limit.budget_policy import (
    CreateBudget,
    ResetBudget,
    UpdateBudget,
    create_budget,
    next_after,
    reset_budget,
    update_budget,
)
from flowfabric.limits import DIMENSIONS_MAX
from flowfabric.model.budget import (
    AMOUNT_MAX,
    AttachmentRow,
    BudgetAlreadySatisfied,
    BudgetPolicy,
    BudgetReset,
    EnforcementMode,
    HardAction,
    HardBreach,
    PendingWork,
    ScopeRow,
    ScopeType,
    SoftAction,
    SoftBreach,
)
from flowfabric.model.record import replace
from tests.support.builders import EXECUTION_ID, completed, leased
from tests.support.decisions import the

NOW = 1_000_000
AT = Moment(NOW)


def budget(
    used: Mapping[str, int] | None = None, held: Mapping[str, int] | None = None, **policy: Any
) -> Budget:
    command = CreateBudget(budget_id="b", policy=BudgetPolicy(**policy))
    made = create_budget(None, new_budget("b", AT), command, AT)
    return moved(the(made, Budget), AT, used=used, held=held)


def test_without_a_policy_nothing_is_limited() -> None:
    free = moved(new_budget("b", AT), AT, used={"a": 10**9})
    assert hard_breach(free, {"a": 10**9}) is None
    assert soft_breach(free, {"a": 1}) is None
    assert closed(free) is None


@pytest.mark.parametrize(
    ("used", "held", "delta", "breaches"),
    [(9, 0, 1, False), (10, 0, 0, False), (10, 0, 1, True), (5, 5, 1, True), (0, 0, 11, True)],
)
def test_a_breach_is_over_the_limit(used: int, held: int, delta: int, breaches: bool) -> None:
    full = budget({"a": used}, {"a": held}, hard_limits={"a": 10})
    found = hard_breach(full, {"a": delta})
    assert found == (HardBreach("a", used + held, 10) if breaches else None)


def test_the_first_dimension_by_name_breaches() -> None:
    both = budget({"a": 5, "b": 5}, hard_limits={"a": 5, "b": 5}, soft_limits={"a": 1, "b": 1})
    assert hard_breach(both, {"b": 1, "a": 1}) == HardBreach("a", 5, 5)
    assert hard_breach(both, {"b": 1, "a": 0}) == HardBreach("b", 5, 5)
    assert soft_breach(both, {"b": 0, "a": 0}) == SoftBreach("a", 5, 1)


def test_only_named_dimensions_breach() -> None:
    over = budget({"a": 9}, hard_limits={"a": 5}, soft_limits={"a": 1})
    assert hard_breach(over, {"z": 1}) is None
    assert soft_breach(over, {"z": 1}) is None


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"hard_limits": {"a": 11}}, None),
        ({"hard_limits": {"a": 10}}, Closed("a", 10, 10, HardAction.BLOCK)),
        ({"hard_limits": {"a": 10}, "on_hard_limit": HardAction.DENY}, None),
        (
            {"hard_limits": {"a": 10}, "on_hard_limit": HardAction.FAIL},
            Closed("a", 10, 10, HardAction.FAIL),
        ),
        ({"hard_limits": {"a": 1}, "enforcement_mode": EnforcementMode.ADVISORY}, None),
        ({"soft_limits": {"a": 1}}, None),
        ({"soft_limits": {"a": 10}, "on_soft_limit": SoftAction.BLOCK}, None),
        (
            {"soft_limits": {"a": 9}, "on_soft_limit": SoftAction.BLOCK},
            Closed("a", 10, 9, HardAction.BLOCK),
        ),
        (
            {
                "hard_limits": {"a": 10},
                "soft_limits": {"a": 9},
                "on_hard_limit": HardAction.DENY,
                "on_soft_limit": SoftAction.BLOCK,
            },
            Closed("a", 10, 9, HardAction.BLOCK),
        ),
    ],
)
def test_when_a_budget_is_closed(policy: dict[str, Any], expected: Closed | None) -> None:
    """What is held closes as what is used does."""
    assert closed(budget({"a": 10}, **policy)) == expected
    assert closed(budget({"a": 4}, {"a": 6}, **policy)) == expected


def test_nothing_falls_below_zero() -> None:
    after = moved(budget({"a": 3}, {"a": 2}), AT, used={"a": -9}, held={"a": -9})
    assert (after.used("a"), after.committed("a")) == (0, 0)


def test_sums_stay_within_64_bits() -> None:
    near = budget({"a": AMOUNT_MAX - 2}, {"a": 1})
    assert overflow(near, {"a": 1}) is None
    refusal = overflow(near, {"a": 2})
    assert refusal is not None
    assert (refusal.error, refusal.fields) == (InvalidInput, {"field": "a"})


def test_creating_again_compares() -> None:
    made = budget(hard_limits={"a": 1})
    same = CreateBudget(budget_id="b", policy=BudgetPolicy(hard_limits={"a": 1}))
    other = CreateBudget(budget_id="b", policy=BudgetPolicy(hard_limits={"a": 2}))
    assert isinstance(create_budget(None, made, same, AT).reply, BudgetAlreadySatisfied)
    conflict = create_budget(None, made, other, AT)
    assert isinstance(conflict.reply, Refused)
    assert conflict.reply.error is LimitConflict
    assert conflict == Decision(conflict.reply)


@pytest.mark.parametrize("scope", ScopeType)
def test_a_budget_applies_to_what_it_is_for(scope: ScopeType) -> None:
    """What is created on a lane, in a namespace or in a flow; or one execution, from now on."""
    policy = BudgetPolicy(scope_type=scope, scope_id=EXECUTION_ID, hard_limits={"a": 1})
    command = CreateBudget(budget_id="b", policy=policy)
    execution = leased() if scope is ScopeType.EXECUTION else None
    decision = create_budget(execution, new_budget("b", AT), command, AT)
    kept = {type(each) for each in decision.saves}
    if scope is ScopeType.EXECUTION:
        assert kept == {Budget, AttachmentRow}
        assert decision.execution is not None
        assert decision.execution.bounds.budget_ids == ("b",)
        assert the(decision, AttachmentRow) == AttachmentRow("b", EXECUTION_ID)
        absent = create_budget(None, new_budget("b", AT), command, AT)
        assert isinstance(absent.reply, Refused)
        assert absent.reply.error is NotFound
    elif scope in (ScopeType.LANE, ScopeType.NAMESPACE, ScopeType.FLOW):
        assert kept == {Budget, ScopeRow}
        assert the(decision, ScopeRow) == ScopeRow(scope, EXECUTION_ID, "b")
    else:
        assert kept == {Budget}


def test_an_execution_that_has_ended_is_not_attached() -> None:
    policy = BudgetPolicy(scope_type=ScopeType.EXECUTION, scope_id=EXECUTION_ID)
    command = CreateBudget(budget_id="b", policy=policy)
    decision = create_budget(completed(), new_budget("b", AT), command, AT)
    assert decision.execution is None
    assert [type(each) for each in decision.saves] == [Budget]


def test_attachments_follow_the_life_of_an_execution() -> None:
    alive = attach(attach(leased(), "b2"), "b1")
    assert alive.bounds.budget_ids == ("b1", "b2")
    over = replace(completed(), bounds=alive.bounds)
    rows = (AttachmentRow("b1", EXECUTION_ID), AttachmentRow("b2", EXECUTION_ID))
    assert attach_living(over) == Decision(None, drops=rows)
    assert attach_living(alive) == Decision(None, saves=rows)


@pytest.mark.parametrize("command", [UpdateBudget(budget_id="b"), ResetBudget(budget_id="b")])
def test_without_a_policy_there_is_nothing_to_change(command: Any) -> None:
    rule: Any = update_budget if isinstance(command, UpdateBudget) else reset_budget
    decision = rule(new_budget("b", AT), command, AT)
    assert decision.reply.error is NotFound
    assert decision == Decision(decision.reply)


def test_an_update_merges_limits_and_keeps_the_rest() -> None:
    before = budget(hard_limits={"a": 1, "b": 2}, on_hard_limit=HardAction.FAIL)
    change = UpdateBudget(budget_id="b", hard_limits={"b": 3, "c": 4}, soft_limits={"a": 1})
    after = the(update_budget(before, change, AT), Budget)
    assert after.row.policy == BudgetPolicy(
        hard_limits={"a": 1, "b": 3, "c": 4},
        soft_limits={"a": 1},
        on_hard_limit=HardAction.FAIL,
    )


def test_an_update_keeps_the_number_of_limits_bounded() -> None:
    before = budget(hard_limits={f"d{number}": 1 for number in range(DIMENSIONS_MAX)})
    full = update_budget(before, UpdateBudget(budget_id="b", hard_limits={"one more": 1}), AT)
    assert isinstance(full.reply, Refused)
    assert full.reply.fields == {"field": "hard_limits"}
    known = update_budget(before, UpdateBudget(budget_id="b", hard_limits={"d0": 2}), AT)
    assert not isinstance(known.reply, Refused)


@pytest.mark.parametrize(
    ("now", "expected"),
    [(0, 1000), (999, 1000), (1000, 2000), (1001, 2000), (5500, 6000)],
)
def test_a_schedule_never_drifts(now: int, expected: int) -> None:
    """Start + k · interval, the first after now."""
    assert next_after(1000, 1000, now) == expected
    assert next_after(1000, 0, now) is None


def test_a_manual_reset_keeps_a_future_time() -> None:
    periodic = budget(reset_interval_ms=1000)
    reply = reset_budget(periodic, ResetBudget(budget_id="b"), Moment(NOW + 10)).reply
    assert reply == BudgetReset(NOW + 1000)


def test_a_reset_that_is_not_due_does_nothing() -> None:
    periodic = budget({"a": 1}, reset_interval_ms=1000)
    early = reset_budget(periodic, ResetBudget(budget_id="b", only_if_due=True), Moment(NOW + 999))
    assert early == Decision(BudgetReset(NOW + 1000))
    due = reset_budget(periodic, ResetBudget(budget_id="b", only_if_due=True), Moment(NOW + 1000))
    after = the(due, Budget)
    assert (after.used("a"), after.row.generation) == (0, 1)


def test_a_reset_keeps_holds_and_lifetime_counts() -> None:
    full = budget({"a": 5}, {"a": 3}, hard_limits={"a": 8})
    counted, _ = count_hard_breach(full, HardBreach("a", 8, 8), AT)
    after = the(reset_budget(counted, ResetBudget(budget_id="b"), Moment(NOW + 1)), Budget)
    assert (after.used("a"), after.committed("a")) == (0, 3)
    row = after.row
    assert (row.breach_count, row.last_breach_at, row.last_breach_dim) == (1, None, None)
    assert (row.generation, row.reset_count, row.last_reset_at) == (1, 1, NOW + 1)


def test_hard_breaches_are_all_counted_and_published_once_a_minute() -> None:
    start = NOW // BREACH_EVENT_PERIOD_MS * BREACH_EVENT_PERIOD_MS
    full, published = budget(hard_limits={"a": 1}), 0
    breach = HardBreach("a", 1, 1)
    for second in range(0, 180, 10):
        full, events = count_hard_breach(full, breach, Moment(start + 1000 * second))
        published += len(events)
    assert (full.row.breach_count, published) == (18, 3)


def test_a_cancellation_goes_before_an_unblocking() -> None:
    row = with_pending(budget().row, PendingWork.CANCEL, NOW)
    assert (row.pending, row.due_at) == (PendingWork.CANCEL, NOW)
    assert with_pending(row, PendingWork.UNBLOCK, NOW).pending is PendingWork.CANCEL
    done = with_pending(replace(row, next_reset_at=NOW + 5), PendingWork.NONE, NOW)
    assert (done.pending, done.due_at) == (PendingWork.NONE, NOW + 5)
