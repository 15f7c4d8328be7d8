"""Doctor compares the counters of flows with their rows, and finds who waits for nobody."""

from __future__ import annotations

from typing import Any, NamedTuple

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.model.flow import EdgeState, GroupState, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import replace
from flowfabric.stores.base import Changes, RowChanges, Transaction
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS, Table
from tests.support.lab import Lab, scenario

NOBODY = "{fp:1}:01890000-0000-7000-8000-000000000001"


class Spoilt(NamedTuple):
    """Rows written behind the engine's back, and a word of what doctor says about them."""

    table: Table[Any]
    fields: dict[str, Any] | None  # none: they are deleted
    word: str


SPOIL = {
    "ends of members": Spoilt(FLOWS, {"completed_count": 5}, "completed_count"),
    "members of the flow": Spoilt(FLOWS, {"node_count": 7}, "node_count"),
    "edges of the flow": Spoilt(FLOWS, {"edge_count": 7}, "edge_count"),
    "children of the flow": Spoilt(FLOWS, {"child_count": 7}, "child_count"),
    "the flow's end": Spoilt(FLOWS, {"finished_at": 1}, "members left"),
    "successes of a group": Spoilt(MEMBERS, {"succeeded": 2}, "2 succeeded"),
    "losses of a group": Spoilt(MEMBERS, {"skipped": 1}, "1 failed and skipped"),
    "edges of a group": Spoilt(MEMBERS, {"total": 7}, "7 total"),
    "staged edges": Spoilt(MEMBERS, {"staged": 7}, "7 staged"),
    "open children": Spoilt(MEMBERS, {"open_children": 7}, "7 open children"),
    "the state of a group": Spoilt(
        MEMBERS, {"group_state": GroupState.PENDING}, "its edges have decided it"
    ),
    "a group that lets go": Spoilt(
        MEMBERS, {"group_state": GroupState.SATISFIED}, "there are none"
    ),
    "resolved edges": Spoilt(
        EDGES,
        {"edge_state": EdgeState.APPLIED, "resolved_generation": None},
        "no task will count it",
    ),
    "the ends of edges": Spoilt(EDGES, {"upstream_execution_id": NOBODY}, "is not a member"),
    "tasks": Spoilt(FLOW_TASKS, {"due_at": 1}, "due at 1"),
    "lost edges": Spoilt(EDGES, None, "edge_count"),
    "lost members": Spoilt(MEMBERS, None, "is no member of its flow"),
    "a lost flow": Spoilt(FLOWS, None, "belongs to no flow"),
}


async def busy(lab: Lab) -> FlowSubmitted:
    """One of three has succeeded, which was enough; another is at work for one who is blocked."""
    joins = {**dict.fromkeys("abcr"), "any": Quorum(1, OnSatisfied.CANCEL_REMAINING), "both": None}
    nodes = [
        FlowNode(name=name, execution=NewExecution(execution_kind="k"), join=join)
        for name, join in joins.items()
    ]
    edges = [FlowEdge(upstream=root, downstream="any") for root in "abc"]
    edges += [FlowEdge(upstream=root, downstream="both") for root in "ar"]
    made = await lab.engine.submit_flow(nodes=nodes, edges=edges)
    assert isinstance(made, FlowSubmitted)
    claimed = {each.execution_id: each for each in await lab.claims(limit=4)}
    await lab.engine.complete(claimed[made.execution_ids["a"]].handle)
    return made


def spoiling(table: Table[Any], fields: dict[str, Any] | None, rows: list[Any]) -> RowChanges:
    """Every row changed, or all of them deleted; of members only those with a group."""
    change = RowChanges()
    if fields is None:
        change.deleted += [table.key_of(row) for row in rows]
    else:
        change.updated += [replace(row, **fields) for row in rows if getattr(row, "total", 1)]
        change.fields.update(fields)
    return change


def healing(table: Table[Any], fields: dict[str, Any] | None, rows: list[Any]) -> RowChanges:
    """The rows as they were."""
    change = RowChanges()
    if fields is None:
        change.inserted += rows
    else:
        change.updated += rows
        change.fields.update(fields)
    return change


async def write(lab: Lab, table: Table[Any], change: RowChanges) -> None:
    """Behind the engine's back, on any store."""

    async def work(tx: Transaction) -> None:
        changes = Changes()
        changes.rows = {table: change}
        await tx.save(changes)

    await lab.engine.transact(work)


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
