"""What is true of budgets and quotas at every moment of a random history (I12).

Judged from the records alone, with no rule of the kernel, so that a wrong rule is noticed.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import Counter
from contextlib import AsyncExitStack
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.engine.engine import Engine
from flowfabric.engine.unit.limits import Limits
from flowfabric.engine.unit.quotas import Gates
from flowfabric.engine.unit.room import Room
from flowfabric.ids import partition_of
from flowfabric.kernel.limit.allowance import free_allowances, granted, used_up
from flowfabric.kernel.limit.budget import _passed, hard_breach, moved
from flowfabric.kernel.limit.holdings import gives_back_holdings, gives_back_slot
from flowfabric.kernel.limit.ledger import entered, release_budget
from flowfabric.kernel.limit.quota import LOOK_AGAIN_MS, admit, in_order
from flowfabric.kernel.limit.reservation import settle
from flowfabric.kernel.limit.spending import report_usage
from flowfabric.model.ask import LimitKind
from flowfabric.model.budget import BudgetRow, EnforcementMode, HardAction, SoftAction
from flowfabric.model.quota import AdmissionState
from flowfabric.model.results import Created
from flowfabric.stores.postgres import small
from flowfabric.stores.tables import (
    ADMISSIONS,
    ALLOWANCES,
    ASKERS,
    ASKS,
    ATTACHMENTS,
    BUDGETS,
    GATES,
    HOLDS,
    LEDGER,
    QUOTAS,
    USAGE,
)
from tests.property.budget import budget
from tests.property.crowd import CONFIG
from tests.property.histories import pick
from tests.property.limited import DEDUP_MS, DIMENSIONS, WholeLimitedHistories, both, budget_name
from tests.property.machines import is_noticed, only, try_histories
from tests.property.mint import SWITCH
from tests.property.seat import Seat
from tests.support.databases import PostgresServer
from tests.support.mutants import Mutant, plant
from tests.support.runner import StepRunner
from tests.support.spend import Sums, check_totals, sums_of_kinds

Dump = dict[str, list[Any]]
HISTORIES = budget("FF_PARITY_HISTORIES", 40)


class Watched(WholeLimitedHistories):
    """A history on the memory store, looked at after every step."""

    def __init__(self, runner: StepRunner) -> None:
        self.before: Dump = {}
        self.peaks: dict[tuple[str, str, int], int] = {}
        self.purged: Sums = Counter()  # what the lines said of executions that are gone
        super().__init__(runner, (Seat("memory://"),))

    def dump(self) -> Dump:
        return self.runner.run(self.seats[0].engine.store.dump())

    def after_step(self) -> None:
        dump = self.dump()
        check_budgets(dump)
        check_quotas(dump)
        check_attachments(dump)
        check_nobody_waits_for_nothing(dump, self.seats[0].clock.now_ms())
        check_growth(self.before, dump, self.peaks)
        check_asks(dump)
        if self.before:
            gone = {each.execution_id for each in self.before["executions"]}
            gone -= {each.execution_id for each in dump["executions"]}
            left = [each for each in self.before[LEDGER.name] if each.execution_id in gone]
            self.purged += sums_of_kinds({**self.before, LEDGER.name: left})
        check_totals(dump, self.purged)
        self.before = dump

    @rule(number=pick)
    def join_flow(self, number: int) -> None:
        """An execution that may have spent already joins a flow."""
        execution_id = self.execution(number)
        flow_id = flow_beside(execution_id)
        self.do(lambda seat: seat.engine.create_flow(flow_id=flow_id))
        self.do(
            lambda seat: seat.engine.add_execution_to_flow(
                flow_id=flow_id, execution_id=execution_id
            )
        )

    @rule(name=budget_name, spent=both, key=st.sampled_from(("once", "twice")))
    def report_twice(self, name: str, spent: tuple[int, int], key: str) -> None:
        """The second of two equal reports changes nothing, if the first was applied."""
        fields: dict[str, Any] = {
            "budget_id": name,
            "dimensions": DIMENSIONS,
            "deltas": spent,
            "dedup_key": key,
            "dedup_ttl_ms": DEDUP_MS,
        }
        first = self.do(lambda seat: seat.engine.report_usage_admin(**fields))
        usage = self.before[USAGE.name]
        second = self.do(lambda seat: seat.engine.report_usage_admin(**fields))
        assert second == first
        assert self.before[USAGE.name] == usage, "counted twice"

    @rule(one=pick, other=pick, spent=both)
    def spend_across_a_reset(self, one: int, other: int, spent: tuple[int, int]) -> None:
        self.spend(one, "b0", spent, None)
        self.reset_budget("b0")
        self.spend(other, "b0", spent, None)
        self.give_back(one, "b0")

    @rule()
    def wait_for_a_reset(self) -> None:
        """Somebody waits for a budget that is filled to the brim, and then it is empty again."""
        self.create_bounded("blue", ("b0",), None, "", None)
        for _ in range(5):
            self.report_from_outside("b0", (1, 1), None)
        self.act_at_once(1)
        self.reset_budget("b0")

    @rule(number=pick, wanted=both, spent=both, again=both, is_reset=st.booleans())
    def be_allowed_once(
        self,
        number: int,
        wanted: tuple[int, int],
        spent: tuple[int, int],
        again: tuple[int, int],
        is_reset: bool,
    ) -> None:
        """Somebody asks, may pass the limit once, and tries to do it twice."""
        self.do(lambda seat: seat.engine.update_budget(budget_id="b0", on_hard_limit="ask"))
        self.ask(number, "b0", wanted)
        for dimension in DIMENSIONS:
            self.answer(number, "b0", dimension, LimitKind.HARD, {"once": True}, is_alone=False)
        self.do(lambda seat: seat.engine.tick())
        if is_reset:
            self.reset_budget("b0")
            self.report_from_outside("b0", again, None)
        self.reserve(number, "b0", wanted, "x")
        self.reserve(number, "b0", again, "y")
        self.settle(-1, spent)
        self.settle(-2, spent)
        self.reserve(number, "b0", again, "z")

    def teardown(self) -> None:
        """An hour later nothing runs: nothing is held and every place is free."""
        try:
            for _ in range(3):
                self.move_clocks(self.now + 1_200_000)
                self.do(lambda seat: seat.engine.tick())
            assert not self.before[HOLDS.name]
            assert not [row for row in self.before[ADMISSIONS.name] if row.is_active]
        finally:
            super().teardown()


@cache
def flow_beside(execution_id: str) -> str:
    """The id of a flow on the partition of an execution; one for all of that partition."""
    wanted = int(execution_id[4:-38])
    ids = (f"01890000-0000-7000-8000-{number:012x}" for number in count(1))
    return next(each for each in ids if partition_of(each) == wanted)


# --- what is always true -----------------------------------------------------------------------


def check_budgets(dump: Dump) -> None:
    executions = {each.execution_id: each for each in dump["executions"]}
    held: Counter[tuple[str, str]] = Counter()
    for hold in dump[HOLDS.name]:
        owner = executions.get(hold.execution_id)
        assert owner is not None, f"{hold} outlived its owner"
        assert owner.is_leased, f"{hold} outlived its lease"
        assert owner.lease_epoch == hold.lease_epoch, f"{hold} is of another lease"
        assert owner.side_holds, f"{owner} does not know of {hold}"
        for dimension, amount in hold.amounts.items():
            held[hold.budget_id, dimension] += amount
    generations = {row.budget_id: row.generation for row in dump[BUDGETS.name]}
    spent: Counter[tuple[str, str]] = Counter()
    for line in dump[LEDGER.name]:
        if line.generation == generations[line.budget_id]:
            spent[line.budget_id, line.dimension] += line.spent
    for row in dump[USAGE.name]:
        key = (row.budget_id, row.dimension)
        assert row.held == held[key], f"{row}: the holds are {held[key]}"
        assert row.used >= spent[key], f"{row}: the ledgers say {spent[key]}"


def check_quotas(dump: Dump) -> None:
    executions = {each.execution_id: each for each in dump["executions"]}
    active: Counter[tuple[str, str]] = Counter()
    in_window: Counter[tuple[str, str]] = Counter()
    for row in dump[ADMISSIONS.name]:
        key = (row.quota_policy_id, row.dimension)
        active[key] += row.is_active
        in_window[key] += row.counted_at is not None
        if row.state is AdmissionState.RUNNING:
            owner = executions.get(row.execution_id)
            assert owner is not None, f"{row} outlived its owner"
            assert owner.is_leased, f"{row} runs no more"
        if row.state is AdmissionState.RESERVED:
            assert row.due_at is not None, f"{row} never lapses"
    for gate in dump[GATES.name]:
        key = (gate.quota_policy_id, gate.dimension)
        assert gate.active == active[key], f"{gate}: {active[key]} have a place"
        assert gate.in_window == in_window[key], f"{gate}: {in_window[key]} are in the window"


def check_attachments(dump: Dump) -> None:
    expected = {
        (budget_id, each.execution_id)
        for each in dump["executions"]
        if not each.is_terminal
        for budget_id in each.bounds.budget_ids
    }
    assert {(row.budget_id, row.execution_id) for row in dump[ATTACHMENTS.name]} == expected


def check_nobody_waits_for_nothing(dump: Dump, now: int) -> None:
    """Whoever is blocked on a limit waits for a time, for room, or for a look that is due."""
    budgets = {f"budget:{row.budget_id}": row for row in dump[BUDGETS.name]}
    gates = {f"quota:{row.quota_policy_id}\x1f{row.dimension}": row for row in dump[GATES.name]}
    quotas = {row.quota_policy_id: row for row in dump[QUOTAS.name]}
    for execution in dump["executions"]:
        waits_for = execution.blocked_on
        if waits_for is None or execution.is_terminal or execution.blocked_until is not None:
            continue
        if waits_for in budgets:
            row = budgets[waits_for]
            assert is_full(row, dump) or row.due_at is not None, f"{execution}: there is room"
        elif waits_for in gates:
            gate, quota = gates[waits_for], quotas[gates[waits_for].quota_policy_id]
            full = 0 < quota.active_concurrency_cap <= gate.active
            # Every gate is looked at in the end; where there is room it must be soon.
            shut = 0 < quota.max_requests_per_window <= gate.in_window
            soon = gate.due_at is not None and (shut or gate.due_at <= now + LOOK_AGAIN_MS)
            assert full or soon, f"{execution}: there is a place"


def is_full(row: BudgetRow, dump: Dump) -> bool:
    policy = row.policy
    assert policy is not None
    committed = {
        each.dimension: each.used + each.held
        for each in dump[USAGE.name]
        if each.budget_id == row.budget_id
    }
    hard = policy.on_hard_limit is not HardAction.DENY and any(
        0 < most <= committed.get(name, 0) for name, most in policy.hard_limits.items()
    )
    soft = policy.on_soft_limit is SoftAction.BLOCK and any(
        0 < most < committed.get(name, 0) for name, most in policy.soft_limits.items()
    )
    return policy.enforcement_mode is EnforcementMode.STRICT and (hard or soft)


def check_asks(dump: Dump) -> None:
    """Every spender waits for a question that is open, or whose answer is being told."""
    rows = {(each.budget_id, each.dimension, each.limit_kind): each for each in dump[ASKS.name]}
    counts: Counter[tuple[str, str, str]] = Counter()
    for asker in dump[ASKERS.name]:
        key = (asker.budget_id, asker.dimension, asker.limit_kind)
        counts[key] += 1
        assert rows[key].due_at is not None, f"{asker}: nothing will ever tell it"
    for key, row in rows.items():
        assert (row.open_since is not None) is row.is_open, row
        if row.is_open:
            assert row.spenders == counts[key], f"{row}: {counts[key]} wait"
    used: Counter[tuple[str, str, str]] = Counter()
    for hold in dump[HOLDS.name]:
        for name, amount in hold.allowed.items():
            used[hold.execution_id, hold.budget_id, name] += amount
    for row in dump[ALLOWANCES.name]:
        name = f"{row.limit_kind.value}:{row.dimension}"
        assert used[row.execution_id, row.budget_id, name] <= row.amount, f"{row} is used twice"


def check_growth(before: Dump, dump: Dump, peaks: dict[tuple[str, str, int], int]) -> None:
    """What grew in this step stayed within its limit; a limit lowered afterwards stops nobody.
    Where allowances were granted, it stayed within the highest limit of the period and these."""
    generations = {row.budget_id: row.generation for row in dump[BUDGETS.name]}
    policies = {row.budget_id: row.policy for row in dump[BUDGETS.name]}
    was = {(row.budget_id, row.dimension): row for row in before.get(USAGE.name, ())}
    for row in dump[USAGE.name]:
        old, policy = was.get((row.budget_id, row.dimension)), policies[row.budget_id]
        grew = row.used + row.held > (0 if old is None else old.used + old.held)
        is_strict = policy is not None and policy.enforcement_mode is EnforcementMode.STRICT
        most = policy.hard_limits.get(row.dimension, 0) if policy is not None and is_strict else 0
        key = (row.budget_id, row.dimension, generations[row.budget_id])
        start = most or row.used + row.held
        peaks[key] = max(peaks.get(key, row.held), start)
        if grew and most:
            most = peaks[key] + row.allowed if row.allowed else most
            assert row.used + row.held <= most, f"{row} is over {most}"
    quotas = {row.quota_policy_id: row for row in dump[QUOTAS.name]}
    gates = {(row.quota_policy_id, row.dimension): row for row in before.get(GATES.name, ())}
    for gate in dump[GATES.name]:
        quota, then = (
            quotas[gate.quota_policy_id],
            gates.get((gate.quota_policy_id, gate.dimension)),
        )
        if gate.active > (0 if then is None else then.active):
            assert not 0 < quota.active_concurrency_cap < gate.active, f"{gate}: {quota}"
        if gate.in_window > (0 if then is None else then.in_window):
            assert not 0 < quota.max_requests_per_window < gate.in_window, f"{gate}: {quota}"


# --- the histories -----------------------------------------------------------------------------

SPENDING = (
    "furnish create_bounded create_budget update_budget report report_from_outside "
    "report_twice spend reset_budget give_back spend_across_a_reset wait_for_a_reset join_flow "
    "claim complete tick_at_deadline"
)
RESERVING = (
    "furnish create_bounded reset_budget reserve settle release_hold report_from_outside give_back "
    "join_flow report "
    "claim complete fail revoke cancel tick_at_deadline"
)
ADMITTING = (
    "furnish create_bounded update_quota claim complete fail cancel revoke grant redeem "
    "take_by_name check_admission release_admission replay tick_at_deadline"
)
ASKING = (
    "furnish create_bounded be_allowed_once ask answer reserve settle release_hold reset_budget "
    "report_from_outside claim complete fail revoke cancel tick_at_deadline"
)
CORNERS = {
    "spending": SPENDING,
    "reserving": RESERVING,
    "admitting": ADMITTING,
    "asking": ASKING,
}


@pytest.fixture(autouse=True)
def minted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "runner" in request.fixturenames:
        SWITCH.install(monkeypatch)


@pytest.mark.parametrize("corner", CORNERS)
def test_limits_hold_at_every_step(corner: str, runner: StepRunner) -> None:
    machine: Any = only(Watched, CORNERS[corner])
    try_histories(lambda: machine(runner), HISTORIES)


class Fault(NamedTuple):
    """What is wrong, and which histories bring it to light."""

    rules: str
    plant: tuple[Mutant | Method, ...]


class Method(NamedTuple):
    """A method that does nothing."""

    owner: type
    name: str


ACROSS_RESETS = "furnish create_bounded spend reset_budget give_back spend_across_a_reset"

ALLOWED = (
    "furnish create_bounded be_allowed_once ask answer reserve settle reset_budget "
    "report_from_outside claim"
)

FAULTS = {
    "a report does not look at the hard limit": Fault(
        SPENDING, (Mutant(hard_breach, "if limit > 0 and", "if limit < 0 and"),)
    ),
    "a repeated report counts twice": Fault(
        SPENDING, (Mutant(report_usage, "known is not None and", "False and"),)
    ),
    "what was spent before a reset is given back": Fault(
        ACROSS_RESETS,
        (Mutant(release_budget, "line.generation == row.generation", "True"),),
    ),
    "a total does not give back": Fault(
        ACROSS_RESETS, (Mutant(release_budget, "(after, *kept, *less)", "(after, *kept)"),)
    ),
    "what was spent before a flow was joined is lost": Fault(
        "furnish create_bounded spend join_flow",
        (Mutant(entered, "amount + old.total if joined else amount", "amount"),),
    ),
    "usage falls below zero": Fault(
        ACROSS_RESETS,
        (
            Mutant(release_budget, "line.generation == row.generation", "True"),
            Mutant(moved, "max(0, row.used +", "(row.used +"),
        ),
    ),
    "a settled hold stays held": Fault(
        "furnish create_bounded claim reserve settle",
        (Mutant(settle, "budget if hold is None else returned(budget, hold, at)", "budget"),),
    ),
    "reservations are not returned": Fault(RESERVING, (Method(Limits, "_return_holdings"),)),
    "reservations are not returned with the lease": Fault(
        RESERVING, (Mutant(gives_back_holdings, "lost or ended", "ended"),)
    ),
    "what has ended stays attached": Fault(SPENDING, (Method(Limits, "_attach"),)),
    "nobody is set free when a budget has room": Fault(
        "furnish create_bounded report_from_outside reset_budget wait_for_a_reset",
        (Method(Room, "_unblock_budget"),),
    ),
    "an allowance is used twice at once": Fault(
        ALLOWED, (Mutant(free_allowances, "row.amount - used.get(name_of(*key), 0)", "row.amount"),)
    ),
    "an allowance is used again and again": Fault(
        ALLOWED, (Mutant(used_up, "if hold is None or not hold.allowed:", "if True:"),)
    ),
    "an allowance outlives its period": Fault(
        ALLOWED,
        (Mutant(free_allowances, "row.generation == budget.row.generation and left", "left"),),
    ),
    "an allowance covers any amount": Fault(
        ALLOWED, (Mutant(_passed, "if not allowed or amounts[dimension] - allowed >", "if 0 >"),)
    ),
    "what was allowed is not counted": Fault(
        ALLOWED, (Mutant(granted, "getattr(line, field) + asker.amount", "getattr(line, field)"),)
    ),
    "admission does not look at who runs": Fault(
        ADMITTING,
        (Mutant(admit, "if 0 < policy.active_concurrency_cap <= row.active:", "if False:"),),
    ),
    "an admission takes no place": Fault(
        ADMITTING, (Mutant(admit, "active=row.active + 1", "active=row.active"),)
    ),
    "a slot is not freed": Fault(ADMITTING, (Method(Gates, "release"),)),
    "a slot is not freed with the lease": Fault(
        ADMITTING, (Mutant(gives_back_slot, "not occupies_slot(after, now)", "after.is_terminal"),)
    ),
    "nothing is called up to a free slot": Fault(ADMITTING, (Method(Room, "_offer"),)),
}


def break_rules(fault: Fault, patch: pytest.MonkeyPatch) -> None:
    plant([each for each in fault.plant if isinstance(each, Mutant)], patch)
    for each in fault.plant:
        if isinstance(each, Method):
            honest = getattr(each.owner, each.name)
            waits = inspect.iscoroutinefunction(honest)
            patch.setattr(each.owner, each.name, _nothing_later if waits else _nothing)


def _nothing(*_: object) -> bool:
    return False


async def _nothing_later(*_: object) -> int:
    return 0


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_rule_is_noticed(
    name: str, runner: StepRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch is only worth what it notices."""
    fault = FAULTS[name]
    break_rules(fault, monkeypatch)
    machine: Any = only(Watched, fault.rules)
    assert is_noticed(lambda: machine(runner))


