"""The timeline of one execution, in order."""

from __future__ import annotations

import pytest

from flowfabric.errors import NotFound
from tests.support.lab import TTL_MS, Lab, scenario


async def told(lab: Lab, execution_id: str) -> list[str]:
    timeline = await lab.engine.read_timeline(execution_id=execution_id)
    times = [entry.occurred_at for entry in timeline.entries]
    assert times == sorted(times)
    return [f"{entry.what}: {entry.detail}" for entry in timeline.entries]


@scenario
async def test_a_plain_life(lab: Lab) -> None:
    done = await lab.completed()
    assert await told(lab, done) == [
        "created: on lane default",
        "started: attempt 1 (initial) by w1",
        "ended: attempt 1 success",
        "finished: completed",
    ]


@scenario
async def test_what_operators_did_stands_with_their_names(lab: Lab) -> None:
    key = await lab.create()
    await lab.engine.hold_execution(execution_id=key, reason="wait", actor="ann")
    await lab.after(1)
    await lab.cancel(key)
    lines = await told(lab, key)
    assert "operator: held by ann" in lines
    assert lines[-1] == "finished: cancelled"


@scenario
async def test_a_lost_lease_and_its_recovery_are_told(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.after(TTL_MS + 1)
    await lab.engine.tick()
    lines = await told(lab, claimed.execution_id)
    assert [line for line in lines if line.startswith("lease: ") and "expired" in line]


@scenario
async def test_an_execution_that_is_not_there_has_no_timeline(lab: Lab) -> None:
    gone = (await lab.create())[:-4] + "0000"
    with pytest.raises(NotFound):
        await lab.engine.read_timeline(execution_id=gone)
