"""Who may start: budgets first, then the quota, and what a denial does."""

from __future__ import annotations

import pytest

from flowfabric.errors import ExecutionNotEligible
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.expire import PromoteDelayed
from flowfabric.kernel.limit.admission import (
    BUDGET_EXCEEDED,
    Denial,
    block,
    budget_denial,
    budget_key,
    gate_key,
    quota_denial,
    take_slot,
    unknown_quota,
)
from flowfabric.kernel.limit.budget import Budget
from flowfabric.kernel.limit.quota import Gate
from flowfabric.model.bounds import Bounds
from flowfabric.model.budget import BudgetPolicy, BudgetRow, EnforcementMode, HardAction, UsageRow
from flowfabric.model.execution import Execution, Grant, GrantKind
from flowfabric.model.quota import (
    AdmissionRow,
    AdmissionState,
    ConcurrencyExceeded,
    GateRow,
    QuotaPolicy,
    RateExceeded,
)
from flowfabric.model.record import replace
from flowfabric.model.state import BlockingReason, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, image
from tests.support.decisions import the


def bounded(**fields: object) -> Execution:
    return replace(make.created(), bounds=Bounds(**fields))  # type: ignore[arg-type]


def budget(name: str, used: int, held: int = 0, **policy: object) -> Budget:
    rules = BudgetPolicy(hard_limits={"tokens": 10}, **policy)  # type: ignore[arg-type]
    usage = {"tokens": UsageRow(name, "tokens", used, held, NOW)}
    return Budget(BudgetRow(name, rules, NOW, NOW), usage)


@pytest.mark.parametrize(("used", "held", "denied"), [(9, 0, False), (10, 0, True), (5, 5, True)])
def test_a_budget_admits_below_its_limit(used: int, held: int, denied: bool) -> None:
    """At the limit no execution starts; reservations count."""
    denial = budget_denial(bounded(budget_ids=("b",)), {"b": budget("b", used, held)})
    assert (denial is not None) is denied
    if denial is not None:
        assert denial.detail == "budget b: tokens 10/10"
        assert denial.blocked_on == budget_key("b")


def test_the_first_closed_budget_by_name_is_named() -> None:
    budgets = {"a": budget("a", 1), "b": budget("b", 10), "c": budget("c", 10)}
    denial = budget_denial(bounded(budget_ids=("a", "b", "c")), budgets)
    assert denial is not None
    assert denial.blocked_on == budget_key("b")


def test_an_unknown_budget_admits_no_execution() -> None:
    collecting = Budget(BudgetRow("b", None, NOW, NOW), {})
    for budgets in ({}, {"b": None}, {"b": collecting}):
        denial = budget_denial(bounded(budget_ids=("b",)), budgets)
        assert denial is not None
        assert denial.detail.startswith("budget b: does not exist")


def test_budgets_that_do_not_close_admit_every_execution() -> None:
    execution = bounded(budget_ids=("b",))
    for policy in (
        {"on_hard_limit": HardAction.DENY},
        {"enforcement_mode": EnforcementMode.ADVISORY},
    ):
        assert budget_denial(execution, {"b": budget("b", 99, **policy)}) is None
    assert budget_denial(make.created(), {}) is None


def test_a_quotas_no_says_until_when_if_it_knows() -> None:
    policy = QuotaPolicy("q", 10, 1, 1, 0, 0, 0)
    gate = Gate(policy, GateRow("q", "k", active=1, in_window=1))
    rate = quota_denial(gate, RateExceeded(700), NOW)
    assert (rate.until, rate.blocked_on) == (NOW + 700, gate_key("q", "k"))
    cap = quota_denial(gate, ConcurrencyExceeded(), NOW)
    assert (cap.until, cap.detail) == (None, "quota q for k: 1/1 running")
    ghost = unknown_quota(bounded(quota_policy_id="ghost"))
    assert ghost.detail == "quota ghost does not exist or cannot be read"


def test_names_cannot_be_confused() -> None:
    assert gate_key("a", "b:c") != gate_key("a:b", "c")
    assert gate_key("a", "b") != budget_key("a")