# --- rivals in several engines -----------------------------------------------------------------

ENGINES = 6
HARD = 300


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'rivals.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def test_rivals_on_one_budget(url: str) -> None:
    """Usage is the sum of what was accepted, and what was refused would not have fitted."""
    used, accepted, least_refused = asyncio.run(rivalry(url))
    assert used == accepted
    assert used + least_refused > HARD >= used


def test_budgets_read_without_a_lock_are_noticed(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: PostgreSQL without FOR UPDATE on the small tables. A race takes luck: five try."""
    honest = small._load

    def careless(table: Any, size: int, **how: Any) -> str:
        return honest(table, size, **{**how, "hold": False})

    monkeypatch.setattr(small, "_load", careless)
    for _ in range(5):
        with postgres.database() as url:
            used, accepted, _ = asyncio.run(rivalry(url))
        if used != accepted:
            return
    pytest.fail("what was accepted was used, five times in a row")


async def rivalry(url: str) -> tuple[int, int, int]:
    """What is used at the end, the sum of the accepted reports, and the least that was refused."""
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(open_engine(url, config=CONFIG)) for _ in range(ENGINES)
        ]
        await engines[0].create_budget(
            budget_id="b", dimensions=["cents"], hard_limits=[HARD], soft_limits=[0]
        )
        spent = await asyncio.gather(
            *(_spend(engine, random.Random(n)) for n, engine in enumerate(engines * 2))
        )
        status = await engines[0].get_budget_status(budget_id="b")
    accepted = sum(took for took, _ in spent)
    return status.usage["cents"], accepted, min(refused for _, refused in spent)


async def _spend(engine: Engine, rng: random.Random) -> tuple[int, int]:
    accepted, refused = 0, HARD
    while refused > 1:
        amount = rng.randint(1, 3)
        outcome = await engine.report_usage_admin(
            budget_id="b", dimensions=["cents"], deltas=[amount]
        )
        if type(outcome).__name__ == "Ok":
            accepted += amount
        else:
            refused = min(refused, amount)
    return accepted, refused


# --- rivals whose clocks were read at different times ------------------------------------------


def test_a_window_does_not_open_twice(url: str) -> None:
    """Who read the clock first and got the gate last must not count its start in the past."""
    assert asyncio.run(most_in_a_window(url)) == STARTS


def test_time_that_runs_backwards_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: each transaction believes its own clock, whatever the gate has seen."""
    plant([Mutant(in_order, "gate.row.seen_at <= at.now", "True")], monkeypatch)
    assert asyncio.run(most_in_a_window(f"sqlite:///{tmp_path / 'late.db'}")) > STARTS


STARTS = 2
WINDOW_MS = 1_000


async def most_in_a_window(url: str) -> int:
    """A window is filled, then trimmed by one who is on time, then filled by one who is late."""
    late, on_time = ManualClock(1_000_000), ManualClock(1_000_000)
    async with (
        open_engine(url, config=CONFIG, clock=late) as slow,
        open_engine(url, config=CONFIG, clock=on_time) as quick,
    ):
        await quick.create_quota_policy(
            quota_policy_id="q", window_seconds=1, max_requests_per_window=STARTS
        )
        ids = [await _created(quick) for _ in range(2 * STARTS)]
        admitted: list[int] = []
        for execution_id in ids[:STARTS]:
            await quick.check_admission(quota_policy_id="q", execution_id=execution_id)
        admitted += await _admitted_at(quick)
        on_time.advance(WINDOW_MS)
        late.advance(WINDOW_MS - 1)
        for execution_id in ids[:STARTS]:
            await quick.release_admission(quota_policy_id="q", execution_id=execution_id)
        for execution_id in ids[STARTS:]:
            await slow.check_admission(quota_policy_id="q", execution_id=execution_id)
        admitted += await _admitted_at(quick)
    return max(sum(first <= at < first + WINDOW_MS for at in admitted) for first in admitted)


async def _created(engine: Engine) -> str:
    created = await engine.create_execution(execution_kind="work")
    assert isinstance(created, Created)
    return created.execution_id


async def _admitted_at(engine: Engine) -> list[int]:
    rows = (await engine.store.dump())[ADMISSIONS.name]
    return [row.counted_at for row in rows if row.counted_at is not None]
