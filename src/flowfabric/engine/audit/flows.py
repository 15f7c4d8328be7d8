"""The audit of flows behind `ff doctor`: counters against rows, and members that wait for
nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowfabric.engine.unit.corrupt import readable
from flowfabric.errors import Corruption
from flowfabric.kernel.flow.recount import GraphRows, findings
from flowfabric.limits import PAGE_MAX
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS, MEMBERS, AnyTable, Key

FLOWS_AT_ONCE = 50
Defect = tuple[str, str]  # the row, and what is wrong with it


async def audit_flows(reader: Reader) -> list[Defect]:
    """Wrong counters, members that nothing will move, rows that belong to no flow.

    Rows that cannot be decoded are reported elsewhere.
    """
    await reader.catalog()  # also reads the clock
    problems: list[Defect] = []
    after: Key | None = None
    while page := await _page(reader, FLOWS, after, FLOWS_AT_ONCE):
        for graph in await graphs_of(reader, page):
            problems += [(each.subject, each.detail) for each in findings(graph, reader.now)]
        after = FLOWS.key_of(page[-1])
    for table in (MEMBERS, EDGES, FLOW_TASKS):
        problems += await _orphans(reader, table)
    return problems


async def graphs_of(reader: Reader, flows: list[FlowRow]) -> list[GraphRows]:
    """Flows with all their rows; one with a row that cannot be decoded is left out."""
    try:
        return await _graphs(reader, flows)
    except Corruption:  # one by one
        return [graph for flow in flows for graph in await _graph(reader, flow)]


async def _page(reader: Reader, table: AnyTable, after: Key | None, limit: int) -> list[Any]:
    search: Search[Any] = Search(by_key(table), after=after, limit=limit, skips_corrupt=True)
    return await reader.search(search)


async def _graph(reader: Reader, flow: FlowRow) -> list[GraphRows]:
    try:
        return await _graphs(reader, [flow])
    except Corruption:
        return []


async def strays(reader: Reader, executions: Iterable[Execution]) -> list[Defect]:
    """Executions that name a flow in which they have no row."""
    said = [
        (each.flow_id, each.execution_id)
        for each in executions
        if each.flow_id is not None and each.purge_at is None
    ]
    known, spoiled = await readable(reader.peek_rows, MEMBERS, said)
    lost = [key for key in said if key not in known and key not in spoiled]
    return [(key[1], f"is no member of its flow {key[0]}") for key in lost]


async def _orphans(reader: Reader, table: AnyTable) -> list[Defect]:
    problems: list[Defect] = []
    after: Key | None = None
    while page := await _page(reader, table, after, PAGE_MAX):
        named = sorted({(row.flow_id,) for row in page})
        known, spoiled = await readable(reader.peek_rows, FLOWS, named)
        lost = (row for row in page if (row.flow_id,) not in {**known, **spoiled})
        problems += [(table.name, f"{table.key_of(row)} belongs to no flow") for row in lost]
        after = table.key_of(page[-1])
    return problems


async def _graphs(reader: Reader, flows: list[FlowRow]) -> list[GraphRows]:
    keys = [(flow.flow_id,) for flow in flows]
    members = await reader.peek_rows(MEMBERS, keys)
    edges = await reader.peek_rows(EDGES, keys)
    tasks = await reader.peek_rows(FLOW_TASKS, keys)
    found = await reader.get(sorted({key[1] for key in members}))
    executions = {key: each for key, each in found.items() if isinstance(each, Execution)}
    return [
        GraphRows(
            flow,
            _of(flow, members.values()),
            _of(flow, edges.values()),
            _of(flow, tasks.values()),
            executions,
        )
        for flow in flows
    ]


def _of(flow: FlowRow, rows: Iterable[Any]) -> list[Any]:
    return [row for row in rows if row.flow_id == flow.flow_id]
