"""Rows spoiled behind the engine's back: reported as such, and their neighbours live on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.model.state import ALL_VECTORS, PublicState
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import MEMBERS
from tests.support.flows import node, submit
from tests.support.lab import TTL_MS, Lab, scenario
from tests.support.waits import suspended

# What a stray hand, a broken disk or a bug could leave in a row that the schema lets pass.
SPOIL = {
    "unknown waiting state": "UPDATE ff_exec_core SET state_id = 7 WHERE execution_id = '{uuid}'",
    "unknown delayed state": "UPDATE ff_exec_core SET state_id = 29 WHERE execution_id = '{uuid}'",
    "unknown final state": "UPDATE ff_exec_core SET state_id = 69 WHERE execution_id = '{uuid}'",
    "unknown attempt type": (
        "UPDATE ff_exec_core SET next_attempt_type = 'whim' WHERE execution_id = '{uuid}'"
    ),
    "missing route": "UPDATE ff_exec_core SET route_id = 32000 WHERE execution_id = '{uuid}'",
    "broken policy": "UPDATE ff_exec_body SET policy = '[1]' WHERE execution_id = '{uuid}'",
}


async def assert_reported(lab: Lab, execution_id: str) -> None:
    """Every call about it meets Corruption, names it and changes nothing."""
    engine = lab.engine
    calls: list[Callable[[], Any]] = [
        lambda: engine.describe_execution(execution_id=execution_id),
        lambda: engine.explain(execution_id=execution_id),
        lambda: lab.cancel(execution_id),
        lambda: engine.change_priority(execution_id=execution_id, new_priority=1),
        lambda: engine.replay_execution(execution_id=execution_id),
        lambda: engine.promote_delayed(execution_id=execution_id),
    ]
    for call in calls:
        with pytest.raises(Corruption) as refusal:
            await call()
        assert execution_id in str(refusal.value)


async def story(lab: Lab, statement: str) -> None:
    bad = await lab.create(priority=9, delay_until=lab.now + 10, tags={"a.b": "c"})
    due = await lab.create(delay_until=lab.now + 10)
    good = await lab.create()
    await lab.sql(statement.format(uuid=bad[-36:]))
    await assert_reported(lab, bad)
    # others are claimed, finished, woken and listed
    claimed = await lab.claim()
    assert claimed.execution_id == good
    await lab.engine.complete(claimed.handle)
    await lab.after(10)
    assert await lab.state(due) is PublicState.WAITING
    again = await lab.claim("w2")
    assert again.execution_id == due
    await lab.after(TTL_MS)
    assert await lab.state(due) is PublicState.WAITING
    listed = await lab.engine.list_executions()
    assert {each.execution_id for each in listed.items} >= {good, due}
    # and doctor names it
    report = await lab.engine.doctor()
    assert any(bad in (problem.subject + problem.detail) for problem in report.problems)


@pytest.mark.parametrize("name", SPOIL)
def test_a_spoiled_row_is_reported_and_disturbs_no_other(durable_lab: Lab, name: str) -> None:
    """Typed, named, and no loop or claim stops at it."""
    durable_lab.run(story(durable_lab, SPOIL[name]))


def test_a_spoiled_running_row_disturbs_no_other_worker(durable_lab: Lab) -> None:
    """I15: a batch with a spoiled row answers every other item."""

    async def shared_batch(lab: Lab) -> None:
        bad = await lab.started()
        good = await lab.started()
        statement = SPOIL["unknown final state"].format(uuid=bad.execution_id[-36:])
        await lab.sql(statement)
        answers = await lab.engine.renew_many([bad.handle, good.handle])
        assert isinstance(answers[0], Corruption)
        assert not isinstance(answers[1], Exception)
        await lab.after(TTL_MS)
        assert await lab.state(good.execution_id) is PublicState.WAITING

    durable_lab.run(shared_batch(durable_lab))


def test_many_spoiled_rows_in_front_hide_nothing(durable_lab: Lab) -> None:
    """Neither for the claim nor for the loop."""

    async def crowd(lab: Lab) -> None:
        for _ in range(30):
            bad = await lab.create(priority=99, delay_until=lab.now + 1)
            await lab.sql(SPOIL["unknown waiting state"].format(uuid=bad[-36:]))
        due = await lab.create(delay_until=lab.now + 2)
        await lab.after(2)
        assert (await lab.claim()).execution_id == due

    durable_lab.run(crowd(durable_lab))


LANES = {
    "broken bounds": "bounds = '{'",
    "a weight below all": "weight = -7",
    "aging for ever": f"aging_ms = {1 << 40}",
}


@pytest.mark.parametrize("what", LANES)
def test_an_unreadable_lane_row_stops_that_lane_and_no_other(durable_lab: Lab, what: str) -> None:
    """Nothing starts on it, calls that name it say so, and everything else goes on."""

    async def story(lab: Lab) -> None:
        engine = lab.engine
        stuck = await lab.create(lane_id="bad")
        good = await lab.create(lane_id="good")
        await lab.sql(f"UPDATE ff_lane_registry SET {LANES[what]} WHERE lane_id = 'bad'")
        await lab.sql("UPDATE ff_partition_config SET catalog_version = catalog_version + 1")
        assert [each.execution_id for each in await lab.claims(lanes=("bad", "good"))] == [good]
        for call in (
            lambda: lab.create(lane_id="bad"),
            lambda: engine.set_lane_state(lane_id="bad", lane_state="paused"),
            lambda: engine.configure_lane(lane_id="bad", weight=2),
        ):
            with pytest.raises(Corruption, match="lane bad cannot be read"):
                await call()
        assert "lane bad cannot be read" in (await engine.explain(execution_id=stuck)).summary
        assert [each.lane_id for each in (await engine.list_lanes()).items] == ["good"]
        await lab.create(lane_id="good")
        await lab.after(TTL_MS)
        listed = await engine.list_executions(lane_id="bad")
        assert [each.execution_id for each in listed.items] == [stuck]
        (problem,) = (await engine.doctor()).problems
        assert (problem.code, problem.subject) == ("lane", "ff_lane_registry bad")
        assert "delete it" in problem.advice
        await lab.sql("DELETE FROM ff_lane_registry WHERE lane_id = 'bad'")
        await lab.sql("UPDATE ff_partition_config SET catalog_version = catalog_version + 1")
        assert (await lab.claim(lanes=("bad",))).execution_id == stuck

    durable_lab.run(story(durable_lab))


def test_lapsed_workers_behind_unreadable_ones_are_swept(durable_lab: Lab) -> None:
    """However few a sweep may remove; the unreadable stay for doctor to name."""

    async def story(lab: Lab) -> None:
        for at, name in enumerate(("a", "b", "c", "d", "e")):
            await lab.engine.register_worker(
                worker_id="w",
                worker_instance_id=name,
                lanes=("default",),
                liveness_ttl_ms=1_000 + at,
            )
        spoiled = "WHERE worker_instance_id IN ('a', 'b', 'd')"
        await lab.sql(f"UPDATE ff_worker_registry SET lanes = '{{' {spoiled}")
        lab.clock.advance(2_000)
        assert [await lab.engine.sweep_workers(limit=1) for _ in range(3)] == [1, 1, 0]
        problems = (await lab.engine.doctor()).problems
        rows = [f"ff_worker_registry default/{name}" for name in ("a", "b", "d")]
        assert [each.subject for each in problems] == rows

    durable_lab.run(story(durable_lab))


def test_a_spoiled_signing_key_stops_nothing_but_waits(durable_lab: Lab) -> None:
    """Every wait needs it, so there is no other wait to go on; doctor names it, and tells nothing
    of the secret."""

    async def story(lab: Lab) -> None:
        await lab.sql("UPDATE ff_waitpoint_hmac SET secret_hex = '{not a secret'")
        await lab.completed()
        with pytest.raises(FlowFabricError):
            await suspended(lab)
        await lab.after(TTL_MS)
        (problem,) = (await lab.engine.doctor()).problems
        assert (problem.code, problem.subject) == ("corrupt", "ff_waitpoint_hmac k1")
        assert problem.detail == "secret_hex: is not hexadecimal"

    durable_lab.run(story(durable_lab))


def test_pages_of_rows_go_past_a_key_that_is_no_text(durable_lab: Lab) -> None:
    """Its key cannot be asked for again: a listing that took it for its last would never end."""
    lab = durable_lab
    if not lab.url.startswith("sqlite"):
        return  # PostgreSQL keeps no such text

    async def check() -> None:
        graph = await submit(lab, [node("a")])
        spoiled = await submit(lab, [node("a")])
        where = f"WHERE flow_id = '{spoiled.flow_id}'"
        await lab.sql(f"UPDATE ff_flow_member SET flow_id = CAST(x'61ff62' AS TEXT) {where}")
        page = Search(by_key(MEMBERS), limit=10, skips_corrupt=True)
        rows = await lab.engine.read(lambda reader: reader.search(page))
        assert [row.flow_id for row in rows] == [graph.flow_id]

    lab.run(check())


@scenario
async def test_only_legal_vectors_are_ever_stored(lab: Lab) -> None:
    """What is stored is what the enums say."""
    await lab.started()
    await lab.create(delay_until=lab.now + 5)
    await lab.completed(lane_id="b")
    dump = await lab.dump()
    assert {execution.state for execution in dump["executions"]} <= set(ALL_VECTORS)
