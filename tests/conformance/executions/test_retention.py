"""Retention: finished work is kept for its time and then gone, with all that belongs to it."""

from __future__ import annotations

import pytest

from flowfabric.model.policy import ExecutionPolicy
from tests.support.lab import Lab, scenario


async def exists(lab: Lab, execution_id: str) -> bool:
    return await lab.engine.describe_execution(execution_id=execution_id) is not None


@pytest.mark.parametrize("how", ["completed", "cancelled", "expired"])
@scenario
async def test_every_end_is_purged_exactly_after_its_time(lab: Lab, how: str) -> None:
    """Cancelled ones too."""
    await lab.configure(retention_ms=1000, failed_retention_ms=1000)
    if how == "completed":
        execution_id = await lab.completed(tags={"a.b": "c"}, input_payload=b"in")
    else:
        execution_id = await lab.create(tags={"a.b": "c"}, execution_deadline_at=lab.now + 1)
        if how == "cancelled":
            await lab.cancel(execution_id)
        else:
            await lab.after(1)
    await lab.after(999)
    assert await exists(lab, execution_id)
    await lab.after(1)
    assert not await exists(lab, execution_id)
    dump = await lab.dump()
    for table in ("executions", "attempts", "bodies"):
        assert dump[table] == [], table
    assert (await lab.engine.list_executions(tag=("a.b", "c"))).items == ()
    assert await lab.engine.count_executions() in ({}, {"default": {}})


@scenario
async def test_an_executions_own_retention_shortens_and_lengthens(lab: Lab) -> None:
    """Stored per execution, purged by that index."""
    await lab.configure(retention_ms=1000, failed_retention_ms=1000)
    short = await lab.completed(policy=ExecutionPolicy(retention_ttl_ms=10))
    long = await lab.completed(policy=ExecutionPolicy(retention_ttl_ms=5000))
    usual = await lab.completed()
    await lab.after(10)
    assert [await exists(lab, each) for each in (short, long, usual)] == [False, True, True]
    await lab.after(990)
    assert [await exists(lab, each) for each in (long, usual)] == [True, False]
    await lab.after(4000)
    assert not await exists(lab, long)


@scenario
async def test_a_replay_saves_from_the_purge(lab: Lab) -> None:
    await lab.configure(retention_ms=1000, failed_retention_ms=1000)
    execution_id = await lab.completed()
    await lab.engine.replay_execution(execution_id=execution_id)
    await lab.after(10_000)
    assert await exists(lab, execution_id)


@scenario
async def test_live_work_is_never_purged(lab: Lab) -> None:
    """Invariants I1 and I7."""
    await lab.configure(retention_ms=0)
    waiting = await lab.create()
    claimed = await lab.started(lane_id="b")
    await lab.after(10_000)
    assert await exists(lab, waiting)
    assert await exists(lab, claimed.execution_id)


@scenario
async def test_a_trim_is_bounded_and_says_how_much(lab: Lab) -> None:
    """The first do not clog the rest."""
    for _ in range(5):
        await lab.completed(policy=ExecutionPolicy(retention_ttl_ms=0))
    assert await lab.engine.trim_retention(limit=3) == 3
    assert await lab.engine.trim_retention(limit=3) == 2
    assert await lab.engine.trim_retention(limit=3) == 0
