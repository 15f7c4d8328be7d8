"""The rules written into the seeds' budget families, one test each and named after it.

Rules of the seeds that a better one replaces, and where the better one is tested:

| seed                                     | here                           |
|------------------------------------------|--------------------------------|
| the host's clock stamps everything       | the store's clock              |
| timestamps as decimal strings            | integer milliseconds           |
| only `custom` counts                     | every part of a Usage counts   |
| a repeated HardBreach is replayed        | judged again, counted once     |
| a refused spend answers AlreadyApplied   | judged again                   |
| an empty placeholder is AlreadyApplied   | one transaction: there is none |
| an unknown stored outcome passes as Ok   | Corruption                     |
| an unreadable policy is no limits        | Corruption                     |
| sums saturate                            | refused, `test_bad_input`      |
| dedup by (partition, key)                | (budget, operation, key)       |
| a reset reschedules from now             | previous + k · interval        |
| policy row FOR SHARE; SERIALIZABLE reset | one mutex, one isolation       |
| policies are written by a test helper    | create_budget, update_budget   |
| `_init` is hidden from usage             | no such row is ever written    |
| creating again ignores other limits      | LimitConflict                  |
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
from contextlib import closing

import asyncpg
import pytest

from flowfabric.api.budgets import Usage
from flowfabric.errors import Corruption, InvalidInput, LimitConflict, NotFound
from flowfabric.model.budget import (
    AlreadyApplied,
    BudgetAlreadySatisfied,
    BudgetCreated,
    BudgetReset,
    HardBreach,
    Ok,
    Reserved,
    SoftBreach,
)
from flowfabric.model.record import replace
from tests.support.budgets import (
    BUDGET,
    give_back,
    ledger,
    make_budget,
    report,
    spend,
    status,
    usage,
)
from tests.support.lab import Lab, scenario

DAY_MS = 86_400_000
NOBODY = "{fp:7}:01890000-0000-7000-8000-000000000001"


# --- report_usage, report_usage_admin ------------------------------------------------------------


@scenario
async def test_a_repeated_dedup_key_returns_the_cached_outcome_verbatim(lab: Lab) -> None:
    """Replay of an applied report, whatever it says by now."""
    await make_budget(lab, soft={"a": 5})
    assert await report(lab, {"a": 4}, dedup_key="k1") == Ok()
    assert await report(lab, {"a": 4}, dedup_key="k2") == SoftBreach("a", 8, 5)
    async with lab.unchanged():
        assert await report(lab, {"a": 4}, dedup_key="k1") == Ok()
        assert await report(lab, {"a": 99}, dedup_key="k2") == SoftBreach("a", 8, 5)


@scenario
async def test_each_dimension_is_one_row_keyed_by_its_name(lab: Lab) -> None:
    """The stored form does not depend on the caller's order."""
    await make_budget(lab)
    await report(lab, {"b": 1, "a": 2})
    await report(lab, {"a": 2, "b": 1})
    rows = (await lab.dump())["ff_budget_usage"]
    assert [(row.dimension, row.used) for row in rows] == [("a", 4), ("b", 2)]


def test_outcomes_are_stored_in_their_json_shape(durable_lab: Lab) -> None:
    """Kind, dimension, current_usage and the limit."""
    lab = durable_lab

    async def work() -> None:
        await make_budget(lab, hard={"a": 9}, soft={"a": 5})
        await report(lab, {"a": 5}, dedup_key="1")
        await report(lab, {"a": 1}, dedup_key="2")
        await report(lab, {"a": 9}, dedup_key="3")
        soft = {"kind": "SoftBreach", "dimension": "a", "current_usage": 6, "soft_limit": 5}
        hard = {"kind": "HardBreach", "dimension": "a", "current_usage": 6, "hard_limit": 9}
        assert await stored_outcomes(lab) == [{"kind": "Ok"}, soft, hard]
        # `outcome_from_json` is its inverse.
        assert await report(lab, {"a": 5}, dedup_key="1") == Ok()
        assert await report(lab, {"a": 1}, dedup_key="2") == SoftBreach("a", 6, 5)

    lab.run(work())


