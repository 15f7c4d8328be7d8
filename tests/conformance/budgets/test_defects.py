"""Budgets where older systems were wrong, one test for each defect."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.errors import LimitConflict, NotFound
from flowfabric.model.budget import (
    AlreadyApplied,
    BudgetReset,
    HardBreach,
    Ok,
    Reserved,
    SoftBreach,
)
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from tests.support.budgets import (
    BUDGET,
    give_back,
    held,
    ledger,
    make_budget,
    report,
    reserve,
    settle,
    spend,
    status,
    usage,
)
from tests.support.lab import Lab, scenario


@asynccontextmanager
async def engines(lab: Lab, number: int) -> AsyncIterator[list[Lab]]:
    """This many engines on the store of the lab, as so many processes would be."""
    others = [Lab(lab.url) for _ in range(number - 1)]
    try:
        for other in others:
            await other.engine.start(migrate=False)
        yield [lab, *others]
    finally:
        for other in others:
            await other.engine.close()


async def live_sums(lab: Lab, budget_id: str = BUDGET) -> dict[str, int]:
    """What the ledgers of the budget's present generation add up to."""
    dump = await lab.dump()
    (row,) = [each for each in dump["ff_budget_policy"] if each.budget_id == budget_id]
    sums: dict[str, int] = {}
    for line in dump["ff_budget_usage_by_exec"]:
        if (line.budget_id, line.generation) == (budget_id, row.generation):
            sums[line.dimension] = sums.get(line.dimension, 0) + line.spent
    return {name: number for name, number in sums.items() if number}


async def used_now(lab: Lab, budget_id: str = BUDGET) -> dict[str, int]:
    return {name: number for name, number in (await usage(lab, budget_id)).items() if number}


# --- limits and resets ---------------------------------------------------------------------------


@scenario
async def test_a_hard_limit_is_reached_exactly_and_never_passed(lab: Lab) -> None:
    """60 + 40 Ok, + 1 HardBreach, usage stays 100; a reset makes room."""
    await make_budget(lab, hard={"a": 100})
    assert await report(lab, {"a": 60}) == Ok()
    assert await report(lab, {"a": 40}) == Ok()
    assert await report(lab, {"a": 1}, dedup_key="k") == HardBreach("a", 100, 100)
    seen = await status(lab)
    assert (seen.breach_count, seen.usage) == (1, {"a": 100})
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert await report(lab, {"a": 1}, dedup_key="k") == Ok()
    assert await usage(lab) == {"a": 1}


@scenario
async def test_a_soft_limit_below_it_is_reported_and_applied(lab: Lab) -> None:
    """With soft 80 the second report is a SoftBreach; the first by name; 0 means no limit."""
    await make_budget(lab, hard={"a": 100, "z": 0}, soft={"a": 80, "b": 1, "z": 0})
    assert await report(lab, {"a": 60}) == Ok()
    assert await report(lab, {"a": 40}) == SoftBreach("a", 100, 80)
    assert await report(lab, {"b": 2, "a": 0}) == SoftBreach("a", 100, 80)
    assert await report(lab, {"z": 10**15}) == Ok()
    assert await usage(lab) == {"a": 100, "b": 2, "z": 10**15}
    assert (await status(lab)).soft_breach_count == 2


@scenario
async def test_dedup_replays_on_its_own_budget_only(lab: Lab) -> None:
    """The same key on another budget is independent."""
    for name in ("b1", "b2"):
        await make_budget(lab, name)
    for name in ("b1", "b2", "b1", "b2"):
        assert await report(lab, {"a": 1}, name, dedup_key="k") == Ok()
    assert await usage(lab, "b1") == await usage(lab, "b2") == {"a": 1}


# --- reports from many processes -----------------------------------------------------------------


async def spender(lab: Lab, execution_id: str, draw: random.Random, rounds: int) -> None:
    for _ in range(rounds):
        names = draw.sample(("a", "b", "c"), 3)
        await spend(lab, execution_id, {name: draw.randrange(1, 9) for name in names})
        assert all(number >= 0 for number in (await usage(lab)).values())


