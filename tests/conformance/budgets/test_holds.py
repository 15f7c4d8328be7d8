"""Reserve, settle, release: what is promised is held, and comes back whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.errors import (
    ExecutionNotActive,
    FlowFabricError,
    IdempotencyConflict,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
)
from flowfabric.model.attempt import FailureClass
from flowfabric.model.budget import (
    HardBreach,
    HoldReleased,
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
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario


async def holds(lab: Lab) -> list[Any]:
    return (await lab.dump())["ff_budget_hold"]


async def side_holds(lab: Lab, claimed: Claimed) -> int:
    return (await lab.record(claimed.execution_id)).side_holds


# --- holding -------------------------------------------------------------------------------------


@scenario
async def test_what_is_held_counts_against_the_hard_limit(lab: Lab) -> None:
    """Used and held together: for reports, spends and other reservations."""
    await make_budget(lab, hard={"a": 10}, on_hard_limit="deny")
    claimed = await lab.started()
    await report(lab, {"a": 2})
    await reserve(lab, claimed, {"a": 5})
    breach = HardBreach("a", 7, 10)
    assert await report(lab, {"a": 4}) == breach
    assert await spend(lab, claimed.execution_id, {"a": 4}) == breach
    more = await lab.engine.reserve_budget(claimed.handle, budget_id=BUDGET, amounts={"a": 4})
    assert more == breach
    assert await report(lab, {"a": 3}) == Ok()
    assert (await usage(lab), await held(lab)) == ({"a": 5}, {"a": 5})


@scenario
async def test_a_hold_is_all_or_nothing(lab: Lab) -> None:
    await make_budget(lab, hard={"b": 1}, on_hard_limit="deny")
    claimed = await lab.started()
    reply = await lab.engine.reserve_budget(
        claimed.handle, budget_id=BUDGET, amounts={"a": 1, "b": 2}
    )
    assert reply == HardBreach("b", 0, 1)
    assert (await holds(lab), await held(lab)) == ([], {})
    assert await side_holds(lab, claimed) == 0
    assert (await status(lab)).breach_count == 1


@scenario
async def test_a_hold_is_not_used_yet(lab: Lab) -> None:
    """A soft limit is about what is used."""
    await make_budget(lab, soft={"a": 1})
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    assert await usage(lab) == {"a": 0}
    assert (await status(lab)).soft_breach_count == 0
    assert await settle(lab, claimed, {"a": 5}) == SoftBreach("a", 5, 1)


@scenario
async def test_the_same_hold_asked_for_twice_is_held_once(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    first = await reserve(lab, claimed, {"a": 6, "b": 1})
    lab.clock.advance(5)
    async with lab.unchanged():
        assert await reserve(lab, claimed, {"b": 1, "a": 6}) == first
    assert await held(lab) == {"a": 6, "b": 1}


@scenario
async def test_other_amounts_under_a_known_hold_are_a_conflict(lab: Lab) -> None:
    """Nobody shall believe that more is held than is."""
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 6})
    async with lab.refuses(IdempotencyConflict, field="hold_id"):
        await reserve(lab, claimed, {"a": 7})


@scenario
async def test_holds_are_told_apart_by_name_execution_and_budget(lab: Lab) -> None:
    for name in ("b1", "b2"):
        await make_budget(lab, name)
    one, two = await lab.started(), await lab.started("w2")
    for claimed in (one, two):
        for hold_id in ("h1", "h2"):
            for name in ("b1", "b2"):
                await reserve(lab, claimed, {"a": 1}, hold_id, name)
    assert await held(lab, "b1") == await held(lab, "b2") == {"a": 4}
    assert await side_holds(lab, one) == 4
    await settle(lab, one, {"a": 1}, "h1", "b1")
    assert (await held(lab, "b1"), await held(lab, "b2")) == ({"a": 3}, {"a": 4})


@scenario
async def test_an_unnamed_hold_gets_a_name_of_its_own(lab: Lab) -> None:
    await make_budget(lab)
    claimed = await lab.started()
    names = set()
    for _ in range(3):
        reply = await lab.engine.reserve_budget(claimed.handle, budget_id=BUDGET, amounts={"a": 1})
        assert isinstance(reply, Reserved)
        names.add(reply.hold_id)
    assert len(names) == 3
    assert await held(lab) == {"a": 3}


@scenario
async def test_a_budget_without_a_limit_holds_without_limit(lab: Lab) -> None:
    await make_budget(lab, hard={"other": 1})
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 10**12})
    assert await settle(lab, claimed, {"a": 1}) == Ok()
    assert (await usage(lab), await held(lab)) == ({"a": 1}, {})


# --- settling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("amount", [0, 3, 5])
@scenario
async def test_settling_up_to_the_hold_charges_what_was_spent(lab: Lab, amount: int) -> None:
    """The rest of the hold comes back; the spend joins the execution's ledger."""
    await make_budget(lab, hard={"a": 5}, on_hard_limit="deny")
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    assert await settle(lab, claimed, {"a": amount}) == Ok()
    assert (await usage(lab), await held(lab)) == ({"a": amount}, {})
    assert await holds(lab) == []
    assert await side_holds(lab, claimed) == 0
    assert await ledger(lab, claimed.execution_id) == {"a": amount}
    assert await report(lab, {"a": 5 - amount}) == Ok()
    await give_back(lab, claimed.execution_id)
    assert await usage(lab) == {"a": 5 - amount}