async def stored_outcomes(lab: Lab) -> list[object]:
    sql = "SELECT outcome FROM ff_budget_usage_dedup ORDER BY dedup_key"
    if lab.url.startswith("sqlite"):
        with closing(sqlite3.connect(lab.url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute(sql).fetchall()
    else:
        connection = await asyncpg.connect(lab.url)
        try:
            rows = await connection.fetch(sql)
        finally:
            await connection.close()
    return [json.loads(row[0]) for row in rows]


@pytest.mark.parametrize("outcome", ["{}", '{"kind":"Whim"}'])
def test_a_stored_outcome_of_no_known_kind_is_corruption(durable_lab: Lab, outcome: str) -> None:
    """Missing or unknown `kind`."""
    lab = durable_lab

    async def work() -> None:
        await make_budget(lab)
        await report(lab, {"a": 1}, dedup_key="k")
        await lab.sql(f"UPDATE ff_budget_usage_dedup SET outcome = '{outcome}'")
        with pytest.raises(Corruption):
            await report(lab, {"a": 1}, dedup_key="k")
        assert await usage(lab) == {"a": 1}

    lab.run(work())


@scenario
async def test_a_dimension_without_a_limit_is_unlimited(lab: Lab) -> None:
    """A missing entry is no limit."""
    await make_budget(lab, hard={"a": 1}, soft={"a": 1})
    assert await report(lab, {"z": 10**15}) == Ok()


@scenario
async def test_a_dedup_key_is_kept_for_a_day_by_default(lab: Lab) -> None:
    """24 h."""
    await make_budget(lab)
    await report(lab, {"a": 1}, dedup_key="k")
    lab.clock.advance(DAY_MS - 1)
    await report(lab, {"a": 1}, dedup_key="k")
    assert await usage(lab) == {"a": 1}
    lab.clock.advance(1)
    await report(lab, {"a": 1}, dedup_key="k")
    assert await usage(lab) == {"a": 2}


@scenario
async def test_the_worker_and_the_admin_path_share_one_core(lab: Lab) -> None:
    """The same answers, the same key space."""
    claimed = await lab.started()
    await make_budget(lab, hard={"a": 10}, soft={"a": 5})
    tell = lab.engine.report_usage
    used = Usage(custom={"a": 6}, dedup_key="k")
    assert await tell(claimed.handle, budget_id=BUDGET, usage=used) == SoftBreach("a", 6, 5)
    assert await report(lab, {"a": 6}, dedup_key="k") == SoftBreach("a", 6, 5)
    assert await usage(lab) == {"a": 6}
    more = Usage(custom={"a": 5})
    breach = HardBreach("a", 6, 10)
    assert await tell(claimed.handle, budget_id=BUDGET, usage=more) == breach
    assert await report(lab, {"a": 5}) == breach
    assert (await status(lab)).breach_count == 2


@scenario
async def test_the_admin_lists_must_have_equal_length(lab: Lab) -> None:
    await make_budget(lab)
    for dimensions, deltas in ((["a"], []), (["a", "b"], [1]), ([], [1])):
        async with lab.refuses(InvalidInput, field="deltas"):
            await lab.engine.report_usage_admin(
                budget_id=BUDGET, dimensions=dimensions, deltas=deltas
            )


@scenario
async def test_a_hard_breach_maintains_the_breach_counters(lab: Lab) -> None:
    """breach_count, last_breach_at, last_breach_dim."""
    await make_budget(lab, hard={"a": 1, "b": 1})
    for number, name in enumerate(("b", "a"), start=1):
        lab.clock.advance(7)
        await report(lab, {name: 2})
        seen = await status(lab)
        assert (seen.breach_count, seen.soft_breach_count) == (number, 0)
        assert (seen.last_breach_at, seen.last_breach_dim) == (lab.now, name)
        assert seen.updated_at == lab.now


@scenario
async def test_an_empty_dedup_key_is_no_key(lab: Lab) -> None:
    await make_budget(lab)
    for _ in range(2):
        await report(lab, {"a": 1}, dedup_key="")
    assert await usage(lab) == {"a": 2}
    assert (await lab.dump())["ff_budget_usage_dedup"] == []


def test_concurrent_hard_breaches_serialise_and_never_deadlock(durable_lab: Lab) -> None:
    """Two callers that breach at once wait for each other."""
    lab = durable_lab

    async def work() -> None:
        others = [Lab(lab.url) for _ in range(2)]
        for other in others:
            await other.engine.start(migrate=False)
        try:
            await make_budget(lab, hard={"a": 1, "b": 1})
            calls = [report(each, {"a": 2, "b": 2}) for each in (lab, *others) for _ in range(20)]
            async with asyncio.timeout(60):
                replies = await asyncio.gather(*calls)
        finally:
            for other in others:
                await other.engine.close()
        assert set(replies) == {HardBreach("a", 0, 1)}
        assert (await status(lab)).breach_count == len(calls)

    lab.run(work())


@scenario
async def test_a_report_without_a_policy_is_applied_and_ok(lab: Lab) -> None:
    """No policy row, no limits; a policy made later sees the usage."""
    assert await report(lab, {"a": 7}) == Ok()
    with pytest.raises(NotFound):
        await status(lab)
    assert await usage(lab) == {"a": 7}
    assert isinstance(await make_budget(lab, hard={"a": 10}), BudgetCreated)
    assert await report(lab, {"a": 4}) == HardBreach("a", 7, 10)
    assert await report(lab, {"a": 3}) == Ok()


@scenario
async def test_a_hard_breach_on_any_dimension_rejects_the_whole_report(lab: Lab) -> None:
    """No increment is applied, not even where there is room."""
    await make_budget(lab, hard={"b": 1})
    assert await report(lab, {"a": 1, "b": 2, "c": 3}) == HardBreach("b", 0, 1)
    assert await usage(lab) in ({}, {"a": 0, "b": 0, "c": 0})


@scenario
async def test_a_soft_breach_is_advisory_and_applied(lab: Lab) -> None:
    await make_budget(lab, soft={"a": 1})
    assert await report(lab, {"a": 2, "b": 1}) == SoftBreach("a", 2, 1)
    assert await usage(lab) == {"a": 2, "b": 1}


@scenario
async def test_the_first_breaching_dimension_in_name_order_is_reported(lab: Lab) -> None:
    """Hard and soft."""
    await make_budget(lab, hard={"h1": 5, "h2": 5}, soft={"s1": 1, "s2": 1})
    assert await report(lab, {"h2": 6, "h1": 6, "s1": 9}) == HardBreach("h1", 0, 5)
    assert await report(lab, {"s2": 3, "s1": 2}) == SoftBreach("s1", 2, 1)


@scenario
async def test_a_hard_breach_tells_usage_before_and_a_soft_breach_after(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10}, soft={"a": 5})
    assert await report(lab, {"a": 8}) == SoftBreach("a", 8, 5)
    assert await report(lab, {"a": 3}) == HardBreach("a", 8, 10)


@scenario
async def test_a_limit_of_zero_is_none(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 0}, soft={"a": 0})
    assert await report(lab, {"a": 10**12}) == Ok()