async def releaser(lab: Lab, execution_id: str, rounds: int) -> None:
    for _ in range(rounds):
        await give_back(lab, execution_id)


async def resetter(lab: Lab, rounds: int) -> None:
    for _ in range(rounds):
        await lab.engine.reset_budget(budget_id=BUDGET)


def test_spends_releases_and_resets_at_once_leave_the_sum_of_live_ledgers(
    durable_lab: Lab,
) -> None:
    """No deadlock surfaces, usage is never negative."""

    async def work() -> None:
        async with engines(durable_lab, 4) as labs:
            await make_budget(durable_lab)
            ids = [await durable_lab.create() for _ in range(3)]
            draw = random.Random(15)
            calls = [
                *(spender(labs[n], ids[n], draw, 15) for n in range(3)),
                releaser(labs[1], ids[0], 8),
                releaser(labs[2], ids[1], 8),
                resetter(labs[3], 4),
            ]
            async with asyncio.timeout(90):
                await asyncio.gather(*calls)
            assert await used_now(durable_lab) == await live_sums(durable_lab)
            for execution_id in ids:
                await give_back(durable_lab, execution_id)
            assert await used_now(durable_lab) == {}

    durable_lab.run(work())


@scenario
async def test_one_engine_spends_releases_and_resets_at_once(lab: Lab) -> None:
    """The same in the batches of one process, on every store."""
    await make_budget(lab)
    ids = [await lab.create() for _ in range(3)]
    draw = random.Random(15)
    async with asyncio.timeout(60):
        await asyncio.gather(
            *(spender(lab, each, draw, 10) for each in ids),
            releaser(lab, ids[0], 6),
            releaser(lab, ids[1], 6),
            resetter(lab, 3),
        )
    assert await used_now(lab) == await live_sums(lab)


# --- conflicts of the store ----------------------------------------------------------------------


async def holder(lab: Lab, claimed: Claimed, draw: random.Random, accepted: list[int]) -> None:
    for number in range(10):
        hold_id = f"h{number}"
        reply = await lab.engine.reserve_budget(
            claimed.handle, budget_id=BUDGET, amounts={"a": 5}, hold_id=hold_id
        )
        if isinstance(reply, Reserved):
            amount = draw.randrange(6)
            outcome = await settle(lab, claimed, {"a": amount}, hold_id)
            assert isinstance(outcome, Ok)
            accepted.append(amount)


async def reporter(lab: Lab, draw: random.Random, accepted: list[int]) -> None:
    for _ in range(15):
        amount = draw.randrange(1, 9)
        if isinstance(await report(lab, {"a": amount}), Ok):
            accepted.append(amount)


def test_no_conflict_of_the_store_surfaces(durable_lab: Lab) -> None:
    """Rivals on one budget from four engines; exact sums, never over the limit."""

    async def work() -> None:
        lab = durable_lab
        async with engines(lab, 4) as labs:
            await make_budget(lab, hard={"a": 150}, on_hard_limit="deny")
            claimed = [await lab.started() for _ in range(4)]
            accepted: list[int] = []
            draw = random.Random(36)
            async with asyncio.timeout(90):
                await asyncio.gather(
                    *(
                        holder(each, claim, draw, accepted)
                        for each, claim in zip(labs, claimed, strict=True)
                    ),
                    *(reporter(each, draw, accepted) for each in labs),
                )
            assert await usage(lab) == {"a": sum(accepted)}
            assert sum(accepted) <= 150
            assert await held(lab) == {}

    durable_lab.run(work())


