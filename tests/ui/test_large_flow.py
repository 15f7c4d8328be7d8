"""A flow of thousands of nodes: what its page reads and sends, on the stores that keep it."""

from __future__ import annotations

import os

import pytest

from flowfabric.server.routes.values import path_id
from tests.support.flows import Graph, edge, node, submit
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import shown
from tests.support.reads import Reads, watched

NODES = int(os.environ.get("FF_FLOW_NODES", "1500"))  # 10,000 in bin/soak
BYTES_MAX = 150 * 1024
ROWS_MAX = 2_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return watched(monkeypatch)


async def wide(lab: Lab) -> Graph:
    """One that lists, thousands that fetch, a tenth as many that merge them, one that ends."""
    pages = [f"page{at}" for at in range(NODES * 9 // 10 - 2)]
    merges = [f"merge{at}" for at in range(NODES // 10)]
    graph = await submit(
        lab,
        [
            node("begin", kind="list"),
            *(node(each, kind="fetch") for each in pages),
            *(node(each, kind="merge") for each in merges),
            node("end", kind="publish"),
        ],
        [
            *(edge("begin", each) for each in pages),
            *(edge(each, merges[at % len(merges)]) for at, each in enumerate(pages)),
            *(edge(each, "end") for each in merges),
        ],
    )
    await graph.complete("begin")
    while await lab.engine.move_due():
        pass
    claims = await lab.claims(limit=3)
    names = {key: name for name, key in graph.ids.items()}
    graph.claimed.update({each.execution_id: each for each in claims})
    await graph.complete(names[claims[0].execution_id])
    await graph.fail(names[claims[1].execution_id])
    return graph


@scenario
async def test_the_page_of_a_large_flow_reads_folds_and_no_members(lab: Lab, reads: Reads) -> None:
    if lab.url.startswith("memory"):
        return  # it has no statements
    graph = await wide(lab)
    failed = next(
        each
        for each in (
            await lab.engine.list_graph_members(flow_id=graph.flow_id, states=["failed"])
        ).items
    )
    desk, path = Desk(lab.engine), f"/ui/flows/{graph.flow_id}"
    pages = {
        # what the address asks for: how many statements at most
        "": 8,
        "?tab=waterfall": 8,
        "?only=failed": 10,
        "?fold=1.fetch&state=waiting": 10,
        "?tab=list": 10,
        f"?node={path_id(failed.execution_id)}": 12,
    }
    await desk.get("/ui/runs")  # what waits for people is counted, and kept for a moment
    for query, most in pages.items():
        reads.take()
        reply = await desk.get(path + query)
        statements, rows = reads.take()
        assert reply.status == 200
        assert len(reply.body) <= BYTES_MAX, (query, len(reply.body))
        assert statements <= most, (query, statements)
        assert rows <= ROWS_MAX, (query, rows)
    page = await shown(desk, f"{path}?only=failed")
    assert failed.node_name in [each.text for each in page.all("b")]