@scenario
async def test_a_breach_is_over_the_limit_and_not_at_it(lab: Lab) -> None:
    await make_budget(lab, hard={"h": 10}, soft={"s": 10})
    assert await report(lab, {"h": 10, "s": 10}) == Ok()
    assert await report(lab, {"s": 1}) == SoftBreach("s", 11, 10)
    assert await report(lab, {"h": 1}) == HardBreach("h", 10, 10)


@scenario
async def test_a_soft_breach_counts_once_per_call_and_a_hard_one_does_not(lab: Lab) -> None:
    """soft_breach_count only on the path that is not a hard breach."""
    await make_budget(lab, hard={"a": 10}, soft={"a": 1, "b": 1})
    await report(lab, {"a": 2, "b": 2})
    await report(lab, {"a": 99})
    seen = await status(lab)
    assert (seen.soft_breach_count, seen.breach_count) == (1, 1)


@scenario
async def test_nobody_can_back_date_usage(lab: Lab) -> None:
    """Server-clock authority."""
    await make_budget(lab)
    engine = lab.engine
    for call in (engine.report_usage, engine.report_usage_admin, engine.record_spend):
        assert "now" not in inspect.signature(call).parameters
    lab.clock.advance(5)
    await report(lab, {"a": 1})
    (row,) = (await lab.dump())["ff_budget_usage"]
    assert row.updated_at == lab.now