def test_releases_and_spends_over_many_dimensions_never_deadlock(durable_lab: Lab) -> None:
    """Rows are taken in one order, whatever order callers name them in."""

    async def work() -> None:
        lab = durable_lab
        names = [f"d{number}" for number in range(8)]
        async with engines(lab, 3) as labs:
            for budget_id in ("b1", "b2", "b3"):
                await make_budget(lab, budget_id)
            ids = [await lab.create() for _ in range(3)]

            async def rival(each: Lab, number: int) -> None:
                draw = random.Random(number)
                for _ in range(10):
                    # Several at once, so that one commit carries several budgets.
                    budgets = draw.sample(("b1", "b2", "b3"), 3)
                    order = draw.sample(names, len(names))
                    await asyncio.gather(
                        *(spend(each, ids[number], dict.fromkeys(order, 1), b) for b in budgets),
                        *(give_back(each, ids[draw.randrange(3)], b) for b in budgets),
                    )

            async with asyncio.timeout(90):
                await asyncio.gather(*(rival(each, n) for n, each in enumerate(labs)))
            for budget_id in ("b1", "b2", "b3"):
                assert await used_now(lab, budget_id) == await live_sums(lab, budget_id)

    durable_lab.run(work())


# --- the store's clock ---------------------------------------------------------------------------


@scenario
async def test_every_stamp_is_the_stores_time(lab: Lab) -> None:
    """No caller's clock decides or stamps anything."""
    claimed = await lab.started()
    born = lab.now
    await make_budget(lab, hard={"a": 5}, reset_interval_ms=60_000)
    lab.clock.advance(10)
    await report(lab, {"a": 6}, dedup_key="k", dedup_ttl_ms=100)
    hold = await reserve(lab, claimed, {"a": 1}, ttl_ms=500)
    seen = await status(lab)
    assert (seen.created_at, seen.next_reset_at) == (born, born + 60_000)
    assert (seen.last_breach_at, seen.updated_at) == (lab.now, lab.now)
    assert hold.expires_at == lab.now + 500
    (key,) = (await lab.dump())["ff_budget_usage_dedup"]
    assert key.due_at == lab.now + 100
    assert {event.occurred_at for event in await lab.operator_events(BUDGET)} == {born, lab.now}


# --- definitions and usage are apart -------------------------------------------------------------


@scenario
async def test_usage_makes_no_definition(lab: Lab) -> None:
    """What was reported before the policy counts, and the policy's limits are its own."""
    await report(lab, {"a": 3})
    assert await lab.engine.list_budgets() == []
    for call in (lab.engine.get_budget_status, lab.engine.reset_budget, lab.engine.update_budget):
        async with lab.refuses(NotFound, field=BUDGET):
            await call(budget_id=BUDGET)
    await make_budget(lab, hard={"a": 4})
    seen = await status(lab)
    assert seen.policy is not None
    assert (seen.policy.hard_limits, seen.usage) == ({"a": 4}, {"a": 3})


@scenario
async def test_resetting_or_updating_nothing_makes_nothing(lab: Lab) -> None:
    for call in (lab.engine.reset_budget, lab.engine.update_budget):
        async with lab.refuses(NotFound):
            await call(budget_id=BUDGET)


@pytest.mark.parametrize(
    "other",
    [
        {"hard": {"a": 2}},
        {"hard": {"a": 1}, "soft": {"a": 1}},
        {"hard": {"a": 1}, "reset_interval_ms": 1000},
        {"hard": {"a": 1}, "on_hard_limit": "fail"},
        {"hard": {"a": 1}, "scope_type": "lane", "scope_id": "x"},
    ],
)
@scenario
async def test_creating_again_with_other_content_is_a_conflict(
    lab: Lab, other: dict[str, Any]
) -> None:
    """Nothing is silently ignored."""
    await make_budget(lab, hard={"a": 1})
    async with lab.refuses(LimitConflict):
        await make_budget(lab, **other)


@scenario
async def test_bookkeeping_is_kept_apart_from_usage(lab: Lab) -> None:
    """A breach adds no dimension."""
    await make_budget(lab, hard={"a": 1}, soft={"b": 1})
    await report(lab, {"a": 1, "b": 2})
    await report(lab, {"a": 1})
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert await usage(lab) == {"a": 0, "b": 0}


# --- dedup keys and generations ------------------------------------------------------------------


@scenario
async def test_one_key_on_a_report_and_on_spends_is_three_keys(lab: Lab) -> None:
    """(budget, operation, key), and a spend's key is its execution's."""
    await make_budget(lab)
    one, two = await lab.create(), await lab.create()
    for _ in range(2):
        await report(lab, {"a": 1}, dedup_key="k")
        await spend(lab, one, {"a": 10}, idempotency_key="k")
        await spend(lab, two, {"a": 100}, idempotency_key="k")
    assert await usage(lab) == {"a": 111}


