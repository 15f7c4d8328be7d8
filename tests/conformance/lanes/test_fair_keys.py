"""Fair keys: executions of one key share a lane with those of others, however many wait."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.stores.tables import FAIR
from tests.support.lab import Lab, scenario

MANY = 10_000
POLICY = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=2, backoff=FixedBackoff(delay_ms=1_000))
)


async def fill(lab: Lab, key: str | None, count: int, **fields: Any) -> None:
    request = NewExecution(execution_kind="work", fair_key=key, **fields)
    for first in range(0, count, 1_000):
        await lab.engine.create_executions([request] * min(1_000, count - first))


async def key_of(lab: Lab, claimed: Claimed) -> str | None:
    return (await lab.record(claimed.execution_id)).fair_key


async def drawn(lab: Lab, count: int, *, limit: int = 1) -> Counter[str | None]:
    """The keys of what is claimed, a few at a time, each completed before the next."""
    found: Counter[str | None] = Counter()
    for _ in range(count // limit):
        lab.clock.advance(7)
        for claimed in await lab.claims(limit=limit):
            found[await key_of(lab, claimed)] += 1
            await lab.engine.complete(claimed.handle)
    return found


def check_rows(dump: dict[str, list[Any]]) -> None:
    """A row for each unfinished execution with a key, as it stands."""
    unfinished = {
        each.execution_id: each
        for each in dump["executions"]
        if each.fair_key is not None and not each.is_terminal
    }
    rows = {each.execution_id: each for each in dump[FAIR.name]}
    assert rows.keys() == unfinished.keys()
    for execution_id, row in rows.items():
        owner = unfinished[execution_id]
        phase = "running" if owner.is_leased else "ready" if owner.is_waiting else "away"
        assert (row.phase.value, row.fair_key) == (phase, owner.fair_key)
        assert (row.namespace, row.lane_id, row.priority) == (
            *(owner.namespace, owner.lane_id, owner.priority),
        )
        assert row.tag == owner.ties.fair.tag


def test_a_newcomer_runs_soon_beside_ten_thousand(lab: Lab) -> None:
    async def story() -> None:
        await fill(lab, "loud", MANY)
        running = await lab.claims(limit=20)
        assert len(running) == 20
        lab.clock.advance(5_000)
        newcomer = await lab.create(fair_key="quiet")
        explained = await lab.engine.explain(execution_id=newcomer)
        assert explained.fair_key == "quiet"
        assert explained.fair_ahead is not None
        assert explained.fair_ahead <= 20
        for turn in range(20):
            claimed = await lab.claim()
            if claimed.execution_id == newcomer:
                assert turn < 20
                return
        raise AssertionError("it waits behind the others")

    lab.run(story())


@scenario
async def test_keys_take_turns_whoever_came_first(lab: Lab) -> None:
    await fill(lab, "loud", 300)
    await drawn(lab, 10)
    await fill(lab, "quiet", 20)
    found = await drawn(lab, 40, limit=2)
    assert abs(found["quiet"] - 20) <= 2
    assert await drawn(lab, 10) == {"loud": 10}
    check_rows(await lab.dump())


@scenario
async def test_weights_of_keys_three_to_one(lab: Lab) -> None:
    """From the next submit on; others have 1."""
    answer = await lab.engine.configure_lane(lane_id="default", fair_weights={"big": 3})
    assert answer.fair_weights == {"big": 3}
    for key in ("big", "small"):
        await fill(lab, key, 100)
    found = await drawn(lab, 80, limit=4)
    assert abs(found["big"] - 60) <= 2
    assert (await lab.engine.list_lanes()).items[0].fair_weights == {"big": 3}


@scenario
async def test_a_stuck_one_of_another_priority_does_not_hold_the_clock(lab: Lab) -> None:
    await fill(lab, "stuck", 1)
    await lab.claim()  # it runs for ever
    lab.clock.advance(1_000_000)
    await fill(lab, "loud", 50, priority=5)
    await drawn(lab, 10)
    newcomer = await lab.create(fair_key="new", priority=5)
    claimed = await lab.claims(limit=3)
    assert newcomer in {each.execution_id for each in claimed}


@scenario
async def test_a_retry_and_a_delay_keep_their_place(lab: Lab) -> None:
    first = await lab.create(fair_key="a", policy=POLICY)
    later = await lab.create(fair_key="b", delay_until=lab.now + 1_000)
    await fill(lab, "a", 5)
    tag = (await lab.record(first)).ready_rank
    claimed = await lab.claim()
    assert claimed.execution_id == first
    await lab.engine.fail(claimed.handle, reason="once more", failure_class="transient")
    assert await lab.state(first) is PublicState.DELAYED
    check_rows(await lab.dump())
    await lab.after(1_000)
    assert (await lab.record(first)).ready_rank == tag
    assert {each.execution_id for each in await lab.claims(limit=2)} == {first, later}
    check_rows(await lab.dump())


@scenario
async def test_rows_follow_every_move(lab: Lab) -> None:
    """Created, claimed, moved to another priority, cancelled, run again."""
    keys = [await lab.create(fair_key="a") for _ in range(4)]
    check_rows(await lab.dump())
    claimed = await lab.claim()
    await lab.engine.change_priority(execution_id=keys[1], new_priority=7)
    await lab.engine.hold_execution(execution_id=keys[2])
    await lab.cancel(keys[3])
    check_rows(await lab.dump())
    await lab.engine.complete(claimed.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    check_rows(await lab.dump())
    await lab.engine.release_execution(execution_id=keys[2])
    for each in await lab.claims(limit=5):
        await lab.engine.complete(each.handle)
    assert (await lab.dump())[FAIR.name] == []


@scenario
async def test_queues_are_apart_and_plain_work_has_none(lab: Lab) -> None:
    """Another tenant or lane has a clock of its own; what has no key stands by its age."""
    await fill(lab, "a", 50)
    lab.clock.advance(10)
    for fields in ({"namespace": "else"}, {"lane_id": "other"}):
        found = await lab.record(await lab.create(fair_key="a", **fields))
        assert found.ready_rank == lab.now
    plain = await lab.record(await lab.create())
    assert (plain.ready_rank, plain.fair_key) == (lab.now, None)
    assert (await lab.engine.explain(execution_id=plain.execution_id)).fair_key is None


@scenario
async def test_the_key_is_shown_and_makes_the_request_another(lab: Lab) -> None:
    key = await lab.create(fair_key="acme", idempotency_key="k")
    assert (await lab.describe(key)).fair_key == "acme"
    assert [each.fair_key for each in (await lab.engine.list_executions()).items] == ["acme"]
    again = await lab.engine.create_execution(
        execution_kind="work", fair_key="acme", idempotency_key="k"
    )
    assert again.execution_id == key
    async with lab.refuses(InvalidInput, field="fair_key"):
        await lab.create(fair_key="")


@pytest.mark.parametrize("weights", [[1], {"": 2}, {"a": 0}, {"a": 1_001}, {"a": True}])
@scenario
async def test_bad_weights_change_nothing(lab: Lab, weights: Any) -> None:
    with pytest.raises(InvalidInput, match="fair_weights"):
        await lab.engine.configure_lane(lane_id="x", fair_weights=weights)
    assert (await lab.engine.list_lanes()).items == ()


@scenario
async def test_work_that_waits_after_its_turn_keeps_no_other_of_its_key_back(lab: Lab) -> None:
    await fill(lab, "a", 30)
    for _ in range(30):
        claimed = await lab.claim()
        await lab.engine.delay(claimed.handle, delay_until=lab.now + 86_400_000)
    await fill(lab, "b", 20)
    made = await lab.engine.create_executions([NewExecution(execution_kind="urgent", fair_key="a")])
    first = [(await lab.claim()).execution_id for _ in range(3)]
    assert made[0].execution_id in first
    check_rows(await lab.dump())