# --- create_budget -------------------------------------------------------------------------------


@scenario
async def test_the_lists_of_a_budget_must_have_equal_length(lab: Lab) -> None:
    for field, hard, soft in (("hard_limits", [], [1]), ("soft_limits", [1], [1, 2])):
        async with lab.refuses(InvalidInput, field=field):
            await lab.engine.create_budget(
                budget_id=BUDGET, dimensions=["a"], hard_limits=hard, soft_limits=soft
            )


@scenario
async def test_a_periodic_budget_is_first_reset_one_interval_after_its_creation(lab: Lab) -> None:
    """next_reset_at = now + interval; none without one."""
    await make_budget(lab, "periodic", reset_interval_ms=5000)
    await make_budget(lab, "lasting")
    assert (await status(lab, "periodic")).next_reset_at == lab.now + 5000
    assert (await status(lab, "lasting")).next_reset_at is None


@scenario
async def test_creating_twice_is_already_satisfied(lab: Lab) -> None:
    """With other limits it is a conflict."""
    assert await make_budget(lab, hard={"a": 1}) == BudgetCreated(BUDGET)
    async with lab.unchanged():
        assert isinstance(await make_budget(lab, hard={"a": 1}), BudgetAlreadySatisfied)
    async with lab.refuses(LimitConflict):
        await make_budget(lab, hard={"a": 2})


# --- reset_budget --------------------------------------------------------------------------------


@scenario
async def test_a_reset_zeroes_every_dimension_and_clears_the_last_breach(lab: Lab) -> None:
    """The counters are lifetime totals and stay."""
    await make_budget(lab, hard={"a": 5}, soft={"b": 1})
    await report(lab, {"a": 5, "b": 5, "c": 5})
    await report(lab, {"a": 1})
    lab.clock.advance(3)
    await lab.engine.reset_budget(budget_id=BUDGET)
    seen = await status(lab)
    assert seen.usage == {"a": 0, "b": 0, "c": 0}
    assert (seen.last_breach_at, seen.last_breach_dim) == (None, None)
    assert (seen.breach_count, seen.soft_breach_count) == (1, 1)
    assert (seen.reset_count, seen.last_reset_at, seen.updated_at) == (1, lab.now, lab.now)


@scenario
async def test_resetting_a_missing_budget_is_not_found_and_names_it(lab: Lab) -> None:
    """Usage without a policy is no budget either."""
    await report(lab, {"a": 1}, "only-usage")
    for name in ("missing", "only-usage"):
        async with lab.refuses(NotFound, field=name):
            await lab.engine.reset_budget(budget_id=name)


@scenario
async def test_a_reset_without_an_interval_answers_zero(lab: Lab) -> None:
    await make_budget(lab)
    assert await lab.engine.reset_budget(budget_id=BUDGET) == BudgetReset(0)


def test_a_reset_never_interleaves_with_a_report(durable_lab: Lab) -> None:
    """Zeroing all dimensions sees no report half done."""
    lab = durable_lab

    async def work() -> None:
        other = Lab(lab.url)
        await other.engine.start(migrate=False)
        try:
            await make_budget(lab)
            reports = [report(lab, {"a": 1, "b": 1, "c": 1}) for _ in range(60)]
            resets = [other.engine.reset_budget(budget_id=BUDGET) for _ in range(6)]
            async with asyncio.timeout(60):
                await asyncio.gather(*reports, *resets)
        finally:
            await other.engine.close()
        used = await usage(lab)
        assert used["a"] == used["b"] == used["c"] <= 60
        assert (await status(lab)).reset_count == 6

    lab.run(work())


@scenario
async def test_the_scheduled_reset_does_what_a_manual_one_does(lab: Lab) -> None:
    """The same rows by either path."""
    for name in ("manual", "timed"):
        await make_budget(lab, name, hard={"a": 5}, soft={"a": 1}, reset_interval_ms=1000)
        await report(lab, {"a": 4}, name)
        await report(lab, {"a": 4}, name)
    lab.clock.advance(1000)
    await lab.engine.reset_budget(budget_id="manual")
    await lab.engine.move_due()
    rows = (await lab.dump())["ff_budget_policy"]
    manual, timed = rows
    assert replace(timed, budget_id="manual") == manual
    assert await usage(lab, "manual") == await usage(lab, "timed") == {"a": 0}


