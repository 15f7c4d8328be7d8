"""kill -9 at each point of a cascade, and at random while many flows run.

Whatever was left is done by whoever looks next: every member ends once, no event is published
twice, and the flow's state is right. FF_CHAOS_KILLS=200 at night.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.model.flow import EdgePolicy, FlowState, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.stores.tables import EDGES, FLOW_TASKS, FLOWS
from tests.chaos.processes import PATIENCE_S, crew
from tests.chaos.test_workers_die import kill_many
from tests.chaos.verdict import Dump, check_acknowledged, check_store
from tests.property.budget import budget
from tests.property.flow_checks import check_ends, check_flows

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

PROCESS = "tests.chaos.flow_process"
WIDE = 3_000  # edges that leave one execution: three transactions' worth
SIBLINGS = 60
FLOWS_AT_ONCE = 200
KILLS = budget("FF_CHAOS_KILLS", 8)


@pytest.fixture(params=("sqlite", "postgres"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'chaos.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as each:
        yield each


def open_quiet(url: str, runner: asyncio.Runner) -> Engine:
    engine = open_engine(url, config=EngineConfig(loops=False, pool_size=2))
    runner.run(engine.start(migrate=True))
    return engine


def node(name: str, join: EdgePolicy | None = None) -> FlowNode:
    return FlowNode(name=name, execution=NewExecution(execution_kind="k"), join=join)


def edge(upstream: str, downstream: str) -> FlowEdge:
    return FlowEdge(upstream=upstream, downstream=downstream)


def wide() -> dict[str, Any]:
    names = [f"leaf{number}" for number in range(WIDE)]
    return {"nodes": [node("root"), *map(node, names)], "edges": [edge("root", n) for n in names]}


def siblings() -> dict[str, Any]:
    names = [f"sibling{number}" for number in range(SIBLINGS)]
    join = Quorum(1, OnSatisfied.CANCEL_REMAINING)
    return {
        "nodes": [*map(node, names), node("winner", join)],
        "edges": [edge(name, "winner") for name in names],
    }


class Crash(NamedTuple):
    """What is built, where its worker dies, and how much of it must be done by then."""

    graph: Any
    point: str
    resolved: int  # edges that were resolved in what had committed
    owed: int
    states: dict[str, int]  # in the end


COMPLETED = {"completed": WIDE + 1}
ONE_WINS = {"completed": 2, "cancelled": SIBLINGS - 1}
CRASHES = {
    "before the end commits": Crash(wide, "before_the_end_commits", 0, 0, COMPLETED),
    "after the end commits, before the rest": Crash(
        wide, "after_the_end_commits", 1_000, 1, COMPLETED
    ),
    "in the middle of the rest": Crash(wide, "in_the_continuation", 1_000, 1, COMPLETED),
    "between two pieces of the rest": Crash(wide, "between_continuations", 2_000, 1, COMPLETED),
    "after a repeated cascade, before its answer": Crash(
        wide, "after_a_repeated_cascade", 2_000, 1, COMPLETED
    ),
    "after members were skipped": Crash(
        # each that was skipped may have others behind it
        wide,
        "after_a_failure_commits",
        1_000,
        1_001,
        {"failed": 1, "skipped": WIDE},
    ),
    "after a group fired, before its siblings are cancelled": Crash(
        siblings, "after_the_end_commits", 1, 1, ONE_WINS
    ),
    "while siblings are cancelled": Crash(siblings, "in_the_sibling_cancel", 1, 1, ONE_WINS),
}


@pytest.mark.parametrize("name", CRASHES)
def test_killed_at_a_named_point(name: str, url: str, runner: asyncio.Runner) -> None:
    crash = CRASHES[name]
    engine = open_quiet(url, runner)
    made = runner.run(engine.submit_flow(**crash.graph()))
    assert isinstance(made, FlowSubmitted)
    with crew(url) as workers:
        worker = workers.hire(crash.point, PROCESS)
        worker.wait_for_end()
        assert worker.heard("claimed"), "it died before it had begun"
        assert not worker.heard("survived"), "it never came to that point"
    dump = runner.run(engine.store.dump())
    assert sum(each.resolved_at is not None for each in dump[EDGES.name]) == crash.resolved
    assert len(dump[FLOW_TASKS.name]) == crash.owed
    check_flows(dump, now_of(dump))  # what committed is whole

    runner.run(take_back(engine, dump))
    runner.run(recover(engine, made))
    dump = runner.run(engine.store.dump())
    check_all(dump, crash.states)
    report = runner.run(engine.doctor())
    runner.run(engine.close())
    assert report.problems == ()
    (flow,) = dump[FLOWS.name]
    whole = set(crash.states) <= {"completed", "cancelled"}  # losers are no loss
    assert flow.public_flow_state is (FlowState.COMPLETED if whole else FlowState.FAILED)


def now_of(dump: Dump) -> int:
    times: list[int] = [each.last_mutation_at for each in dump["executions"]]
    return max(times)


def check_all(dump: Dump, states: dict[str, int]) -> None:
    found: dict[str, int] = {}
    for each in dump["executions"]:
        word = each.public_state.value
        found[word] = found.get(word, 0) + 1
    assert found == states
    check_store(dump)
    check_flows(dump, now_of(dump))
    check_ends(dump)
    assert not dump[FLOW_TASKS.name]


async def take_back(engine: Engine, dump: Dump) -> None:
    """What the dead one held; its lease is too long to be waited for."""
    for each in dump["executions"]:
        if each.is_leased:
            await engine.revoke_lease(execution_id=each.execution_id, reason="its owner is dead")


async def recover(engine: Engine, made: FlowSubmitted) -> None:
    """Somebody else goes on: what is owed, what is lost, what is left."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            moved = await engine.move_due()
            claimed = await engine.claim(
                lanes=("default",), worker_id="heir", worker_instance_id="heir", limit=500
            )
            await engine.complete_many(
                [Complete(handle=each.handle, result=b"1") for each in claimed]
            )
            flow = await engine.describe_flow(flow_id=made.flow_id)
            assert flow is not None
            if flow.finished_at is not None and not moved:
                return
            if not moved and not claimed:
                await asyncio.sleep(0.02)


