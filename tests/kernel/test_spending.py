"""Spending against a brute-force model: whatever happens, the sums are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.limit.admission import BUDGET_EXCEEDED
from flowfabric.kernel.limit.budget import Budget, new_budget
from flowfabric.kernel.limit.budget_policy import (
    CreateBudget,
    ResetBudget,
    create_budget,
    reset_budget,
)
from flowfabric.kernel.limit.ledger import Account, counted_in, release_budget
from flowfabric.kernel.limit.reservation import (
    ReleaseHold,
    Reserve,
    Settle,
    lapse_hold,
    release_hold,
    reserve,
    return_hold,
    settle,
)
from flowfabric.kernel.limit.spending import (
    SPEND,
    RecordSpend,
    ReportUsage,
    record_spend,
    report_usage,
)
from flowfabric.model.budget import (
    AlreadyApplied,
    AskFirst,
    BudgetPolicy,
    DedupRow,
    HardAction,
    HardBreach,
    HoldReleased,
    HoldRow,
    LedgerRow,
    Ok,
    Reserved,
    SoftBreach,
    TotalRow,
)
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace
from tests.support.builders import fence_of, leased
from tests.support.decisions import the

NOW = 1_000_000
TTL = 1000
HARD = {"a": 20, "b": 10}
DIMENSIONS = ("a", "b", "c")
EXECUTIONS = ("e1", "e2", "e3")
HOLDS = ("h1", "h2")


class Book:
    """A budget with its ledgers, keys and reservations, as the engine would keep them."""

    def __init__(self, **policy: Any) -> None:
        self.now = NOW
        made = create_budget(
            None,
            new_budget("b", self.at),
            CreateBudget(budget_id="b", policy=BudgetPolicy(**policy)),
            self.at,
        )
        self.budget = the(made, Budget)
        self.lines: dict[tuple[str, str], LedgerRow] = {}
        self.totals: dict[tuple[str, ...], TotalRow] = {}
        self.holds: dict[tuple[str, str], HoldRow] = {}
        self.keys: dict[tuple[str, ...], DedupRow] = {}
        running = leased(NOW, ttl_ms=10**9)
        self.executions = {each: replace(running, execution_id=each) for each in ("e1", "e2", "e3")}

    @property
    def at(self) -> Moment:
        return Moment(self.now)

    def account(self, owner: str) -> Account:
        places = counted_in(self.executions.get(owner))
        lines = [line for (each, _), line in sorted(self.lines.items()) if each == owner]
        totals = [row for key, row in self.totals.items() if key[:3] in places]
        return Account(owner, lines, places, totals)

    def take(self, decision: Decision[Any]) -> Any:
        """Keep what was decided; its reply."""
        if decision.execution is not None:
            self.executions[decision.execution.execution_id] = decision.execution
        for record in decision.saves:
            self._put(record, record)
        for record in decision.drops:
            self._put(record, None)
        return decision.reply

    def _put(self, record: Record, value: Any) -> None:
        match record:
            case Budget():
                self.budget = record
                return
            case LedgerRow():
                table: dict[Any, Any] = self.lines
                key: tuple[str, ...] = (record.execution_id, record.dimension)
            case TotalRow():
                table = self.totals
                key = (record.scope, record.namespace, record.scope_id, record.dimension)
            case DedupRow():
                table = self.keys
                key = key_of(record)
            case HoldRow():
                table = self.holds
                key = (record.execution_id, record.hold_id)
            case _:
                raise AssertionError(record)
        if value is None:
            del table[key]
        else:
            table[key] = value

    def report(self, amounts: Mapping[str, int], key: str | None = None, by: str = "") -> Any:
        owner = self.executions.get(by)
        command = ReportUsage(
            budget_id="b",
            amounts=amounts,
            dedup_key=key,
            dedup_ttl_ms=TTL,
            execution_id=by or None,
            fence=None if owner is None else fence_of(owner),
        )
        seen = self.keys.get(command.seen_under or ())
        return self.take(report_usage(owner, self.budget, seen, self.account(by), command, self.at))

    def spend(self, owner: str, amounts: Mapping[str, int], key: str | None = None) -> Any:
        command = RecordSpend(
            budget_id="b", execution_id=owner, amounts=amounts, dedup_key=key, dedup_ttl_ms=TTL
        )
        seen = self.keys.get(command.seen_under or ())
        return self.take(record_spend(self.budget, seen, self.account(owner), command, self.at))

    def release(self, owner: str) -> None:
        spends = [row for row in self.keys.values() if key_of(row)[1:3] == (SPEND, owner)]
        self.take(release_budget(self.budget, self.account(owner), spends, self.at))

    def reserve(self, owner: str, name: str, amounts: Mapping[str, int]) -> Any:
        execution = self.executions[owner]
        command = Reserve(
            budget_id="b",
            execution_id=owner,
            fence=fence_of(execution),
            hold_id=name,
            amounts=amounts,
            ttl_ms=TTL,
        )
        hold, settled = self.holds.get((owner, name)), self.keys.get(command.seen_under)
        return self.take(reserve(execution, self.budget, hold, settled, command, self.at))

    def settle(
        self, owner: str, name: str, amounts: Mapping[str, int], by: Execution | None = None
    ) -> Any:
        execution = self.executions[owner]
        command = Settle(
            budget_id="b",
            execution_id=owner,
            fence=fence_of(by or execution),
            hold_id=name,
            amounts=amounts,
        )
        hold, seen = self.holds.get((owner, name)), self.keys.get(command.seen_under)
        account = self.account(owner)
        return self.take(settle(execution, self.budget, hold, account, seen, command, self.at))

    def give_back(self, owner: str, name: str) -> Any:
        execution = self.executions[owner]
        command = ReleaseHold(
            budget_id="b", execution_id=owner, fence=fence_of(execution), hold_id=name
        )
        hold = self.holds.get((owner, name))
        return self.take(release_hold(execution, self.budget, hold, command, self.at))

    def reset(self) -> None:
        self.take(reset_budget(self.budget, ResetBudget(budget_id="b"), self.at))

    @property
    def used(self) -> dict[str, int]:
        return {name: row.used for name, row in self.budget.usage.items() if row.used}

    @property
    def held(self) -> dict[str, int]:
        return {name: row.held for name, row in self.budget.usage.items() if row.held}


def key_of(row: DedupRow) -> tuple[str, ...]:
    return (row.budget_id, row.operation, row.execution_id, row.dedup_key)


# --- one rule at a time --------------------------------------------------------------------------


def test_a_repeated_report_returns_its_first_outcome() -> None:
    book = Book(soft_limits={"a": 5})
    assert book.report({"a": 4}, "k1") == Ok()
    assert book.report({"a": 4}, "k2") == SoftBreach("a", 8, 5)
    assert [book.report({"a": 4}, key) for key in ("k1", "k2")] == [Ok(), SoftBreach("a", 8, 5)]
    assert (book.used, book.budget.row.soft_breach_count) == ({"a": 8}, 1)


def test_a_repeated_spend_is_already_applied() -> None:
    book = Book(soft_limits={"a": 1})
    assert book.spend("e1", {"a": 4}, "k") == SoftBreach("a", 4, 1)
    assert book.spend("e1", {"a": 4}, "k") == AlreadyApplied()
    assert book.spend("e2", {"a": 4}, "k") == SoftBreach("a", 8, 1)


def test_a_refused_call_is_judged_again_and_counted_once() -> None:
    book = Book(hard_limits={"a": 5})
    book.report({"a": 3})
    for _ in range(3):
        assert book.spend("e1", {"a": 3}, "k") == HardBreach("a", 3, 5)
    assert book.budget.row.breach_count == 1
    book.reset()
    assert book.spend("e1", {"a": 3}, "k") == Ok()
    assert book.spend("e1", {"a": 3}, "k") == AlreadyApplied()


def test_a_release_after_a_reset_gives_nothing_back() -> None:
    book = Book()
    book.spend("e1", {"a": 5})
    book.reset()
    book.spend("e2", {"a": 3})
    book.release("e1")
    assert book.used == {"a": 3}


def test_a_hold_is_held_once_and_for_its_amounts() -> None:
    book = Book()
    first = book.reserve("e1", "h", {"a": 5})
    assert book.reserve("e1", "h", {"a": 5}) == first == Reserved("h", NOW + TTL)
    other = book.reserve("e1", "h", {"a": 6})
    assert isinstance(other, Refused)
    assert other.error is IdempotencyConflict
    assert book.held == {"a": 5}


def test_a_lapsed_hold_is_replaced_and_never_settled() -> None:
    book = Book(hard_limits={"a": 5})
    book.reserve("e1", "h", {"a": 4})
    book.now += TTL
    late = book.settle("e1", "h", {"a": 4})
    assert isinstance(late, Refused)
    assert (late.error, late.fields) == (NotFound, {"entity": "hold"})
    assert book.reserve("e1", "h", {"a": 6}) == HardBreach("a", 0, 5)
    assert book.held == {"a": 4}  # the loop takes it away
    assert book.reserve("e1", "h", {"a": 5}) == Reserved("h", book.now + TTL)
    assert book.held == {"a": 5}


def test_a_hold_of_an_earlier_lease_is_replaced() -> None:
    book = Book(hard_limits={"a": 5})
    book.reserve("e1", "h", {"a": 5})
    before = book.executions["e1"]
    book.executions["e1"] = replace(before, lease_epoch=before.lease_epoch + 1)
    assert book.reserve("e1", "h", {"a": 3}) == Reserved("h", NOW + TTL)
    assert book.held == {"a": 3}
    assert book.executions["e1"].side_holds == 1


def test_the_reserved_part_is_charged_and_its_excess_judged() -> None:
    book = Book(hard_limits={"a": 10})
    book.report({"a": 5})
    book.reserve("e1", "h", {"a": 4})
    assert book.settle("e1", "h", {"a": 6, "b": 1}) == HardBreach("a", 5, 10)
    assert (book.used, book.held) == ({"a": 9}, {})
    assert book.budget.row.breach_count == 1


def test_a_hold_given_back_twice_is_given_back_once() -> None:
    book = Book()
    book.reserve("e1", "h", {"a": 4})
    replies = [book.give_back("e1", "h"), book.give_back("e1", "h")]
    assert replies == [HoldReleased(True), HoldReleased(False)]


@pytest.mark.parametrize("action", HardAction)
@pytest.mark.parametrize("how", ["report", "reserve", "settle"])
def test_a_breach_fails_the_execution_only_where_the_policy_says_so(
    action: HardAction, how: str
) -> None:
    book = Book(hard_limits={"a": 1}, on_hard_limit=action)
    if how == "report":
        assert book.report({"a": 2}, by="e1") == HardBreach("a", 0, 1)
    elif how == "reserve":
        asks = action is HardAction.ASK
        expected = AskFirst("a", 0, 1) if asks else HardBreach("a", 0, 1)
        assert book.reserve("e1", "h", {"a": 2}) == expected
    else:
        book.reserve("e1", "h", {"a": 1})
        assert book.settle("e1", "h", {"a": 2}) == HardBreach("a", 0, 1)
    after = book.executions["e1"]
    assert after.is_terminal == (action is HardAction.FAIL)
    assert after.side_holds == 0
    if action is HardAction.FAIL:
        assert (after.failure_category, after.failure_reason) == (
            BUDGET_EXCEEDED,
            "budget b: a 0/1",
        )


def test_a_breach_from_outside_fails_no_execution() -> None:
    book = Book(hard_limits={"a": 1}, on_hard_limit=HardAction.FAIL)
    command = ReportUsage(
        budget_id="b", amounts={"a": 2}, dedup_key=None, dedup_ttl_ms=TTL, execution_id="e1"
    )
    decision = report_usage(book.executions["e1"], book.budget, None, None, command, book.at)
    assert decision.execution is None
    assert book.spend("e1", {"a": 2}) == HardBreach("a", 0, 1)
    assert not book.executions["e1"].is_terminal


def test_a_worker_that_lost_its_lease_is_told_how_its_call_went() -> None:
    """Its repeated call is answered as the first; a new one is refused."""
    book = Book()
    running = book.executions["e1"]
    book.report({"a": 4}, "k", by="e1")
    book.reserve("e1", "h", {"a": 5})
    book.settle("e1", "h", {"a": 3})
    book.reserve("e1", "open", {"a": 1})
    book.executions["e1"] = replace(running, lease_epoch=running.lease_epoch + 1)
    for key, answer in (("k", Ok), ("new", Refused)):
        command = ReportUsage(
            budget_id="b",
            amounts={"a": 4},
            dedup_key=key,
            dedup_ttl_ms=TTL,
            execution_id="e1",
            fence=fence_of(running),
        )
        seen = book.keys.get(command.seen_under or ())
        decision = report_usage(book.executions["e1"], book.budget, seen, None, command, book.at)
        assert isinstance(decision.reply, answer)
    assert book.settle("e1", "h", {"a": 3}, by=running) == Ok()
    assert isinstance(book.settle("e1", "open", {"a": 1}, by=running), Refused)
    assert (book.used, book.held) == ({"a": 7}, {"a": 1})


def test_an_expired_key_counts_as_missing() -> None:
    book = Book()
    for _ in range(2):
        assert book.report({"a": 1}, "k") == Ok()
        assert book.spend("e1", {"a": 1}, "k") == Ok()
        book.now += TTL
    assert book.used == {"a": 4}


def test_a_new_reservation_is_not_answered_with_the_settlement_of_an_old_one() -> None:
    book = Book()
    for amount in (3, 4):
        book.reserve("e1", "h", {"a": 5})
        assert book.settle("e1", "h", {"a": amount}) == Ok()
    book.reserve("e1", "h", {"a": 5})
    book.give_back("e1", "h")
    assert isinstance(book.settle("e1", "h", {"a": 1}), Refused)
    assert book.used == {"a": 7}


def test_what_was_given_back_may_be_spent_again_under_the_same_keys() -> None:
    book = Book()
    assert book.spend("e1", {"a": 4}, "k") == Ok()
    assert book.spend("e2", {"a": 4}, "k") == Ok()
    book.release("e1")
    assert book.spend("e1", {"a": 4}, "k") == Ok()
    assert book.spend("e2", {"a": 4}, "k") == AlreadyApplied()
    assert book.used == {"a": 8}


def test_a_reservation_lapses_at_its_time_and_not_before() -> None:
    book = Book()
    book.reserve("e1", "h", {"a": 5})
    hold, owner = book.holds["e1", "h"], book.executions["e1"]
    early = lapse_hold(owner, book.budget, hold, Moment(NOW + TTL - 1))
    assert early == lapse_hold(owner, book.budget, None, book.at) == Decision(HoldReleased(False))
    assert book.take(lapse_hold(owner, book.budget, hold, Moment(NOW + TTL))) == HoldReleased(True)
    assert (book.held, book.holds, book.executions["e1"].side_holds) == ({}, {}, 0)


def test_what_goes_back_with_the_lease_is_counted_by_others() -> None:
    book = Book()
    book.reserve("e1", "h", {"a": 5})
    decision = return_hold(book.budget, book.holds["e1", "h"], book.at)
    assert decision.execution is None
    assert book.take(decision) == HoldReleased(True)
    assert (book.held, book.holds) == ({}, {})


# --- all of them together ------------------------------------------------------------------------


class Model:
    """The same by brute force: every accepted amount is kept and added up each time."""

    def __init__(self) -> None:
        self.entries: list[tuple[str | None, str, int]] = []  # of the present generation
        self.holds: dict[tuple[str, str], dict[str, int]] = {}
        self.settled: dict[tuple[str, str], Any] = {}  # the answers

    @property
    def used(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for _, dimension, amount in self.entries:
            total[dimension] += amount
        return total

    @property
    def held(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for amounts in self.holds.values():
            total.update(amounts)
        return total

    def breach(self, amounts: Mapping[str, int]) -> HardBreach | None:
        committed = self.used + self.held
        for name in sorted(amounts):
            if name in HARD and committed[name] + amounts[name] > HARD[name]:
                return HardBreach(name, committed[name], HARD[name])
        return None

    def charge(self, owner: str | None, amounts: Mapping[str, int]) -> None:
        self.entries += [(owner, name, amount) for name, amount in amounts.items()]


amounts_ = st.dictionaries(st.sampled_from(DIMENSIONS), st.integers(0, 9), max_size=3)
owners = st.sampled_from(EXECUTIONS)
names = st.sampled_from(HOLDS)
steps = st.one_of(
    st.tuples(st.just("report"), amounts_),
    st.tuples(st.just("spend"), owners, amounts_),
    st.tuples(st.just("release"), owners),
    st.tuples(st.just("reserve"), owners, names, amounts_),
    st.tuples(st.just("settle"), owners, names, amounts_),
    st.tuples(st.just("give_back"), owners, names),
    st.tuples(st.just("reset")),
)


def play(book: Book, model: Model, step: tuple[Any, ...]) -> None:
    """One step on both; the answer must be the one the model foretells."""
    match step:
        case ("report", amounts):
            expected = model.breach(amounts) or Ok()
            assert book.report(amounts) == expected
            if expected == Ok():
                model.charge(None, amounts)
        case ("spend", owner, amounts):
            expected = model.breach(amounts) or Ok()
            assert book.spend(owner, amounts) == expected
            if expected == Ok():
                model.charge(owner, amounts)
        case ("release", owner):
            book.release(owner)
            model.entries = [entry for entry in model.entries if entry[0] != owner]
        case ("reserve", owner, name, amounts):
            play_reserve(book, model, owner, name, amounts)
        case ("settle", owner, name, amounts):
            play_settle(book, model, owner, name, amounts)
        case ("give_back", owner, name):
            known = model.holds.pop((owner, name), None)
            assert book.give_back(owner, name) == HoldReleased(known is not None)
        case _:
            book.reset()
            model.entries = []


def play_reserve(
    book: Book, model: Model, owner: str, name: str, amounts: Mapping[str, int]
) -> None:
    reply, known = book.reserve(owner, name, amounts), model.holds.get((owner, name))
    if known is not None:
        assert isinstance(reply, Reserved if known == amounts else Refused)
    elif breach := model.breach(amounts):
        assert reply == breach
    else:
        assert isinstance(reply, Reserved)
        model.holds[owner, name] = dict(amounts)
        model.settled.pop((owner, name), None)


def play_settle(
    book: Book, model: Model, owner: str, name: str, amounts: Mapping[str, int]
) -> None:
    reply, hold = book.settle(owner, name, amounts), model.holds.pop((owner, name), None)
    if hold is None:
        told = model.settled.get((owner, name))
        assert isinstance(reply, Refused) if told is None else reply == told
        return
    model.settled[owner, name] = reply
    breach = model.breach(amounts)
    assert reply == (breach or Ok())
    covered = {dim: min(amount, hold.get(dim, 0)) for dim, amount in amounts.items()}
    model.charge(owner, covered if breach else amounts)


@settings(max_examples=300)
@given(st.lists(steps, max_size=40))
def test_any_history_keeps_the_sums_exact_and_the_limits(history: list[tuple[Any, ...]]) -> None:
    """Used is the accepted sum of this generation, held the sum of holds, never over a limit."""
    book, model = Book(hard_limits=HARD), Model()
    for step in history:
        play(book, model, step)
        book.now += 1  # histories are shorter than a hold lasts
        assert book.used == +model.used
        assert book.held == +model.held
        for owner in EXECUTIONS:
            open_holds = sum(each == owner for each, _ in book.holds)
            assert book.executions[owner].side_holds == open_holds
        for name, limit in HARD.items():
            assert 0 <= book.budget.committed(name) <= limit
    for owner in EXECUTIONS:
        play(book, model, ("release", owner))
        for name in HOLDS:
            play(book, model, ("give_back", owner, name))
    assert book.held == {}
    assert book.used == +model.used  # what nobody's ledger holds: plain reports