@scenario
async def test_a_scheduled_reset_is_checked_again_under_the_lock(lab: Lab) -> None:
    """What a manual reset has done in time the loop does not do again."""
    await make_budget(lab, reset_interval_ms=1000)
    lab.clock.advance(1000)
    await lab.engine.reset_budget(budget_id=BUDGET)
    await report(lab, {"a": 1})
    async with lab.unchanged():
        await lab.engine.move_due()
    assert await usage(lab) == {"a": 1}


# --- get_budget_status ---------------------------------------------------------------------------


@scenario
async def test_the_status_of_a_missing_budget_is_not_found_and_names_it(lab: Lab) -> None:
    async with lab.refuses(NotFound, field="missing"):
        await status(lab, "missing")


@scenario
async def test_the_status_tells_policy_usage_counters_and_times(lab: Lab) -> None:
    """Times are integers here."""
    created = lab.now
    await make_budget(
        lab,
        hard={"a": 9},
        soft={"b": 3},
        scope_type="lane",
        scope_id="gpu",
        enforcement_mode="advisory",
        reset_interval_ms=1000,
    )
    await report(lab, {"b": 4})
    seen = await status(lab)
    assert seen.policy is not None
    assert (seen.policy.scope_type, seen.policy.scope_id) == ("lane", "gpu")
    assert seen.policy.enforcement_mode == "advisory"
    assert (seen.policy.hard_limits, seen.policy.soft_limits) == (
        {"a": 9, "b": 0},
        {"a": 0, "b": 3},
    )
    assert (seen.usage, seen.soft_breach_count, seen.breach_count) == ({"b": 4}, 1, 0)
    assert (seen.created_at, seen.next_reset_at) == (created, created + 1000)
    assert (seen.last_breach_at, seen.last_breach_dim) == (None, None)


# --- record_spend, release_budget ----------------------------------------------------------------


@scenario
async def test_a_repeated_spend_is_already_applied(lab: Lab) -> None:
    """An applied outcome is not replayed, unlike a report's."""
    await make_budget(lab, soft={"a": 1})
    execution_id = await lab.create()
    keyed = {"idempotency_key": "k"}
    assert await spend(lab, execution_id, {"a": 2}, **keyed) == SoftBreach("a", 2, 1)
    async with lab.unchanged():
        assert await spend(lab, execution_id, {"a": 2}, **keyed) == AlreadyApplied()


@scenario
async def test_a_spend_with_an_empty_key_is_never_a_repetition(lab: Lab) -> None:
    execution_id = await lab.create()
    for _ in range(2):
        assert await spend(lab, execution_id, {"a": 2}, idempotency_key="") == Ok()
    assert await usage(lab) == {"a": 4}


@scenario
async def test_a_spend_lands_in_the_ledger_of_its_execution_and_adds_up(lab: Lab) -> None:
    """The UPSERT is additive; open-set dimensions."""
    one, two = await lab.create(), await lab.create()
    await spend(lab, one, {"a": 1, "b": 2})
    await spend(lab, one, {"a": 3})
    await spend(lab, two, {"a": 5})
    assert await ledger(lab, one) == {"a": 4, "b": 2}
    assert await ledger(lab, two) == {"a": 5}
    assert await usage(lab) == {"a": 9, "b": 2}


@scenario
async def test_a_spend_over_a_hard_limit_leaves_usage_and_ledger_untouched(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 5})
    execution_id = await lab.create()
    await spend(lab, execution_id, {"a": 3})
    assert await spend(lab, execution_id, {"a": 3, "z": 1}) == HardBreach("a", 3, 5)
    assert await ledger(lab, execution_id) == {"a": 3}
    assert await usage(lab) == {"a": 3}
    assert (await status(lab)).breach_count == 1


@pytest.mark.parametrize(
    "execution_id",
    [
        "01890000-0000-7000-8000-000000000001",
        "{fp:7}01890000-0000-7000-8000-000000000001",
        "{fp:7}:not-a-uuid",
    ],
)
@scenario
async def test_a_ledger_needs_a_well_formed_execution_id(lab: Lab, execution_id: str) -> None:
    """Prefix, brace and uuid."""
    async with lab.refuses(InvalidInput, field="execution_id"):
        await spend(lab, execution_id, {"a": 1})
    async with lab.refuses(InvalidInput, field="execution_id"):
        await give_back(lab, execution_id)


