"""Reservations that end with an entry of the journal: charged with it, and once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.journal import Checkpoint
from flowfabric.api.leases import Complete, Delay, Fail
from flowfabric.api.waits import Suspend, SuspendRequest
from flowfabric.errors import Corruption, FlowFabricError, InvalidInput, LeaseRevoked
from flowfabric.limits import LEASE_TTL_MS_MAX, SETTLEMENTS_MAX
from flowfabric.model.budget import HardBreach, Ok, SoftBreach
from flowfabric.model.journal import Checkpointed, NewEntry, Settlement
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import OperatorOnly
from tests.support.budgets import BUDGET, held, ledger, make_budget, reserve, usage
from tests.support.journal import entry, keys
from tests.support.lab import Lab, scenario


def paying(position: int, amount: int, hold_id: str = "h", budget_id: str = BUDGET) -> NewEntry:
    """An entry with which a reservation ends."""
    return entry(position, settles=(Settlement(budget_id, hold_id, {"a": amount}),))


async def paid(lab: Lab, claimed: Claimed, *entries: NewEntry) -> Checkpointed:
    return await lab.engine.checkpoint(claimed.handle, entries=entries)


def ways(claimed: Claimed, *entries: NewEntry) -> dict[str, Any]:
    """Every request that carries entries."""
    handle = claimed.handle
    wait = SuspendRequest(resume_condition=OperatorOnly(), idempotency_key="k")
    return {
        "checkpoint": Checkpoint(handle=handle, entries=entries),
        "complete": Complete(handle=handle, entries=entries),
        "fail": Fail(handle=handle, reason="x", entries=entries),
        "delay": Delay(handle=handle, delay_until=1 << 42, entries=entries),
        "suspend": Suspend(handle=handle, request=wait, entries=entries),
    }


WAYS = ("checkpoint", "complete", "fail", "delay", "suspend")


@scenario
async def test_every_request_that_carries_entries_settles_once(lab: Lab) -> None:
    """Also when it is repeated because its reply was lost."""
    await make_budget(lab, hard={"a": 1_000})
    for count, way in enumerate(WAYS, 1):
        claimed = await lab.started()
        await reserve(lab, claimed, {"a": 100})
        request = ways(claimed, entry(0), paying(1, 30))[way]
        first = await lab.engine.call(request)
        assert await usage(lab) == {"a": 30 * count}
        assert await held(lab) == {}
        assert (await lab.record(claimed.execution_id)).side_holds == 0
        assert await lab.engine.call(request) == first
        assert await usage(lab) == {"a": 30 * count}, way
        assert await ledger(lab, claimed.execution_id) == {"a": 30}
        assert len(await keys(lab, claimed.execution_id)) == 2
    assert (await lab.dump())["ff_budget_hold"] == []


@scenario
async def test_a_checkpoint_tells_how_reservations_were_settled(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 100}, soft={"a": 20}, on_hard_limit="deny")
    claimed = await lab.started()
    for hold_id in "xyz":
        await reserve(lab, claimed, {"a": 10}, hold_id)
    entries = (paying(0, 5, "x"), entry(1), paying(2, 20, "y"), paying(3, 90, "z"))
    reply = await paid(lab, claimed, *entries)
    assert reply.position == 3
    ok, soft, breach = reply.outcomes
    assert isinstance(ok, Ok)
    assert isinstance(soft, SoftBreach)
    assert isinstance(breach, HardBreach)
    assert await usage(lab) == {"a": 35}  # what was promised is charged, the excess is not
    again = await paid(lab, claimed, *entries)
    assert again == reply
    assert await usage(lab) == {"a": 35}


@scenario
async def test_a_repeated_checkpoint_charges_nothing_when_its_outcome_is_forgotten(
    lab: Lab,
) -> None:
    """That the entry is there is enough: nothing depends on how long repeats are known."""
    await make_budget(lab, hard={"a": 1_000})
    await lab.create()
    claimed = await lab.claim(lease_ttl_ms=LEASE_TTL_MS_MAX)
    await reserve(lab, claimed, {"a": 10})
    await paid(lab, claimed, paying(0, 7))
    for _ in range(26):
        lab.clock.advance(LEASE_TTL_MS_MAX - 1)
        await lab.engine.renew(claimed.handle)
    await lab.engine.sweep()
    assert (await lab.dump())["ff_budget_usage_dedup"] == []
    assert await paid(lab, claimed, paying(0, 7)) == Checkpointed(0, (Ok(),))
    assert await usage(lab) == {"a": 7}


@scenario
async def test_a_reservation_that_is_over_is_charged_all_the_same(lab: Lab) -> None:
    """An entry must not fail because a body took longer than its hold."""
    await make_budget(lab, hard={"a": 100}, on_hard_limit="deny")
    claimed = await lab.started()
    await reserve(lab, claimed, {"a": 10}, ttl_ms=1_000)
    lab.clock.advance(2_000)
    await lab.engine.tick()
    assert await held(lab) == {}
    assert (await paid(lab, claimed, paying(0, 40))).outcomes == (Ok(),)
    assert await usage(lab) == {"a": 40}
    breach = (await paid(lab, claimed, paying(1, 61, "unknown"))).outcomes
    assert breach == (HardBreach("a", 40, 100),)
    assert await usage(lab) == {"a": 40}
    assert len(await keys(lab, claimed.execution_id)) == 2


@scenario
async def test_a_refused_checkpoint_charges_nothing(lab: Lab) -> None:
    """All or none: a lost lease, and a position that is taken."""
    await make_budget(lab, hard={"a": 100})
    claimed = await lab.started()
    await paid(lab, claimed, entry(0, "other"))
    await reserve(lab, claimed, {"a": 10})
    async with lab.unchanged():
        assert isinstance(await _error(paid(lab, claimed, paying(0, 5))), Corruption)
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="x")
    async with lab.unchanged():
        for way, request in ways(claimed, paying(1, 5)).items():
            assert isinstance(await _error(lab.engine.call(request)), LeaseRevoked), way
    assert (await usage(lab), await held(lab)) == ({"a": 0}, {})


@scenario
async def test_a_breach_may_fail_the_execution_that_made_it(lab: Lab) -> None:
    """As any settlement: the entry is there, and what was to follow is refused."""
    await make_budget(lab, hard={"a": 10}, on_hard_limit="fail")
    await make_budget(lab, "c", hard={"a": 10})
    for way in WAYS:
        claimed = await lab.started()
        await reserve(lab, claimed, {"a": 1})
        await reserve(lab, claimed, {"a": 1}, budget_id="c")
        settles = (Settlement(BUDGET, "h", {"a": 50}), Settlement("c", "h", {"a": 1}))
        request = ways(claimed, entry(0, settles=settles))[way]
        await _error(lab.engine.call(request))
        record = await lab.record(claimed.execution_id)
        assert record.public_state.value == "failed", way
        assert await held(lab) == {}
        assert await held(lab, "c") == {}
        assert len(await keys(lab, claimed.execution_id)) == 1


@scenario
async def test_checkpoints_of_one_batch_settle_each_their_own(lab: Lab) -> None:
    await make_budget(lab, hard={"a": 1_000})
    claims = [await lab.started() for _ in range(5)]
    for claimed in claims:
        await reserve(lab, claimed, {"a": 10})
    requests = [Checkpoint(handle=each.handle, entries=(paying(0, 3),)) for each in claims]
    replies = await asyncio.gather(*map(lab.engine.call, requests))
    assert replies == [Checkpointed(0, (Ok(),))] * 5
    assert await lab.engine.checkpoint_many(requests) == replies
    assert (await usage(lab), await held(lab)) == ({"a": 15}, {})


@scenario
async def test_wrong_settlements_are_refused_with_their_field(lab: Lab) -> None:
    claimed = await lab.started()
    one = Settlement("b", "h", {})
    wrong: list[Any] = [
        None,
        ("x",),
        (one,) * (SETTLEMENTS_MAX + 1),
        (Settlement("", "h", {}),),
        (Settlement("b", "", {}),),
        (Settlement("b", "h", {"a": -1}),),
        (Settlement("b", "h", None),),  # type: ignore[arg-type]
    ]
    async with lab.unchanged():
        for settles in wrong:
            with pytest.raises(InvalidInput, match=r"entry\.settles"):
                await lab.direct.checkpoint(claimed.handle, entries=[entry(0, settles=settles)])


async def _error(operation: Any) -> Any:
    try:
        return await operation
    except FlowFabricError as error:
        return error