@scenario
async def test_settling_more_than_the_hold_is_a_spend_where_there_is_room(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    assert await settle(lab, claimed, {"a": 8, "new": 1}) == Ok()
    assert await usage(lab) == {"a": 8, "new": 1}
    assert await ledger(lab, claimed.execution_id) == {"a": 8, "new": 1}


@scenario
async def test_the_excess_over_a_hold_is_refused_and_counted(lab: Lab) -> None:
    """What the hold covers is charged: it was promised. All of the excess is refused."""
    await make_budget(lab, hard={"a": 10}, on_hard_limit="deny")
    claimed = await lab.started()
    await report(lab, {"a": 4})
    await reserve(lab, claimed, {"a": 5, "b": 1})
    assert await settle(lab, claimed, {"a": 7, "b": 3, "c": 2}) == HardBreach("a", 4, 10)
    used = {name: number for name, number in (await usage(lab)).items() if number}
    assert (used, await held(lab), await holds(lab)) == ({"a": 9, "b": 1}, {}, [])
    assert (await status(lab)).breach_count == 1
    assert await side_holds(lab, claimed) == 0
    await give_back(lab, claimed.execution_id)
    assert (await usage(lab))["a"] == 4


@scenario
async def test_what_was_promised_is_charged_after_the_limit_was_lowered(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 8})
    await lab.engine.update_budget(budget_id=BUDGET, hard_limits={"a": 2})
    assert await settle(lab, claimed, {"a": 8}) == HardBreach("a", 0, 2)
    assert (await usage(lab), await held(lab)) == ({"a": 8}, {})


@scenario
async def test_a_hold_is_settled_once_and_its_answer_given_again(lab: Lab) -> None:
    """I6: whoever lost the answer asks again."""
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    first = await settle(lab, claimed, {"a": 5})
    assert await settle(lab, claimed, {"a": 5}) == first
    assert (await usage(lab), await held(lab)) == ({"a": 5}, {})


@scenario
async def test_an_answer_given_again_ends_no_other_hold(lab: Lab) -> None:
    """What the execution still holds comes back with its lease."""
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5}, "h1")
    await reserve(lab, claimed, {"a": 7}, "h2")
    await settle(lab, claimed, {"a": 5}, "h1")
    async with lab.unchanged():
        await settle(lab, claimed, {"a": 5}, "h1")
    assert await side_holds(lab, claimed) == 1
    await lab.engine.complete(claimed.handle)
    assert (await usage(lab), await held(lab)) == ({"a": 5}, {})


