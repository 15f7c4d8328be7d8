"""What limits do: each word of a policy, and the change itself that sets work free again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.api.executions import NewExecution
from flowfabric.engine.unit.room import UNBLOCK_CHUNK
from flowfabric.errors import ExecutionNotEligible
from flowfabric.model.budget import HardBreach, Ok, SoftBreach
from flowfabric.model.event import BudgetEventType, OperatorEventType
from flowfabric.model.results import Claimed, Created, NoWork
from flowfabric.model.state import BlockingReason, PublicState
from tests.support.budgets import (
    BUDGET,
    events,
    give_back,
    happened,
    held,
    make_budget,
    report,
    reserve,
    settle,
    spend,
    status,
    usage,
)
from tests.support.lab import LANE, TTL_MS, Lab, scenario

MANY = 2 * UNBLOCK_CHUNK + 50
FULL = {"a": 10}


async def attached(lab: Lab, *budget_ids: str, **fields: Any) -> str:
    return await lab.create(budget_ids=budget_ids or (BUDGET,), **fields)


async def blocked(lab: Lab, *budget_ids: str) -> str:
    """An execution that a claim has found unpayable."""
    execution_id = await attached(lab, *budget_ids)
    assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    return execution_id


async def states(lab: Lab) -> Counter[PublicState]:
    return Counter(each.public_state for each in (await lab.dump())["executions"])


async def tell(lab: Lab, claimed: Claimed, amount: int) -> Any:
    used = Usage(custom={"a": amount})
    return await lab.engine.report_usage(claimed.handle, budget_id=BUDGET, usage=used)


# --- on_hard_limit -------------------------------------------------------------------------------


@scenario
async def test_deny_refuses_the_report_and_nothing_else(lab: Lab) -> None:
    await make_budget(lab, hard=FULL, on_hard_limit="deny")
    waiting = await attached(lab)
    assert await report(lab, FULL) == Ok()
    assert await report(lab, {"a": 1}) == HardBreach("a", 10, 10)
    claimed = await lab.claim()
    assert claimed.execution_id == waiting
    assert await tell(lab, claimed, 1) == HardBreach("a", 10, 10)
    assert await lab.state(waiting) is PublicState.ACTIVE


@scenario
async def test_block_keeps_attached_work_back_and_says_why(lab: Lab) -> None:
    """The default. Parked with reason and detail; explained with its usage."""
    await make_budget(lab, hard=FULL, reset_interval_ms=60_000)
    await report(lab, FULL)
    execution_id = await blocked(lab)
    record = await lab.record(execution_id)
    assert record.state.blocking_reason is BlockingReason.WAITING_FOR_BUDGET
    assert record.blocked_on == f"budget:{BUDGET}"
    assert record.blocking_detail == f"budget {BUDGET}: a 10/10"
    why = await lab.engine.explain(execution_id=execution_id)
    (line,) = why.limits
    assert (line.kind, line.limit_id, line.keeps_back) == ("budget", BUDGET, True)
    assert (line.usage, line.clears_at) == ("a 10/10", lab.now + 60_000)


@scenario
async def test_block_never_blocks_the_lane(lab: Lab) -> None:
    """Work behind the kept back is claimed in the same call."""
    await make_budget(lab, hard=FULL)
    await report(lab, FULL)
    kept = [await attached(lab, priority=9) for _ in range(3)]
    free = await lab.create()
    assert (await lab.claim()).execution_id == free
    assert {await lab.state(each) for each in kept} == {PublicState.RATE_LIMITED}


@scenario
async def test_block_lets_running_work_go_on(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    claimed = await lab.started(budget_ids=(BUDGET,))
    assert await tell(lab, claimed, 10) == Ok()
    assert await tell(lab, claimed, 1) == HardBreach("a", 10, 10)
    await lab.engine.complete(claimed.handle)


@scenario
async def test_a_named_start_is_refused_and_parks(lab: Lab) -> None:
    """One admission for every claim path."""
    await make_budget(lab, hard=FULL)
    await report(lab, FULL)
    engine = lab.engine
    calls: list[Callable[[str], Awaitable[Any]]] = [
        lambda name: engine.issue_claim_grant(
            execution_id=name, worker_id="w1", worker_instance_id="w1-1"
        ),
        lambda name: engine.issue_grant_and_claim(
            execution_id=name, lane_id=LANE, lease_duration_ms=TTL_MS
        ),
    ]
    for call in calls:
        execution_id = await attached(lab)
        with pytest.raises(ExecutionNotEligible) as refusal:
            await call(execution_id)
        assert refusal.value.fields["blocking_reason"] == "waiting_for_budget"
        assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    await attached(lab)
    promised = await engine.claim_for_worker(
        lane_id=LANE, worker_id="w1", worker_instance_id="w1-1"
    )
    assert promised == NoWork()


@scenario
async def test_held_amounts_keep_others_from_starting(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    claimed = await lab.started(budget_ids=(BUDGET,))
    await reserve(lab, claimed, FULL)
    await blocked(lab)


@scenario
async def test_cancel_pending_cancels_what_waits_at_the_breach(lab: Lab) -> None:
    """Waiting, delayed and blocked; not what runs, and nothing that is not attached."""
    await make_budget(lab, hard=FULL, on_hard_limit="cancel_pending")
    running = await lab.started(budget_ids=(BUDGET,))
    waiting = await attached(lab)
    delayed = await attached(lab, delay_until=lab.now + 1000)
    held_back = await attached(lab)
    await lab.engine.hold_execution(execution_id=held_back)
    free = await lab.create()
    assert await tell(lab, running, 10) == Ok()
    assert await lab.state(waiting) is PublicState.WAITING
    assert await tell(lab, running, 1) == HardBreach("a", 10, 10)
    for execution_id in (waiting, delayed, held_back):
        assert await lab.state(execution_id) is PublicState.CANCELLED
        record = await lab.record(execution_id)
        assert record.cancelled_by == "budget_exceeded"
        assert BUDGET in (record.cancellation_reason or "")
        assert len(await lab.completions(execution_id)) == 1
    assert await lab.state(running.execution_id) is PublicState.ACTIVE
    assert await lab.state(free) is PublicState.WAITING


@scenario
async def test_cancel_pending_cancels_at_a_claim_of_a_full_budget(lab: Lab) -> None:
    await make_budget(lab, hard=FULL, on_hard_limit="cancel_pending")
    await report(lab, FULL)
    execution_id = await attached(lab)
    assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.CANCELLED


@scenario
async def test_cancel_pending_of_very_many_is_finished_by_the_loop(lab: Lab) -> None:
    """However many: no tick but move_due is needed, and then nothing is left to do."""
    await make_budget(lab, hard=FULL, on_hard_limit="cancel_pending")
    await create_many(lab)
    assert await report(lab, {"a": 11}) == HardBreach("a", 0, 10)
    assert (await states(lab))[PublicState.CANCELLED] == UNBLOCK_CHUNK
    await until_idle(lab)
    assert await states(lab) == {PublicState.CANCELLED: MANY}
    dump = await lab.dump()
    assert dump["ff_budget_attachment"] == []
    assert len(dump["completion_events"]) == MANY


async def create_many(lab: Lab) -> None:
    one = NewExecution(execution_kind="work", budget_ids=(BUDGET,))
    created = await lab.engine.create_executions([one] * MANY)
    assert all(isinstance(each, Created) for each in created)


async def until_idle(lab: Lab) -> None:
    """What the loop does while something is due now."""
    for _ in range(20):
        if not await lab.engine.move_due():
            return
    raise AssertionError("there is always more to do")


@scenario
async def test_fail_fails_who_reports_too_much(lab: Lab) -> None:
    """No retry would help; nothing was applied."""
    await make_budget(lab, hard=FULL, on_hard_limit="fail")
    claimed = await lab.started(budget_ids=(BUDGET,))
    await reserve(lab, claimed, {"a": 1})
    assert await tell(lab, claimed, 11) == HardBreach("a", 1, 10)
    record = await lab.record(claimed.execution_id)
    assert await lab.state(claimed.execution_id) is PublicState.FAILED
    assert record.failure_category == "budget_exceeded"
    assert record.failure_reason == f"budget {BUDGET}: a 1/10"
    assert (await usage(lab), await held(lab)) == ({"a": 0}, {})
    assert len(await lab.completions(claimed.execution_id)) == 1


@pytest.mark.parametrize("how", ["reserve", "settle"])
@scenario
async def test_fail_fails_who_reserves_or_settles_too_much(lab: Lab, how: str) -> None:
    await make_budget(lab, hard=FULL, on_hard_limit="fail")
    claimed = await lab.started()
    if how == "reserve":
        reply: Any = await lab.engine.reserve_budget(
            claimed.handle, budget_id=BUDGET, amounts={"a": 11}
        )
    else:
        await reserve(lab, claimed, {"a": 4})
        reply = await settle(lab, claimed, {"a": 11})
    assert reply == HardBreach("a", 0, 10)
    assert await lab.state(claimed.execution_id) is PublicState.FAILED
    assert (await usage(lab)).get("a", 0) == (0 if how == "reserve" else 4)
    assert await held(lab) == {}


@scenario
async def test_fail_fails_attached_work_at_its_claim(lab: Lab) -> None:
    await make_budget(lab, hard=FULL, on_hard_limit="fail")
    await report(lab, FULL)
    execution_id = await attached(lab)
    assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.FAILED
    assert (await lab.record(execution_id)).failure_category == "budget_exceeded"


@scenario
async def test_fail_needs_somebody_who_reports(lab: Lab) -> None:
    """A report from outside any execution fails nobody."""
    await make_budget(lab, hard=FULL, on_hard_limit="fail")
    running = await lab.started(budget_ids=(BUDGET,))
    waiting = await attached(lab)
    assert await report(lab, {"a": 11}) == HardBreach("a", 0, 10)
    assert await lab.state(running.execution_id) is PublicState.ACTIVE
    assert await lab.state(waiting) is PublicState.WAITING


# --- on_soft_limit -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["warn", "ignore", "block"])
@scenario
async def test_a_soft_limit_is_told_and_counted_whatever_its_word(lab: Lab, word: str) -> None:
    await make_budget(lab, soft={"a": 5}, on_soft_limit=word)
    assert await report(lab, {"a": 6}) == SoftBreach("a", 6, 5)
    assert (await status(lab)).soft_breach_count == 1
    warned = BudgetEventType.SOFT_BREACH in await happened(lab)
    assert warned == (word != "ignore")
    execution_id = await attached(lab)
    assert len(await lab.claims()) == (word != "block")
    expected = PublicState.RATE_LIMITED if word == "block" else PublicState.ACTIVE
    assert await lab.state(execution_id) is expected


@scenario
async def test_soft_block_stops_new_starts_above_the_limit_only(lab: Lab) -> None:
    """Running work may go on to the hard limit."""
    await make_budget(lab, hard=FULL, soft={"a": 5}, on_soft_limit="block")
    first = await lab.started(budget_ids=(BUDGET,))
    assert await tell(lab, first, 5) == Ok()
    second = await lab.started(budget_ids=(BUDGET,))
    assert await tell(lab, second, 1) == SoftBreach("a", 6, 5)
    await blocked(lab)
    assert await tell(lab, second, 4) == SoftBreach("a", 10, 5)
    assert await tell(lab, second, 1) == HardBreach("a", 10, 10)


# --- enforcement_mode ----------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["deny", "block", "cancel_pending", "fail"])
@scenario
async def test_advisory_limits_stop_nothing(lab: Lab, word: str) -> None:
    """Applied, counted and reported, never refused."""
    await make_budget(
        lab,
        hard=FULL,
        enforcement_mode="advisory",
        on_hard_limit=word,
        on_soft_limit="block",
    )
    waiting = await attached(lab)
    claimed = await lab.claim()
    assert await tell(lab, claimed, 11) == SoftBreach("a", 11, 10)
    await reserve(lab, claimed, {"a": 100})
    assert await settle(lab, claimed, {"a": 100}) == SoftBreach("a", 111, 10)
    await lab.started(budget_ids=(BUDGET,))
    seen = await status(lab)
    assert (seen.usage, seen.breach_count, seen.soft_breach_count) == ({"a": 111}, 0, 2)
    assert await lab.state(waiting) is PublicState.ACTIVE


@scenario
async def test_an_advisory_budget_warns_at_either_limit(lab: Lab) -> None:
    """Once for each: passing the hard limit is told though the soft one was passed before."""
    await make_budget(lab, hard=FULL, soft={"a": 5}, enforcement_mode="advisory")
    for _ in range(4):
        await report(lab, {"a": 3})
    found = [
        each.details["soft_limit"]
        for each in await lab.budget_events(BUDGET)
        if each.event_type is BudgetEventType.SOFT_BREACH
    ]
    assert found == [5, 10]


# --- room sets free, by the change itself --------------------------------------------------------


async def raise_limit(lab: Lab, running: Claimed) -> None:
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 11})


async def lift_limit(lab: Lab, running: Claimed) -> None:
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 0})


async def advise(lab: Lab, running: Claimed) -> None:
    await lab.engine.update_budget(budget_id=BUDGET, enforcement_mode="advisory")


async def only_deny(lab: Lab, running: Claimed) -> None:
    await lab.engine.update_budget(budget_id=BUDGET, on_hard_limit="deny")


async def reset(lab: Lab, running: Claimed) -> None:
    await lab.engine.reset_budget(budget_id=BUDGET)


async def release_spends(lab: Lab, running: Claimed) -> None:
    await give_back(lab, running.execution_id)


async def settle_less(lab: Lab, running: Claimed) -> None:
    await settle(lab, running, {"a": 3})


async def release_held(lab: Lab, running: Claimed) -> None:
    await lab.engine.release_hold(running.handle, budget_id=BUDGET, hold_id="h")


async def complete(lab: Lab, running: Claimed) -> None:
    await lab.engine.complete(running.handle)


async def fail(lab: Lab, running: Claimed) -> None:
    await lab.engine.fail(running.handle, reason="x")


async def revoke(lab: Lab, running: Claimed) -> None:
    await lab.engine.revoke_lease(execution_id=running.execution_id, reason="x")


async def cancel(lab: Lab, running: Claimed) -> None:
    await lab.cancel(running.execution_id)


async def hold_lapses(lab: Lab, running: Claimed) -> None:
    lab.clock.advance(1000)
    await lab.engine.move_due()


ROOM: dict[str, Callable[[Lab, Claimed], Awaitable[None]]] = {
    "update raises": raise_limit,
    "update lifts": lift_limit,
    "update to advisory": advise,
    "update to deny": only_deny,
    "reset": reset,
    "release_budget": release_spends,
    "settle": settle_less,
    "release_hold": release_held,
    "complete": complete,
    "fail": fail,
    "revoke": revoke,
    "cancel": cancel,
    "hold expiry": hold_lapses,
}


@pytest.mark.parametrize("change", ROOM)
@scenario
async def test_who_makes_room_sets_the_blocked_free(lab: Lab, change: str) -> None:
    """In the same call: no sweep comes by."""
    await make_budget(lab, hard=FULL)
    running = await lab.started(lane_id="other")
    await spend(lab, running.execution_id, {"a": 5})
    await reserve(lab, running, {"a": 5}, ttl_ms=1000)
    waiting = [await attached(lab) for _ in range(3)]
    assert await lab.claims(limit=9) == []
    await ROOM[change](lab, running)
    assert {await lab.state(each) for each in waiting} == {PublicState.WAITING}
    for execution_id in waiting:
        record = await lab.record(execution_id)
        assert (record.blocked_on, record.blocked_until) == (None, None)
    assert len(await lab.claims(limit=9)) == 3


@scenario
async def test_a_change_that_leaves_it_full_sets_nobody_free(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10, "b": 10})
    one, two = await lab.create(lane_id="other"), await lab.create(lane_id="other")
    await spend(lab, one, {"a": 8, "b": 10})
    await spend(lab, two, {"a": 2})
    execution_id = await blocked(lab)
    await give_back(lab, two)
    assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 20, "b": 10})
    assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    await give_back(lab, one)
    assert await lab.state(execution_id) is PublicState.WAITING


@scenario
async def test_lowering_a_limit_closes_the_budget(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    await report(lab, {"a": 5})
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 4})
    await blocked(lab)


@scenario
async def test_a_soft_limit_that_blocks_sets_free_as_well(lab: Lab) -> None:
    await make_budget(lab, soft={"a": 5}, on_soft_limit="block")
    await report(lab, {"a": 6})
    for change in ({"soft_limits": {"a": 6}}, {"on_soft_limit": "warn"}):
        execution_id = await attached(lab)
        assert await lab.claims(limit=9) == []
        await lab.engine.update_budget(budget_id=BUDGET, **cast("Any", change))
        assert await lab.state(execution_id) is PublicState.WAITING
        await report(lab, {"a": 1})


@scenario
async def test_whoever_waits_for_two_budgets_waits_for_each_in_turn(lab: Lab) -> None:
    for name in ("b1", "b2"):
        await make_budget(lab, name, hard=FULL)
        await report(lab, FULL, name)
    execution_id = await blocked(lab, "b1", "b2")
    assert (await lab.record(execution_id)).blocked_on == "budget:b1"
    await lab.engine.reset_budget(budget_id="b1")
    assert await lab.claims() == []
    assert (await lab.record(execution_id)).blocked_on == "budget:b2"
    await lab.engine.reset_budget(budget_id="b2")
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_only_those_who_wait_for_this_budget_are_set_free(lab: Lab) -> None:
    for name in ("b1", "b2"):
        await make_budget(lab, name, hard=FULL)
        await report(lab, FULL, name)
    one, other = await blocked(lab, "b1"), await blocked(lab, "b2")
    held_back = await attached(lab, "b1")
    await lab.engine.hold_execution(execution_id=held_back)
    await lab.engine.reset_budget(budget_id="b1")
    assert await lab.state(one) is PublicState.WAITING
    assert await lab.state(other) is PublicState.RATE_LIMITED
    assert (await lab.record(held_back)).state.blocking_reason is BlockingReason.PAUSED_BY_OPERATOR


@scenario
async def test_very_many_are_set_free_by_the_change_and_the_loop(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    await report(lab, FULL)
    await create_many(lab)
    for _ in range(20):
        assert await lab.claims(limit=1000) == []
        if (await states(lab))[PublicState.RATE_LIMITED] == MANY:
            break
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert (await states(lab))[PublicState.WAITING] == UNBLOCK_CHUNK
    await until_idle(lab)
    assert await states(lab) == {PublicState.WAITING: MANY}


@scenario
async def test_a_periodic_reset_sets_free(lab: Lab) -> None:
    await make_budget(lab, hard=FULL, reset_interval_ms=1000)
    await report(lab, FULL)
    execution_id = await blocked(lab)
    assert (await lab.engine.next_due()).due_at == lab.now + 1000
    lab.clock.advance(1000)
    await lab.engine.move_due()
    assert (await lab.claim()).execution_id == execution_id


# --- scopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "target"), [("lane", LANE), ("namespace", "default")])
@scenario
async def test_a_scoped_budget_applies_to_what_is_created_afterwards(
    lab: Lab, scope: str, target: str
) -> None:
    before = await lab.create()
    await make_budget(lab, hard=FULL, scope_type=scope, scope_id=target)
    await make_budget(lab, "elsewhere", hard=FULL, scope_type=scope, scope_id="elsewhere")
    await report(lab, FULL)
    await report(lab, FULL, "elsewhere")
    after = await lab.create()
    assert (await lab.claim()).execution_id == before
    assert await lab.claims() == []
    assert (await lab.record(after)).bounds.budget_ids == (BUDGET,)
    assert (await lab.record(after)).blocked_on == f"budget:{BUDGET}"


@scenario
async def test_a_budget_of_an_execution_applies_to_it(lab: Lab) -> None:
    execution_id = await lab.create()
    await make_budget(lab, hard=FULL, scope_type="execution", scope_id=execution_id)
    await report(lab, FULL)
    assert await lab.claims() == []
    assert await lab.state(execution_id) is PublicState.RATE_LIMITED
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert (await lab.claim()).execution_id == execution_id


# --- events --------------------------------------------------------------------------------------


@scenario
async def test_every_change_of_a_policy_is_published_once(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    await make_budget(lab, hard=FULL)
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 9})
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert await events(lab) == [
        OperatorEventType.BUDGET_CREATED,
        OperatorEventType.BUDGET_UPDATED,
        OperatorEventType.BUDGET_RESET,
    ]
    told = [(each.event_type.value, each.details) for each in await lab.budget_events(BUDGET)]
    moved = {"dimension": "a", "before": 10, "after": 9}
    assert told == [("lowered", moved), ("reset", {"spent": {}})]
    made, changed, _ = await lab.operator_events(BUDGET)
    assert made.details["after"]["hard_limits"] == changed.details["before"]["hard_limits"] == FULL
    assert changed.details["after"]["hard_limits"] == {"a": 9}


@scenario
async def test_a_limit_that_is_lifted_was_raised(lab: Lab) -> None:
    await make_budget(lab, hard=FULL)
    for limit in (20, 0, 5):
        await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": limit})
    await lab.engine.update_budget(budget_id=BUDGET, soft_limits={"a": 3})
    assert [each.value for each in await happened(lab)] == ["raised", "raised", "lowered"]


@scenario
async def test_a_scheduled_reset_is_published(lab: Lab) -> None:
    await make_budget(lab, reset_interval_ms=1000)
    lab.clock.advance(1000)
    await lab.engine.move_due()
    await lab.engine.move_due()
    assert (await happened(lab)).count(BudgetEventType.RESET) == 1


@scenario
async def test_a_soft_limit_is_published_at_each_crossing(lab: Lab) -> None:
    """Not again above it; again after it was below; each dimension by itself."""
    await make_budget(lab, soft={"a": 5, "b": 5})
    execution_id = await lab.create()

    async def crossings() -> list[tuple[str, int]]:
        return [
            (each.details["dimension"], each.details["current_usage"])
            for each in await lab.budget_events(BUDGET)
            if each.event_type is BudgetEventType.SOFT_BREACH
        ]

    for _ in range(3):
        await spend(lab, execution_id, {"a": 3})
    assert await crossings() == [("a", 6)]
    assert await report(lab, {"a": 0, "b": 6}) == SoftBreach("a", 9, 5)
    assert await crossings() == [("a", 6), ("b", 6)]
    await give_back(lab, execution_id)
    await report(lab, {"a": 7})
    assert await crossings() == [("a", 6), ("b", 6), ("a", 7)]


@scenario
async def test_a_hammered_hard_limit_is_published_once_a_minute(lab: Lab) -> None:
    """Every breach is counted; a reset makes the next one news."""
    lab.clock.set((lab.now // 60_000 + 1) * 60_000)
    await make_budget(lab, hard={"a": 1})

    async def breaches() -> int:
        return (await happened(lab)).count(BudgetEventType.HARD_BREACH)

    for _ in range(4):  # at 0, 20, 40 and 60 seconds
        await report(lab, {"a": 2})
        lab.clock.advance(20_000)
    assert ((await status(lab)).breach_count, await breaches()) == (4, 2)
    await lab.engine.reset_budget(budget_id=BUDGET)
    await report(lab, {"a": 2})
    assert await breaches() == 3
    (event, *_) = (
        each
        for each in await lab.budget_events(BUDGET)
        if each.event_type is BudgetEventType.HARD_BREACH
    )
    assert event.details == {"dimension": "a", "current_usage": 0, "hard_limit": 1}


@scenario
async def test_a_repeated_refusal_is_no_news(lab: Lab) -> None:
    """The same call again neither counts nor publishes, minutes later."""
    await make_budget(lab, hard={"a": 1})
    for _ in range(3):
        await report(lab, {"a": 2}, dedup_key="k")
        lab.clock.advance(61_000)
    assert (await happened(lab)).count(BudgetEventType.HARD_BREACH) == 1
