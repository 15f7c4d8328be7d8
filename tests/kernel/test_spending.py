"""Spending against a brute-force model: whatever happens, the sums are exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.limit.budget import (
    Budget,
    CreateBudget,
    ResetBudget,
    create_budget,
    new_budget,
    reset_budget,
)
from flowfabric.kernel.limit.spending import (
    RecordSpend,
    ReportUsage,
    Reserve,
    Settle,
    Spending,
    record_spend,
    release_budget,
    release_hold,
    report_usage,
    reserve,
    settle,
)
from flowfabric.model.budget import (
    AlreadyApplied,
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
)
from flowfabric.model.execution import Fence

NOW = 1_000_000
TTL = 1000
FENCE = Fence("lease", 1, "attempt")
HARD = {"a": 20, "b": 10}
DIMENSIONS = ("a", "b", "c")
EXECUTIONS = ("e1", "e2", "e3")
HOLDS = ("h1", "h2")


class Book:
    """A budget with its ledgers, keys and holds, as the engine would keep them."""

    def __init__(self, **policy: Any) -> None:
        self.now = NOW
        made = create_budget(
            new_budget("b", self.at),
            CreateBudget(budget_id="b", policy=BudgetPolicy(**policy)),
            self.at,
        )
        assert made.budget is not None
        self.budget: Budget = made.budget
        self.lines: dict[tuple[str, str], LedgerRow] = {}
        self.holds: dict[tuple[str, str], HoldRow] = {}
        self.keys: dict[tuple[str, str], DedupRow] = {}

    @property
    def at(self) -> Moment:
        return Moment(self.now)

    def ledger(self, owner: str) -> list[LedgerRow]:
        return [line for (each, _), line in sorted(self.lines.items()) if each == owner]

    def take(self, decision: Spending) -> Any:
        if decision.budget is not None:
            self.budget = decision.budget
        for line in decision.ledger:
            self.lines[line.execution_id, line.dimension] = line
        if decision.dedup is not None:
            self.keys[decision.dedup.execution_id, decision.dedup.dedup_key] = decision.dedup
        if decision.hold is not None:
            self.holds[decision.hold.execution_id, decision.hold.hold_id] = decision.hold
        return decision.reply

    def report(self, amounts: Mapping[str, int], key: str | None = None) -> Any:
        command = ReportUsage(budget_id="b", amounts=amounts, dedup_key=key, dedup_ttl_ms=TTL)
        return self.take(
            report_usage(self.budget, self.keys.get(("", key or "")), command, self.at)
        )

    def spend(self, owner: str, amounts: Mapping[str, int], key: str | None = None) -> Any:
        command = RecordSpend(
            budget_id="b", execution_id=owner, amounts=amounts, dedup_key=key, dedup_ttl_ms=TTL
        )
        seen = self.keys.get((owner, key or ""))
        return self.take(record_spend(self.budget, seen, self.ledger(owner), command, self.at))

    def release(self, owner: str) -> None:
        self.take(release_budget(self.budget, self.ledger(owner), self.at))
        self.lines = {key: line for key, line in self.lines.items() if key[0] != owner}

    def reserve(self, owner: str, name: str, amounts: Mapping[str, int], epoch: int = 1) -> Any:
        command = Reserve(
            budget_id="b",
            execution_id=owner,
            fence=FENCE,
            hold_id=name,
            amounts=amounts,
            ttl_ms=TTL,
        )
        hold = self.holds.get((owner, name))
        return self.take(reserve(self.budget, hold, epoch, command, self.at))

    def settle(self, owner: str, name: str, amounts: Mapping[str, int]) -> Any:
        command = Settle(
            budget_id="b", execution_id=owner, fence=FENCE, hold_id=name, amounts=amounts
        )
        hold = self.holds.get((owner, name))
        decision = settle(self.budget, hold, self.ledger(owner), command, self.at)
        return self._ended(owner, name, decision)

    def give_back(self, owner: str, name: str) -> Any:
        hold = self.holds.get((owner, name))
        return self._ended(owner, name, release_hold(self.budget, hold, self.at))

    def _ended(self, owner: str, name: str, decision: Spending) -> Any:
        if decision.hold_ends:
            del self.holds[owner, name]
        return self.take(decision)

    def reset(self) -> None:
        decision = reset_budget(self.budget, ResetBudget(budget_id="b"), self.at)
        assert decision.budget is not None
        self.budget = decision.budget

    @property
    def used(self) -> dict[str, int]:
        return {name: row.used for name, row in self.budget.usage.items() if row.used}

    @property
    def held(self) -> dict[str, int]:
        return {name: row.held for name, row in self.budget.usage.items() if row.held}


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
    book.reserve("e1", "h", {"a": 5}, epoch=1)
    assert book.reserve("e1", "h", {"a": 3}, epoch=2) == Reserved("h", NOW + TTL)
    assert book.held == {"a": 3}


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


def test_a_breach_fails_the_execution_only_where_the_policy_says_so() -> None:
    for action in HardAction:
        book = Book(hard_limits={"a": 1}, on_hard_limit=action)
        command = ReportUsage(budget_id="b", amounts={"a": 2}, dedup_key=None, dedup_ttl_ms=TTL)
        decision = report_usage(book.budget, None, command, book.at)
        expected = HardBreach("a", 0, 1) if action is HardAction.FAIL else None
        assert decision.fails_execution == expected


# --- all of them together ------------------------------------------------------------------------


class Model:
    """The same by brute force: every accepted amount is kept and added up each time."""

    def __init__(self) -> None:
        self.entries: list[tuple[str | None, str, int]] = []  # of the present generation
        self.holds: dict[tuple[str, str], dict[str, int]] = {}

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


def play_settle(
    book: Book, model: Model, owner: str, name: str, amounts: Mapping[str, int]
) -> None:
    reply, hold = book.settle(owner, name, amounts), model.holds.pop((owner, name), None)
    if hold is None:
        assert isinstance(reply, Refused)
        return
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
        for name, limit in HARD.items():
            assert 0 <= book.budget.committed(name) <= limit
    for owner in EXECUTIONS:
        play(book, model, ("release", owner))
        for name in HOLDS:
            play(book, model, ("give_back", owner, name))
    assert book.held == {}
    assert book.used == +model.used  # what nobody's ledger holds: plain reports