@pytest.mark.parametrize("end", ["released", "lapsed"])
@scenario
async def test_a_new_hold_of_a_settled_name_has_its_own_answer(lab: Lab, end: str) -> None:
    """Nobody is told that a spend was charged because an earlier one was."""
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    await settle(lab, claimed, {"a": 5})
    await reserve(lab, claimed, {"a": 5}, ttl_ms=1000)
    if end == "released":
        await lab.engine.release_hold(claimed.handle, budget_id=BUDGET, hold_id="h")
    else:
        lab.clock.advance(1000)
        await lab.engine.move_due()
    async with lab.refuses(NotFound, field="hold"):
        await settle(lab, claimed, {"a": 5})


@scenario
async def test_a_name_is_free_again_after_its_hold_ended(lab: Lab) -> None:
    await make_budget(lab)
    claimed = await lab.started()
    for _ in range(3):
        await reserve(lab, claimed, {"a": 5})
        await settle(lab, claimed, {"a": 1})
    assert (await usage(lab), await held(lab)) == ({"a": 3}, {})
    assert await side_holds(lab, claimed) == 0


@scenario
async def test_a_reset_keeps_what_is_held(lab: Lab) -> None:
    """And the settled spend belongs to the new generation."""
    await make_budget(lab, hard={"a": 10})
    claimed = await lab.started()
    await report(lab, {"a": 2})
    await reserve(lab, claimed, {"a": 8})
    await lab.engine.reset_budget(budget_id=BUDGET)
    assert (await usage(lab), await held(lab)) == ({"a": 0}, {"a": 8})
    assert await report(lab, {"a": 3}) == HardBreach("a", 8, 10)
    await settle(lab, claimed, {"a": 8})
    await give_back(lab, claimed.execution_id)
    assert await usage(lab) == {"a": 0}


# --- coming back ---------------------------------------------------------------------------------


@scenario
async def test_a_hold_is_released_once(lab: Lab) -> None:
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5})
    release = lab.engine.release_hold
    named = {"budget_id": BUDGET, "hold_id": "h"}
    assert await release(claimed.handle, **named) == HoldReleased(True)
    assert (await usage(lab), await held(lab), await holds(lab)) == ({"a": 0}, {}, [])
    assert await side_holds(lab, claimed) == 0
    async with lab.unchanged():
        assert await release(claimed.handle, **named) == HoldReleased(False)
        unknown = {"budget_id": "no-such-budget", "hold_id": "h"}
        assert await release(claimed.handle, **unknown) == HoldReleased(False)


@scenario
async def test_a_hold_lapses_by_the_clock(lab: Lab) -> None:
    """The loop gives it back; the execution goes on."""
    await make_budget(lab)
    claimed = await lab.started()
    hold = await reserve(lab, claimed, {"a": 5}, ttl_ms=1000)
    assert hold.expires_at == lab.now + 1000
    assert (await lab.engine.next_due()).due_at == lab.now + 1000
    lab.clock.advance(999)
    await lab.engine.move_due()
    assert await held(lab) == {"a": 5}
    lab.clock.advance(1)
    await lab.engine.move_due()
    assert (await held(lab), await holds(lab)) == ({}, [])
    assert await side_holds(lab, claimed) == 0
    async with lab.refuses(NotFound, field="hold"):
        await settle(lab, claimed, {"a": 1})
    await lab.engine.complete(claimed.handle)


