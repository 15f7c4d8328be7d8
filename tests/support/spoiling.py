"""Rows written behind the engine's back, on any store, and put back as they were."""

from __future__ import annotations

from typing import Any, NamedTuple

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.model.flow import EdgeState, GroupState, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import replace
from flowfabric.stores.base import Changes, RowChanges, Transaction
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS, Table
from tests.support.lab import Lab

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
    "successes of a group": Spoilt(MEMBERS, {"succeeded": 2}, "succeeded is 2"),
    "losses of a group": Spoilt(MEMBERS, {"skipped": 1}, "skipped is 1"),
    "edges of a group": Spoilt(MEMBERS, {"total": 7}, "total is 7"),
    "staged edges": Spoilt(MEMBERS, {"staged": 7}, "staged is 7"),
    "open children": Spoilt(MEMBERS, {"open_children": 7}, "open_children is 7"),
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

    await lab.direct.transact(work)


async def change(lab: Lab, table: Table[Any], **fields: Any) -> None:
    """Every row of a table, behind the engine's back."""
    changed = RowChanges()
    changed.updated += [replace(row, **fields) for row in (await lab.dump())[table.name]]
    changed.fields.update(fields)
    await write(lab, table, changed)


async def drop(lab: Lab, table: Table[Any]) -> None:
    """Every row of a table, behind the engine's back."""
    changed = RowChanges()
    changed.deleted += [table.key_of(row) for row in (await lab.dump())[table.name]]
    await write(lab, table, changed)