@scenario
async def test_a_keys_time_is_honoured(lab: Lab) -> None:
    """To its last millisecond, without any sweep."""
    await make_budget(lab)
    execution_id = await lab.create()
    for _ in range(2):
        await report(lab, {"a": 1}, dedup_key="k", dedup_ttl_ms=1000)
        await spend(lab, execution_id, {"b": 1}, idempotency_key="k", dedup_ttl_ms=1000)
        lab.clock.advance(999)
    assert await usage(lab) == {"a": 1, "b": 1}
    await report(lab, {"a": 1}, dedup_key="k")
    assert await spend(lab, execution_id, {"b": 1}, idempotency_key="k") == Ok()
    assert await usage(lab) == {"a": 2, "b": 2}


@scenario
async def test_a_refused_call_is_judged_again_and_counted_once(lab: Lab) -> None:
    """Nothing had been applied, so room lets it through."""
    await make_budget(lab, hard={"a": 5})
    execution_id = await lab.create()
    for _ in range(3):
        assert await report(lab, {"a": 6}, dedup_key="k") == HardBreach("a", 0, 5)
        breach = await spend(lab, execution_id, {"a": 7}, idempotency_key="k")
        assert breach == HardBreach("a", 0, 5)
    assert (await status(lab)).breach_count == 2
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 13})
    assert await report(lab, {"a": 6}, dedup_key="k") == Ok()
    assert await spend(lab, execution_id, {"a": 7}, idempotency_key="k") == Ok()
    assert await report(lab, {"a": 6}, dedup_key="k") == Ok()
    assert await spend(lab, execution_id, {"a": 7}, idempotency_key="k") == AlreadyApplied()
    assert await usage(lab) == {"a": 13}
    assert await ledger(lab, execution_id) == {"a": 7}


@scenario
async def test_what_is_released_may_be_spent_again_under_the_same_key(lab: Lab) -> None:
    """The release clears its own keys and no others."""
    await make_budget(lab)
    one, two = await lab.create(), await lab.create()
    for each in (one, two):
        await spend(lab, each, {"a": 5}, idempotency_key="k")
    await report(lab, {"b": 1}, dedup_key="k")
    await give_back(lab, one)
    assert await spend(lab, one, {"a": 5}, idempotency_key="k") == Ok()
    assert await spend(lab, two, {"a": 5}, idempotency_key="k") == AlreadyApplied()
    await report(lab, {"b": 1}, dedup_key="k")
    assert await usage(lab) == {"a": 10, "b": 1}


@scenario
async def test_two_equal_spends_without_a_key_are_two(lab: Lab) -> None:
    """Content makes no key."""
    execution_id = await lab.create()
    for _ in range(2):
        assert await spend(lab, execution_id, {"a": 5}) == Ok()
    assert await ledger(lab, execution_id) == {"a": 10}


@scenario
async def test_a_release_after_a_reset_takes_from_nobody(lab: Lab) -> None:
    """A reset starts a new generation."""
    await make_budget(lab)
    old, new = await lab.create(), await lab.create()
    await spend(lab, old, {"a": 5, "b": 5})
    await lab.engine.reset_budget(budget_id=BUDGET)
    await spend(lab, new, {"a": 3})
    await give_back(lab, old)
    assert await usage(lab) == {"a": 3, "b": 0}
    await give_back(lab, new)
    assert await usage(lab) == {"a": 0, "b": 0}


@scenario
async def test_a_ledger_begins_anew_after_a_reset(lab: Lab) -> None:
    """Only amounts in the current generation's ledger are given back."""
    await make_budget(lab)
    execution_id = await lab.create()
    await spend(lab, execution_id, {"a": 5, "b": 5})
    await lab.engine.reset_budget(budget_id=BUDGET)
    await report(lab, {"a": 10, "b": 10})
    await spend(lab, execution_id, {"a": 2})
    await give_back(lab, execution_id)
    assert await usage(lab) == {"a": 10, "b": 10}
    assert await ledger(lab, execution_id) == {}


