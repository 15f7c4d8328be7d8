"""Doctor compares the counters of flows with their rows, and finds who waits for nobody."""

from __future__ import annotations

from tests.support.lab import Lab, scenario
from tests.support.spoiling import SPOIL, busy, healing, spoiling, write


@scenario
async def test_a_busy_flow_is_healthy(lab: Lab) -> None:
    await busy(lab)
    assert (await lab.engine.doctor()).problems == ()
    while await lab.engine.move_due():
        assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_what_is_wrong_with_a_flow_is_found(lab: Lab) -> None:
    await busy(lab)
    for what, (table, fields, word) in SPOIL.items():
        rows = (await lab.dump())[table.name]
        await write(lab, table, spoiling(table, fields, rows))
        problems = (await lab.engine.doctor()).problems
        codes = {each.code for each in problems}
        assert codes - {"overdue", "loops"} == {"flows"}, what  # an old task is overdue as well
        assert [each for each in problems if word in each.detail], (what, problems)
        await write(lab, table, healing(table, fields, rows))
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_an_acknowledgement_of_what_was_not_done_is_not_believed(lab: Lab) -> None:
    made = await busy(lab)
    await lab.engine.cancel_flow_header(flow_id=made.flow_id, grace_ms=500)
    for key in made.execution_ids.values():
        await lab.engine.ack_cancel_member(flow_id=made.flow_id, execution_id=key)
    assert (await lab.engine.doctor()).problems == ()
    await lab.after(500)
    told = await lab.engine.project_flow_summary(flow_id=made.flow_id)
    assert all(state.is_terminal for state in told.members)
    assert (await lab.engine.doctor()).problems == ()


def test_who_is_paused_and_forgotten_is_found(durable_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        made = await busy(lab)
        await lab.engine.cancel_flow_header(flow_id=made.flow_id)
        assert (await lab.engine.doctor()).problems == ()
        await lab.sql("DELETE FROM ff_flow_task")
        problems = (await lab.engine.doctor()).problems
        assert [each for each in problems if "no task will cancel it" in each.detail]

    durable_lab.run(story(durable_lab))


def test_a_row_nobody_can_read_is_named(durable_lab: Lab) -> None:
    async def story(lab: Lab) -> None:
        await busy(lab)
        await lab.sql("UPDATE ff_flow_member SET policy = '[1]'")
        problems = (await lab.engine.doctor()).problems
        told = [each for each in problems if each.code == "corrupt"]
        assert told
        assert all(each.subject.startswith("ff_flow_member ") for each in told)

    durable_lab.run(story(durable_lab))
