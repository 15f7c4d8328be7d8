"""Priority: clamped, ordered, changeable while it waits."""

from __future__ import annotations

import pytest

from flowfabric.errors import ExecutionNotEligible, InvalidInput
from flowfabric.model.results import PriorityChanged
from tests.support.lab import Lab, scenario


@pytest.mark.parametrize(
    ("given", "stored"), [(-5, 0), (0, 0), (1, 1), (9000, 9000), (9001, 9000), (None, 0)]
)
@scenario
async def test_a_priority_is_clamped_everywhere(lab: Lab, given: int | None, stored: int) -> None:
    execution_id = await lab.create(priority=given)
    assert (await lab.describe(execution_id)).priority == stored
    if given is not None:
        other = await lab.create(priority=5)
        answer = await lab.engine.change_priority(execution_id=other, new_priority=given)
        assert answer == PriorityChanged(other, 5, stored)


@pytest.mark.parametrize("wrong", ["9", 1.5, True, 2**40])
@scenario
async def test_a_priority_is_a_whole_number(lab: Lab, wrong: object) -> None:
    async with lab.refuses(InvalidInput, field="priority"):
        await lab.create(priority=wrong)


@scenario
async def test_higher_goes_first_and_older_among_equals(lab: Lab) -> None:
    old_low = await lab.create(priority=1)
    lab.clock.advance(10)
    old_high = await lab.create(priority=5)
    lab.clock.advance(10)
    new_high = await lab.create(priority=5)
    new_low = await lab.create(priority=1)
    order = [claimed.execution_id for claimed in await lab.claims(limit=10)]
    assert order == [old_high, new_high, old_low, new_low]


@scenario
async def test_changing_a_priority_changes_the_order(lab: Lab) -> None:
    """Audited."""
    first = await lab.create(priority=5)
    second = await lab.create(priority=4)
    await lab.engine.change_priority(execution_id=second, new_priority=6)
    (event,) = await lab.operator_events(second)
    assert event.event_type == "priority_changed"
    assert event.details == {"old_priority": 4, "new_priority": 6}
    assert (await lab.claim()).execution_id == second
    assert (await lab.claim()).execution_id == first


@scenario
async def test_a_priority_changes_in_every_runnable_state(lab: Lab) -> None:
    """Stored for later when it is delayed or held."""
    delayed = await lab.create(delay_until=lab.now + 100)
    held = await lab.create()
    await lab.engine.hold_execution(execution_id=held)
    for execution_id in (delayed, held):
        await lab.engine.change_priority(execution_id=execution_id, new_priority=77)
    await lab.create(priority=50)
    await lab.engine.release_execution(execution_id=held)
    assert (await lab.claim()).execution_id == held
    await lab.after(100)
    assert (await lab.claim()).execution_id == delayed


@scenario
async def test_a_priority_of_what_runs_or_ended_is_refused(lab: Lab) -> None:
    running = (await lab.started()).execution_id
    finished = await lab.completed(lane_id="b")
    for execution_id in (running, finished):
        async with lab.refuses(ExecutionNotEligible):
            await lab.engine.change_priority(execution_id=execution_id, new_priority=1)