@scenario
async def test_a_release_reverses_exactly_one_executions_spends(lab: Lab) -> None:
    await make_budget(lab)
    one, two = await lab.create(), await lab.create()
    await spend(lab, one, {"a": 1, "b": 2})
    await spend(lab, two, {"a": 5})
    await report(lab, {"a": 10})
    await give_back(lab, one)
    assert await usage(lab) == {"a": 15, "b": 0}
    assert await ledger(lab, one) == {}
    assert await ledger(lab, two) == {"a": 5}


@scenario
async def test_a_release_is_idempotent_and_without_spends_does_nothing(lab: Lab) -> None:
    """An empty ledger is a no-op."""
    await make_budget(lab)
    one, two = await lab.create(), await lab.create()
    await spend(lab, one, {"a": 4})
    await spend(lab, two, {"a": 4})
    await give_back(lab, one)
    async with lab.unchanged():
        await give_back(lab, one)
        await give_back(lab, NOBODY)
        await give_back(lab, NOBODY, "no-such-budget")
    assert await usage(lab) == {"a": 4}


def test_a_release_clamps_at_zero(durable_lab: Lab) -> None:
    """GREATEST(0, …), should usage ever be less than its ledgers."""
    lab = durable_lab

    async def work() -> None:
        execution_id = await lab.create()
        await spend(lab, execution_id, {"a": 4})
        await lab.sql("UPDATE ff_budget_usage SET used = 1")
        await give_back(lab, execution_id)
        assert await usage(lab) == {"a": 0}

    lab.run(work())


def test_spends_and_releases_of_one_execution_serialise(durable_lab: Lab) -> None:
    """A spend waits for a release instead of racing its delete."""
    lab = durable_lab

    async def work() -> None:
        other = Lab(lab.url)
        await other.engine.start(migrate=False)
        try:
            await make_budget(lab)
            execution_id = await lab.create()
            calls = [spend(lab, execution_id, {"b": 1, "a": 1}) for _ in range(30)]
            back = [give_back(other, execution_id) for _ in range(10)]
            async with asyncio.timeout(60):
                await asyncio.gather(*calls, *back)
        finally:
            await other.engine.close()
        left = await ledger(lab, execution_id)
        used = {name: number for name, number in (await usage(lab)).items() if number}
        assert left == used

    lab.run(work())


@scenario
async def test_a_misspelt_budget_holds_nothing(lab: Lab) -> None:
    """Issue 10 A13: a reservation relies on a limit, so there must be one."""
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    ask = lab.engine.reserve_budget
    async with lab.refuses(NotFound, "budget misspelt"):
        await ask(claimed.handle, budget_id="misspelt", amounts={"a": 1})
    await report(lab, {"a": 1}, budget_id="metered")  # counted, and still without a policy
    async with lab.refuses(NotFound, "budget metered"):
        await ask(claimed.handle, budget_id="metered", amounts={"a": 1})
    assert isinstance(await ask(claimed.handle, budget_id=BUDGET, amounts={"a": 1}), Reserved)


@scenario
async def test_a_report_may_ask_that_its_budget_exists(lab: Lab) -> None:
    """Issue 10 A13: as the SDK always does."""
    claimed = await lab.started()
    spent = Usage(custom={"a": 1})
    for name in ("misspelt", "metered"):
        async with lab.refuses(NotFound, f"budget {name}"):
            await report(lab, {"a": 1}, budget_id=name, must_exist=True)
        async with lab.refuses(NotFound, f"budget {name}"):
            await lab.engine.report_usage(
                claimed.handle, budget_id=name, usage=spent, must_exist=True
            )
        await report(lab, {"a": 1}, budget_id="metered")
    await make_budget(lab, hard={"a": 10})
    assert await report(lab, {"a": 1}, must_exist=True) == Ok()
    async with lab.refuses(InvalidInput, "must_exist"):
        await report(lab, {"a": 1}, must_exist="yes")
