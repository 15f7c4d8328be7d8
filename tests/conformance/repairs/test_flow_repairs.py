"""Flows with rows written by hand are set right, as far as their rows prove what is right."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.event import OperatorEventType
from flowfabric.model.flow import GroupState, TaskKind
from flowfabric.model.record import replace
from flowfabric.model.repair import Correction, Repaired
from flowfabric.model.state import PublicState
from flowfabric.stores.base import RowChanges
from flowfabric.stores.tables import FLOW_TASKS, FLOWS, MEMBERS
from tests.support.lab import Lab, scenario
from tests.support.spoiling import SPOIL, busy, spoiling, write

# What rows alone do not prove: which edges and members there were, and when work was due.
UNPROVEN = ("the ends of edges", "tasks", "lost edges", "lost members", "a lost flow")
PROVEN = [what for what in SPOIL if what not in UNPROVEN]


async def repaired(lab: Lab, **fields: Any) -> Repaired:
    return await lab.engine.reconcile_flow_counters(**fields)


async def spoil(lab: Lab, what: str) -> None:
    table, fields, _ = SPOIL[what]
    rows = (await lab.dump())[table.name]
    await write(lab, table, spoiling(table, fields, rows))


@pytest.mark.parametrize("what", PROVEN)
@scenario
async def test_what_doctor_finds_is_repaired(lab: Lab, what: str) -> None:
    made = await busy(lab)
    await spoil(lab, what)
    assert (await lab.engine.doctor()).problems
    done = await repaired(lab)
    assert done.corrections
    assert done.unproven == ()
    assert (await lab.engine.doctor()).problems == ()
    async with lab.unchanged():
        assert await repaired(lab) == Repaired(1)
    events = await lab.operator_events(made.flow_id)
    (event,) = [e for e in events if e.event_type is OperatorEventType.COUNTERS_REPAIRED]
    assert event.details["count"] == len(done.corrections)
    kept = {(each["counter"], each["was"], each["is"]) for each in event.details["corrections"]}
    assert kept == {(each.counter, each.before, each.after) for each in done.corrections}


@scenario
async def test_a_repaired_flow_goes_on_to_its_end(lab: Lab) -> None:
    made = await busy(lab)
    for what in ("ends of members", "successes of a group", "open children", "resolved edges"):
        await spoil(lab, what)
        assert (await repaired(lab, flow_id=made.flow_id)).corrections
    while await lab.engine.move_due():
        pass
    assert await lab.state(made.execution_ids["b"]) is PublicState.CANCELLED
    claimed = await lab.claims(limit=9)
    for each in claimed:
        await lab.engine.complete(each.handle)
    await lab.cancel(made.execution_ids["r"])
    told = await lab.engine.describe_flow(flow_id=made.flow_id)
    assert told is not None
    assert told.public_flow_state.is_terminal
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_the_reply_says_what_was_and_what_is(lab: Lab) -> None:
    made = await busy(lab)
    await spoil(lab, "members of the flow")
    done = await repaired(lab)
    assert done == Repaired(1, (Correction(f"flow {made.flow_id}", "node_count", 7, 6),))


@scenario
async def test_what_cannot_be_proven_is_named_and_left(lab: Lab) -> None:
    await busy(lab)
    await spoil(lab, "the ends of edges")
    async with lab.unchanged():
        done = await repaired(lab)
    assert done.corrections == ()
    assert {each.detail.partition(" ")[2] for each in done.unproven} >= {
        "is not a member of its flow"
    }


@scenario
async def test_lost_cancels_of_siblings_are_deferred_again(lab: Lab) -> None:
    made = await busy(lab)
    keys = [FLOW_TASKS.key_of(row) for row in (await lab.dump())[FLOW_TASKS.name]]
    assert [key[1] for key in keys] == [TaskKind.CANCEL_SIBLINGS]
    change = RowChanges()
    change.deleted += keys
    await write(lab, FLOW_TASKS, change)
    (problem,) = (await lab.engine.doctor()).problems
    assert "no task will cancel" in problem.detail
    done = await repaired(lab)
    assert [each.counter for each in done.corrections] == ["deferred cancel_siblings"]
    await lab.engine.move_due()
    assert await lab.state(made.execution_ids["b"]) is PublicState.CANCELLED


@scenario
async def test_a_parent_that_counts_too_many_children_is_woken(lab: Lab) -> None:
    parent = await lab.started()
    await lab.engine.spawn_children(parent.handle, [NewExecution(execution_kind="child")])
    await lab.engine.wait_children(parent.handle)
    child = await lab.claim("w2")
    rows = [each for each in (await lab.dump())[MEMBERS.name] if not each.parent_id]
    change = RowChanges()
    change.updated += [replace(each, open_children=2) for each in rows]
    change.fields.add("open_children")
    await write(lab, MEMBERS, change)
    await lab.engine.complete(child.handle)
    assert await lab.state(parent.execution_id) is PublicState.WAITING_CHILDREN
    done = await repaired(lab)
    assert {each.counter for each in done.corrections} == {"open_children", "released"}
    assert (await lab.claim("w1")).execution_id == parent.execution_id
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_flows_are_repaired_page_by_page(lab: Lab) -> None:
    for _ in range(3):
        await busy(lab)
    await spoil(lab, "edges of the flow")
    cursor, looked, found = None, 0, 0
    while True:
        page = await repaired(lab, cursor=cursor, limit=2)
        looked += page.looked_at
        found += len(page.corrections)
        if (cursor := page.next_cursor) is None:
            break
    assert (looked, found) == (3, 3)
    assert {row.edge_count for row in (await lab.dump())[FLOWS.name]} == {5}


@scenario
async def test_many_members_are_set_right_in_several_transactions(
    lab: Lab, monkeypatch: Any
) -> None:
    monkeypatch.setattr("flowfabric.limits.CASCADE_MAX", 1)
    await busy(lab)
    await spoil(lab, "edges of a group")
    done = await repaired(lab)
    assert [each.counter for each in done.corrections] == ["total", "total"]
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_work_that_goes_on_meanwhile_is_not_disturbed(lab: Lab) -> None:
    """A flow without defects is not locked, and nothing of it is written."""
    made = await busy(lab)
    async with lab.unchanged():
        assert await repaired(lab) == Repaired(1)
    (row,) = [r for r in (await lab.dump())[MEMBERS.name] if r.group_state is GroupState.SATISFIED]
    assert row.execution_id == made.execution_ids["any"]


@pytest.mark.parametrize(
    ("fields", "error", "word"),
    [
        ({"flow_id": "x"}, InvalidInput, "flow_id"),
        ({"flow_id": new_uuid7s(1)[0]}, NotFound, "flow"),
        ({"limit": 0}, InvalidInput, "limit"),
        ({"limit": 1001}, InvalidInput, "limit"),
        ({"cursor": "x"}, InvalidCursor, "cursor"),
        ({"actor": ""}, InvalidInput, "actor"),
    ],
)
@scenario
async def test_bad_input_is_refused(
    lab: Lab, fields: dict[str, Any], error: Any, word: str
) -> None:
    await busy(lab)
    async with lab.refuses(error, word):
        await repaired(lab, **fields)