# --- what a denial does ------------------------------------------------------------------------

DENIAL = Denial(BlockingReason.WAITING_FOR_QUOTA, "no room", gate_key("q", "default"), NOW + 50)


def test_the_denied_waits_and_comes_back_at_its_time() -> None:
    decision = block(make.created(), DENIAL, Moment(NOW))
    parked = decision.execution
    assert parked is not None
    assert parked.public_state is PublicState.RATE_LIMITED
    assert (parked.blocking_detail, parked.blocked_on) == ("no room", DENIAL.blocked_on)
    assert parked.blocked_until == NOW + 50
    early = PromoteDelayed(execution_id=EXECUTION_ID)
    assert make.decide(parked, early, NOW + 49).execution is None
    back = image(parked, early, NOW + 50)
    assert back.is_waiting
    assert (back.blocked_on, back.blocked_until, back.blocking_detail) == (None, None, "")


def test_a_denial_withdraws_the_grant() -> None:
    grant = Grant(GrantKind.CLAIM, "g", "w1", "w1-1", NOW + 100)
    parked = block(replace(make.created(), grant=grant), DENIAL, Moment(NOW)).execution
    assert parked is not None
    assert parked.grant is None


@pytest.mark.parametrize(
    ("action", "state"),
    [
        (HardAction.CANCEL_PENDING, PublicState.CANCELLED),
        (HardAction.FAIL, PublicState.FAILED),
        (HardAction.BLOCK, PublicState.RATE_LIMITED),
        (HardAction.DENY, PublicState.RATE_LIMITED),
    ],
)
def test_a_budget_says_what_becomes_of_the_denied(action: HardAction, state: PublicState) -> None:
    denial = Denial(BlockingReason.WAITING_FOR_BUDGET, "full", budget_key("b"), action=action)
    after = block(make.created(), denial, Moment(NOW)).execution
    assert after is not None
    assert after.public_state is state
    if action is HardAction.CANCEL_PENDING:
        assert (after.cancelled_by, after.cancellation_reason) == (BUDGET_EXCEEDED, "full")
    if action is HardAction.FAIL:
        assert (after.failure_category, after.failure_reason) == (BUDGET_EXCEEDED, "full")


def test_a_claim_by_id_is_refused_with_the_reason() -> None:
    refusal = DENIAL.refusal()
    assert refusal.error is ExecutionNotEligible
    assert refusal.to_error().fields["blocking_reason"] == "waiting_for_quota"
    assert "no room" in str(refusal.to_error())


# --- slots -------------------------------------------------------------------------------------


def ask(gate: Gate | None) -> Decision[Denial | None]:
    bounds = Bounds(quota_policy_id="q")
    running = AdmissionState.RUNNING
    execution = replace(make.created(), bounds=bounds)
    return take_slot(execution, gate, None, running, Moment(NOW), jitter=0.0, due_at=None)


def test_an_execution_takes_its_slot_or_learns_why_not() -> None:
    free = Gate(QuotaPolicy("q", 10, 0, 1, 0, 0, 0), GateRow("q", "default"))
    taken = ask(free)
    assert taken.reply is None
    after = the(taken, Gate)
    assert (after.row.active, the(taken, AdmissionRow).execution_id) == (1, EXECUTION_ID)
    full = ask(after)
    assert isinstance(full.reply, Denial)
    assert (full.reply.detail, full.reply.until) == ("quota q: 1/1 running", None)
    assert full.saves == ()


def test_a_rate_says_when_to_come_back_and_an_unknown_quota_admits_none() -> None:
    rated = Gate(QuotaPolicy("q", 10, 1, 0, 0, 0, 0), GateRow("q", "default", in_window=1), NOW)
    denied = ask(rated)
    assert isinstance(denied.reply, Denial)
    assert denied.reply.until == NOW + 10_000
    assert the(denied, Gate).row.wave_size == 1  # it is counted among those that come back
    unknown = ask(None)
    assert isinstance(unknown.reply, Denial)
    assert unknown.reply.detail == "quota q does not exist or cannot be read"