@scenario
async def test_a_lapsed_hold_is_gone_before_the_loop_comes(lab: Lab) -> None:
    """How late a loop is changes no answer: no settling, and the name may be held anew."""
    await make_budget(lab, hard={"a": 5})
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 4}, ttl_ms=1000)
    lab.clock.advance(1000)
    async with lab.refuses(NotFound, field="hold"):
        await settle(lab, claimed, {"a": 1})
    hold = await reserve(lab, claimed, {"a": 5}, ttl_ms=2000)
    assert hold.expires_at == lab.now + 2000
    assert (await held(lab), await side_holds(lab, claimed)) == ({"a": 5}, 1)
    await lab.engine.move_due()
    assert await settle(lab, claimed, {"a": 5}) == Ok()
    assert (await held(lab), await side_holds(lab, claimed)) == ({}, 0)


async def complete(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.complete(claimed.handle)


async def retry(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.fail(claimed.handle, reason="x")
    assert await lab.state(claimed.execution_id) is PublicState.DELAYED


async def fail_for_good(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    assert await lab.state(claimed.execution_id) is PublicState.FAILED


async def delay(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 1000)


async def lose_marked(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)


async def lose(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.move_due()


async def revoke(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="x")


async def cancel(lab: Lab, claimed: Claimed) -> None:
    await lab.cancel(claimed.execution_id)


async def cancel_own(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.cancel(claimed.handle, reason="x")


async def pass_the_deadline(lab: Lab, claimed: Claimed) -> None:
    lab.clock.advance(10_000)
    await lab.engine.expire_execution(execution_id=claimed.execution_id, phase="execution_deadline")


ENDS: dict[str, Callable[[Lab, Claimed], Awaitable[None]]] = {
    "complete": complete,
    "fail with retry": retry,
    "fail for good": fail_for_good,
    "delay": delay,
    "lease marked expired": lose_marked,
    "lease expired by the loop": lose,
    "revoke": revoke,
    "cancel by an operator": cancel,
    "cancel by the owner": cancel_own,
    "deadline": pass_the_deadline,
}


@pytest.mark.parametrize("end", ENDS)
@scenario
async def test_every_end_of_the_lease_returns_what_it_held(lab: Lab, end: str) -> None:
    """In the same transaction, from every budget, attached or not."""
    for name in ("b1", "b2"):
        await make_budget(lab, name, hard={"a": 10})
    rules = policy(retry_policy=retries(1, 1000), execution_deadline_ms=10_000)
    if "lease" in end:
        rules = policy(retry_policy=retries(1, 1000))
    claimed = await lab.started(policy=rules, budget_ids=("b1",))
    for name in ("b1", "b2"):
        await reserve(lab, claimed, {"a": 3, "c": 1}, "h1", name)
        await reserve(lab, claimed, {"a": 4}, "h2", name)
    await settle(lab, claimed, {"a": 2}, "h1", "b1")
    await ENDS[end](lab, claimed)
    assert await holds(lab) == []
    for name, used in (("b1", 2), ("b2", 0)):
        assert (await usage(lab, name))["a"] == used
        assert await held(lab, name) == {}
    assert await side_holds(lab, claimed) == 0


@scenario
async def test_a_hold_and_its_lease_that_end_together_come_back_once(lab: Lab) -> None:
    """Both are due in one step of the loop; what others hold stays."""
    await make_budget(lab)
    claimed = await lab.started()
    other = await lab.started("w2")
    await reserve(lab, claimed, {"a": 5}, "h1", ttl_ms=TTL_MS)
    await reserve(lab, claimed, {"a": 5}, "h2", ttl_ms=9 * TTL_MS)
    await reserve(lab, other, {"a": 7}, ttl_ms=9 * TTL_MS)
    lab.clock.advance(TTL_MS // 2)
    await lab.engine.renew(other.handle)
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.move_due()
    assert await held(lab) == {"a": 7}
    assert (await side_holds(lab, claimed), await side_holds(lab, other)) == (0, 1)
    assert [row.execution_id for row in await holds(lab)] == [other.execution_id]


@scenario
async def test_a_hold_made_and_lost_in_one_commit_comes_back(lab: Lab) -> None:
    """The batch decides in order: whoever comes after the end is refused."""
    await make_budget(lab)
    claimed = await lab.started()
    replies = await asyncio.gather(
        reserve(lab, claimed, {"a": 5}, "h1"),
        lab.engine.complete(claimed.handle),
        reserve(lab, claimed, {"a": 5}, "h2"),
        settle(lab, claimed, {"a": 5}, "h1"),
        return_exceptions=True,
    )
    assert isinstance(replies[0], Reserved)
    assert [type(each) for each in replies[2:]] == [ExecutionNotActive] * 2
    assert (await usage(lab), await held(lab), await holds(lab)) == ({"a": 0}, {}, [])


@scenario
async def test_the_next_attempt_holds_for_itself(lab: Lab) -> None:
    """A hold is keyed by attempt: the lost one's name is free."""
    await make_budget(lab, hard={"a": 5})
    claimed = await lab.started(policy=policy(retry_policy=retries(1, 0)))
    await reserve(lab, claimed, {"a": 5})
    await lab.engine.fail(claimed.handle, reason="x")
    await lab.engine.move_due()
    again = await lab.claim()
    assert again.execution_id == claimed.execution_id
    await reserve(lab, again, {"a": 5})
    assert await settle(lab, again, {"a": 5}) == Ok()


# --- the fence -----------------------------------------------------------------------------------


async def lapsed_lease(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)


async def another_owner(lab: Lab, claimed: Claimed) -> None:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.move_due()
    await lab.claim("w2")


STALE: dict[str, tuple[Callable[[Lab, Claimed], Awaitable[None]], type[FlowFabricError]]] = {
    "ended": (complete, ExecutionNotActive),
    "delayed": (delay, ExecutionNotActive),
    "lapsed": (lapsed_lease, LeaseExpired),
    "revoked": (revoke, LeaseRevoked),
    "owned by another": (another_owner, StaleLease),
}


@pytest.mark.parametrize("how", STALE)
@scenario
async def test_only_the_owner_of_the_lease_spends(lab: Lab, how: str) -> None:
    """Report, reserve, settle and release are fenced; nothing changes."""
    await make_budget(lab)
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 5}, ttl_ms=10 * TTL_MS)
    lose_it, error = STALE[how]
    await lose_it(lab, claimed)
    engine, handle = lab.engine, claimed.handle
    named = {"budget_id": BUDGET, "hold_id": "h"}
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: engine.report_usage(handle, budget_id=BUDGET, usage=Usage(input_tokens=1)),
        lambda: reserve(lab, claimed, {"a": 5}),
        lambda: engine.reserve_budget(handle, budget_id=BUDGET, amounts={"a": 1}),
        lambda: engine.settle_budget(handle, **named, amounts={"a": 5}),
        lambda: engine.release_hold(handle, **named),
    ]
    for call in calls:
        async with lab.refuses(error):
            await call()


# --- many at once --------------------------------------------------------------------------------


@scenario
async def test_many_holds_in_one_batch_are_exact(lab: Lab) -> None:
    """Each caller gets its own answer, though one commit carries them all."""
    await make_budget(lab, hard={"a": 50}, on_hard_limit="deny")
    claimed = await lab.started()

    async def one(number: int) -> bool:
        name = f"h{number}"
        reply = await lab.engine.reserve_budget(
            claimed.handle, budget_id=BUDGET, hold_id=name, amounts={"a": 3}
        )
        return isinstance(reply, Reserved)

    granted = await asyncio.gather(*(one(number) for number in range(40)))
    assert sum(granted) == 16
    assert (await held(lab), await side_holds(lab, claimed)) == ({"a": 48}, 16)
    names = [f"h{number}" for number, got in enumerate(granted) if got]
    await asyncio.gather(*(settle(lab, claimed, {"a": 2}, name) for name in names[:10]))
    await lab.engine.complete(claimed.handle)
    assert (await usage(lab), await held(lab), await holds(lab)) == ({"a": 20}, {}, [])
