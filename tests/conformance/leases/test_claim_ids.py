"""Claims with an id: no lease is lost with an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.errors import ClaimIdReused, InvalidInput
from flowfabric.model.results import GivenBack, NotRegistered
from flowfabric.model.state import PublicState
from tests.support.lab import TTL_MS, Lab, scenario

ONE = "claim-1"
W1: dict[str, Any] = {"worker_instance_id": "w1-1"}


async def claims(lab: Lab, claim_id: str | None = ONE, **fields: Any) -> Any:
    return await lab.claims(claim_id=claim_id, limit=fields.pop("limit", 3), **fields)


@scenario
async def test_a_repeated_claim_is_answered_the_same_leases(lab: Lab) -> None:
    for number in range(4):
        await lab.create(input_payload=b"%d" % number, tags={"app.n": str(number)})
    first = await claims(lab)
    assert len(first) == 3
    before = await lab.dump()
    assert await claims(lab) == first
    assert await claims(lab) == first
    after = await lab.dump()
    assert {**after, "ff_claim": None} == {**before, "ff_claim": None}
    for each in first:
        assert (await lab.describe(each.execution_id)).reclaim_count == 0
        await lab.engine.complete(each.handle, result=b"1")
    assert len(await claims(lab, "claim-2")) == 1


@scenario
async def test_what_has_ended_of_a_claim_is_not_answered_again(lab: Lab) -> None:
    for _ in range(3):
        await lab.create()
    ended, cancelled, lives = await claims(lab)
    await lab.engine.complete(ended.handle)
    await lab.cancel(cancelled.execution_id)
    assert await claims(lab) == [lives]
    await lab.create()  # is not looked for: a repeated claim gets nothing new
    assert await claims(lab) == [lives]
    await lab.engine.complete(lives.handle)
    assert await claims(lab, wait_ms=60_000) == []


@scenario
async def test_a_renewed_lease_is_answered_with_its_new_expiry(lab: Lab) -> None:
    await lab.create()
    (first,) = await claims(lab)
    lab.clock.advance(TTL_MS // 2)
    renewed = await lab.engine.renew(first.handle)
    (again,) = await claims(lab)
    assert again.lease_expires_at == renewed.expires_at_ms
    assert again.handle == first.handle


@scenario
async def test_a_lapsed_lease_is_not_answered_again(lab: Lab) -> None:
    await lab.create()
    (first,) = await claims(lab)
    lab.clock.set(first.lease_expires_at)
    assert await claims(lab) == []


@scenario
async def test_an_empty_claim_is_like_new_when_it_is_repeated(lab: Lab) -> None:
    assert await claims(lab) == []
    await lab.create()
    assert len(await claims(lab)) == 1


@scenario
async def test_an_id_of_another_claim_is_refused(lab: Lab) -> None:
    for _ in range(3):
        await lab.create()
    first = await claims(lab, limit=1)
    async with lab.refuses(ClaimIdReused, "claim_id"):
        await claims(lab, limit=2)
    async with lab.refuses(ClaimIdReused, "claim_id"):
        await claims(lab, limit=1, lanes=("other",))
    assert await claims(lab, limit=1) == first


@scenario
async def test_ids_belong_to_the_instance(lab: Lab) -> None:
    for _ in range(2):
        await lab.create()
    (first,) = await claims(lab, limit=1)
    (other,) = await claims(lab, limit=1, worker_instance_id="w1-2")
    assert first.execution_id != other.execution_id


@scenario
async def test_only_the_last_claim_of_an_instance_is_remembered(lab: Lab) -> None:
    for _ in range(3):
        await lab.create()
    await claims(lab, limit=1)
    await claims(lab, "claim-2", limit=1)
    assert len(await claims(lab, limit=1)) == 1
    assert len((await lab.dump())["ff_claim"]) == 1


@pytest.mark.parametrize("value", ["", "x" * 300, 1, b"x", "a\x00b"])
@scenario
async def test_a_bad_id_is_refused(lab: Lab, value: Any) -> None:
    await lab.create()
    async with lab.refuses(InvalidInput, "claim_id"):
        await claims(lab, value)


# --- giving back --------------------------------------------------------------------------------


@scenario
async def test_what_nobody_was_told_of_is_given_back(lab: Lab) -> None:
    """It waits again at once, the same attempt goes on, and no recovery is counted."""
    for _ in range(2):
        await lab.create()
    first = await claims(lab)
    assert await lab.engine.give_back_claim(**W1, claim_id=ONE) == GivenBack(2)
    for each in first:
        snapshot = await lab.describe(each.execution_id)
        assert snapshot.public_state is PublicState.WAITING
        assert (snapshot.reclaim_count, snapshot.retry_count) == (0, 0)
    again = await lab.claims("w2", limit=2)
    assert [each.attempt_index for each in again] == [0, 0]
    assert await claims(lab) == []


@scenario
async def test_a_claim_that_was_repeated_is_not_given_back(lab: Lab) -> None:
    """Its worker has the leases by then."""
    await lab.create()
    first = await claims(lab)
    await claims(lab)
    assert await lab.engine.give_back_claim(**W1, claim_id=ONE) == GivenBack(0)
    await lab.engine.renew(first[0].handle)


@scenario
async def test_another_claim_or_instance_gives_nothing_back(lab: Lab) -> None:
    await lab.create()
    (first,) = await claims(lab)
    assert await lab.engine.give_back_claim(**W1, claim_id="claim-2") == GivenBack(0)
    other = await lab.engine.give_back_claim(worker_instance_id="w2-1", claim_id=ONE)
    assert other == GivenBack(0)
    await lab.engine.renew(first.handle)


@scenario
async def test_a_claim_that_is_cancelled_leaves_no_lease(lab: Lab) -> None:
    """Whenever its caller goes, before its commit or after."""
    await lab.create()
    for turns in range(40):
        claim = asyncio.create_task(claims(lab, f"claim-{turns}", wait_ms=5_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        if claim.done():
            for each in claim.result():
                await lab.engine.give_back_claim(**W1, claim_id=f"claim-{turns}")
                assert each.attempt_index == 0
        claim.cancel()
        await asyncio.gather(claim, return_exceptions=True)
        await lab.engine.give_back_claim(**W1, claim_id=f"claim-{turns}")
        (snapshot,) = (await lab.engine.list_executions()).items
        assert snapshot.public_state is PublicState.WAITING, turns
        assert snapshot.reclaim_count == 0


@scenario
async def test_a_worker_that_leaves_takes_its_claim_along(lab: Lab) -> None:
    await lab.create()
    await lab.engine.register_worker(
        worker_id="w1", lanes=("default",), liveness_ttl_ms=TTL_MS, **W1
    )
    await claims(lab)
    await lab.engine.leave_worker(**W1)
    assert (await lab.dump())["ff_claim"] == []


@scenario
async def test_an_old_claim_is_swept(lab: Lab) -> None:
    await lab.create()
    await claims(lab)
    lab.clock.advance(TTL_MS - 1)
    await lab.direct.sweep()
    assert len((await lab.dump())["ff_claim"]) == 1
    lab.clock.advance(1)
    await lab.direct.sweep()
    assert (await lab.dump())["ff_claim"] == []


@scenario
async def test_an_instance_of_another_tenant_cannot_forget_a_claim(lab: Lab) -> None:
    for _ in range(2):
        await lab.create()
    first = await claims(lab, limit=1)
    left = await lab.engine.leave_worker(**W1, namespace="elsewhere")
    assert isinstance(left, NotRegistered)
    assert await claims(lab, limit=1) == first