# --- admission and reports at the limit ----------------------------------------------------------


@scenario
async def test_a_report_may_reach_the_limit_and_then_nobody_starts(lab: Lab) -> None:
    """Both documented: denied at used + held = limit, a report refused only above it."""
    await make_budget(lab, hard={"a": 10})
    await report(lab, {"a": 9})
    first = await lab.started(budget_ids=(BUDGET,))
    used = Usage(custom={"a": 1})
    assert await lab.engine.report_usage(first.handle, budget_id=BUDGET, usage=used) == Ok()
    assert await report(lab, {"a": 0}) == Ok()
    waiting = await lab.create(budget_ids=(BUDGET,))
    assert await lab.claims() == []
    assert await lab.state(waiting) is PublicState.RATE_LIMITED


@scenario
async def test_reservations_keep_admitted_work_from_overspending(lab: Lab) -> None:
    """The first reservation gets it; later ones are refused before they spend."""
    await make_budget(lab, hard={"a": 10}, on_hard_limit="deny")
    running = [await lab.started(budget_ids=(BUDGET,)) for _ in range(3)]
    replies = await asyncio.gather(
        *(
            lab.engine.reserve_budget(each.handle, budget_id=BUDGET, amounts={"a": 5})
            for each in running
        )
    )
    assert sum(isinstance(reply, Reserved) for reply in replies) == 2
    assert HardBreach("a", 10, 10) in replies
    assert await held(lab) == {"a": 10}


# --- the schedule --------------------------------------------------------------------------------


@scenario
async def test_a_late_loop_does_not_move_the_schedule(lab: Lab) -> None:
    """next_reset = previous + k · interval, above now."""
    await make_budget(lab, reset_interval_ms=1000)
    born = lab.now
    for late, expected in ((1300, 2000), (0, 2000), (2999, 5000), (701, 6000)):
        lab.clock.advance(late)
        await lab.engine.move_due()
        assert (await status(lab)).next_reset_at == born + expected
    assert (await status(lab)).reset_count == 3


@scenario
async def test_a_manual_reset_keeps_the_schedule(lab: Lab) -> None:
    """Before its time, and after it when the loop is late."""
    await make_budget(lab, reset_interval_ms=1000)
    born = lab.now
    lab.clock.advance(400)
    assert await lab.engine.reset_budget(budget_id=BUDGET) == BudgetReset(born + 1000)
    lab.clock.advance(1900)
    assert await lab.engine.reset_budget(budget_id=BUDGET) == BudgetReset(born + 3000)


def test_a_manual_and_a_scheduled_reset_racing_push_the_schedule_once(durable_lab: Lab) -> None:
    """The loop looks again under the lock."""

    async def work() -> None:
        lab = durable_lab
        await make_budget(lab, reset_interval_ms=1000)
        born = lab.now
        async with engines(lab, 3) as labs:
            for each in labs:
                each.clock.set(born + 1000)
            await asyncio.gather(
                *(each.engine.move_due() for each in labs),
                lab.engine.reset_budget(budget_id=BUDGET),
            )
        seen = await status(lab)
        assert seen.next_reset_at == born + 2000
        assert seen.reset_count in (1, 2)  # the manual one always counts

    durable_lab.run(work())


@scenario
async def test_another_interval_counts_from_the_last_reset(lab: Lab) -> None:
    """update_budget reschedules from the last reset, or the creation; 0 ends the schedule."""
    await make_budget(lab)
    born = lab.now
    lab.clock.advance(2500)
    change = lab.engine.update_budget
    await change(budget_id=BUDGET, reset_interval_ms=1000)
    assert (await status(lab)).next_reset_at == born + 3000
    await change(budget_id=BUDGET, reset_interval_ms=0)
    assert (await status(lab)).next_reset_at is None
    lab.clock.advance(10_000)
    await lab.engine.move_due()
    assert (await status(lab)).reset_count == 0