def graphs() -> Iterator[dict[str, Any]]:
    """Chains and diamonds in turn."""
    for number in range(FLOWS_AT_ONCE):
        pairs = ("ab", "bc", "cd", "de") if number % 2 else ("ab", "ac", "bd", "cd", "de")
        edges = [FlowEdge(upstream=p[0], downstream=p[1], passes_result=True) for p in pairs]
        yield {"nodes": [*map(node, "abcde")], "edges": edges}


async def unfinished(engine: Engine) -> int:
    page = await engine.list_flows(status="active", limit=1)
    return len(page.items)


def test_workers_killed_while_flows_run(url: str, runner: asyncio.Runner) -> None:
    """Each worker lives for a few claims and dies with the last one in its hands."""
    engine = open_quiet(url, runner)

    async def submit() -> None:
        await asyncio.gather(*(engine.submit_flow(**graph) for graph in graphs()))

    runner.run(submit())
    with crew(url) as workers:
        kill_many(workers, KILLS)
        workers.wait_until(lambda: runner.run(unfinished(engine)) == 0, "the rest of the flows")
        done = [(line[0], int(line[1])) for line in workers.lines("done")]
    dump = runner.run(engine.store.dump())
    report = runner.run(engine.doctor())
    runner.run(engine.close())
    check_all(dump, {"completed": 5 * FLOWS_AT_ONCE})
    check_acknowledged(dump, [], done)
    assert {each.public_flow_state for each in dump[FLOWS.name]} == {FlowState.COMPLETED}
    assert len(dump["flow_events"]) == FLOWS_AT_ONCE
    assert report.problems == ()
