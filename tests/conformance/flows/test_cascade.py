"""Cascades: at once while they are small, by durable tasks when they are large, once in any case.

After a crash the next pass of the loop does the rest, and nothing is done twice.
"""

from __future__ import annotations

import asyncio

import pytest

from flowfabric.assemble import open_engine
from flowfabric.engine.unit.flows.joins import Joins
from flowfabric.limits import CASCADE_MAX
from flowfabric.model.flow import (
    AllSucceeded,
    AnySucceeded,
    FlowState,
    OnSatisfied,
    Quorum,
    TaskKind,
)
from flowfabric.model.flow_results import CascadeOutcome, DependencyResolved
from flowfabric.model.state import PublicState
from tests.support.flows import Graph, arrows, edge, fan_in, node, pump, submit, woven
from tests.support.lab import Lab

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN
MANY = 2 * CASCADE_MAX + 500


async def fan_out(lab: Lab, size: int) -> Graph:
    """`a` leads to `l0` … on a lane of their own."""
    leaves = [f"l{at}" for at in range(size)]
    nodes = [node("a"), *(node(leaf, lane_id="leaves") for leaf in leaves)]
    return await submit(lab, nodes, [edge("a", leaf) for leaf in leaves])


@woven
async def test_a_wide_fan_out_goes_on_by_durable_tasks(lab: Lab) -> None:
    graph = await fan_out(lab, MANY)
    await graph.complete("a")
    (task,) = await graph.tasks()
    assert (task.kind, task.execution_id) == (TaskKind.CASCADE, graph.ids["a"])
    counts = (await graph.snapshot()).members
    assert counts[PublicState.WAITING] == CASCADE_MAX
    assert await pump(lab) == 2
    assert await graph.tasks() == []
    assert (await graph.snapshot()).members == {
        PublicState.COMPLETED: 1,
        PublicState.WAITING: MANY,
    }


@woven
async def test_a_wide_failure_skips_everybody(lab: Lab) -> None:
    graph = await fan_out(lab, MANY)
    await graph.fail("a")
    assert await graph.flow_state() is not FlowState.FAILED
    await pump(lab)
    assert (await graph.row()).skipped_count == MANY
    assert await graph.events() == ["failed"]


@woven
async def test_each_chunk_is_idempotent(lab: Lab) -> None:
    """A cascade asked for by hand in between takes a chunk; the task finds what is left."""
    graph = await fan_out(lab, MANY)
    await graph.complete("a")
    by_hand = await lab.engine.cascade_completion(execution_id=graph.ids["a"])
    assert by_hand == CascadeOutcome(CASCADE_MAX, CASCADE_MAX, False)
    await pump(lab)
    assert (await graph.snapshot()).members[PublicState.WAITING] == MANY
    async with lab.unchanged():
        again = await lab.engine.cascade_completion(execution_id=graph.ids["a"])
    assert again == CascadeOutcome(0, 0, True)


@woven
async def test_a_chunk_takes_from_the_lane_only_what_is_free(lab: Lab) -> None:
    """Leaves of the first chunk run and end before the second is set free."""
    graph = await fan_out(lab, MANY)
    await graph.complete("a")
    first = await lab.claims(lanes=("leaves",), limit=1000)
    assert len(first) == CASCADE_MAX
    await asyncio.gather(*(lab.engine.complete(each.handle) for each in first))
    await pump(lab)
    assert (await graph.row()).completed_count == CASCADE_MAX + 1
    assert len(await lab.claims(lanes=("leaves",), limit=1000)) == CASCADE_MAX


@woven
async def test_a_wide_race_cancels_every_sibling(lab: Lab) -> None:
    """D-14b: no sibling is dropped when there are more than a transaction takes."""
    graph = await fan_in(lab, MANY, AnySucceeded(CANCEL))
    await graph.complete("s0")
    assert await graph.state("d") == "waiting"
    await pump(lab)
    assert (await graph.row()).cancelled_count == MANY - 1
    assert await graph.counts("d") == (MANY, 1, MANY - 1, 0)
    assert await graph.tasks() == []


@woven
async def test_a_wide_fan_in_fires_once(lab: Lab) -> None:
    graph = await fan_in(lab, 1500, AllSucceeded())
    for _ in range(2):
        claimed = await lab.claims(limit=1000)
        await asyncio.gather(*(lab.engine.complete(each.handle) for each in claimed))
    await pump(lab)
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (1500, 1500, 0, 0)


# --- after a crash -----------------------------------------------------------------------------


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if the process died after a member's end had committed: every cascade is still owed."""
    monkeypatch.setattr(Joins, "remaining", 0)
    return monkeypatch


@woven
async def test_a_crash_between_the_end_and_its_hops_loses_nothing(
    lab: Lab, stalled: pytest.MonkeyPatch
) -> None:
    """The claim of a cascade is not its end."""
    graph = await submit(lab, "abc", arrows("a>b", "a>c"))
    await graph.complete("a")
    assert await graph.edge_states() == {"a>b": "applied", "a>c": "applied"}
    (task,) = await graph.tasks()
    assert task.kind is TaskKind.CASCADE
    stalled.undo()
    await pump(lab)
    assert await graph.state("b") == await graph.state("c") == "waiting"
    assert await graph.tasks() == []


@woven
async def test_d46_resolving_by_hand_tells_what_it_did(
    lab: Lab, stalled: pytest.MonkeyPatch
) -> None:
    """Pending, satisfied, already_fired and already_resolved are all answers."""
    graph = await fan_in(lab, 4, Quorum(2, LET_RUN))
    await graph.start()
    await graph.complete("s0", "s1", "s2")
    stalled.undo()
    rows = await graph.edges()

    async def resolve(name: str) -> DependencyResolved:
        path = f"{name}>d"
        edge_id = rows[path].edge_id
        return await lab.engine.resolve_dependency(edge_id=edge_id, **graph.ends(path))

    assert await resolve("s0") == DependencyResolved("pending")
    assert await resolve("s1") == DependencyResolved("satisfied")
    assert await resolve("s2") == DependencyResolved("already_fired")
    for name in ("s0", "s1", "s2"):
        assert await resolve(name) == DependencyResolved("already_resolved")
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (4, 3, 0, 0)
    await pump(lab)
    assert await graph.counts("d") == (4, 3, 0, 0)


@woven
async def test_resolving_by_hand_skips_and_injects(lab: Lab, stalled: pytest.MonkeyPatch) -> None:
    graph = await submit(
        lab, "abcd", [*arrows("a>b", passes_result=True), *arrows("c>d")], flow_kind="pair"
    )
    await graph.complete("a", result=b"1")
    await graph.fail("c")
    stalled.undo()
    rows = await graph.edges()
    resolve = lab.engine.resolve_dependency
    passed = await resolve(edge_id=rows["a>b"].edge_id, **graph.ends("a>b"))
    assert passed == DependencyResolved("satisfied", data_injected=True)
    lost = await resolve(edge_id=rows["c>d"].edge_id, **graph.ends("c>d"))
    assert lost == DependencyResolved("impossible", child_skipped=True)
    await pump(lab)


@woven
async def test_d06_an_upstream_that_lives_again_decides_nothing(
    lab: Lab, stalled: pytest.MonkeyPatch
) -> None:
    """A cascade that comes late meets the next life of its upstream, and leaves the children."""
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.fail("a")
    await lab.engine.replay_execution(execution_id=graph.ids["a"])
    stalled.undo()
    await pump(lab)
    assert await graph.state("b") == "waiting_children"
    assert await graph.edge_states() == {"a>b": "applied"}
    await graph.complete("a")
    assert await graph.state("b") == "waiting"


@woven
async def test_scenario_15_a_chain_of_skips_drains_hop_by_hop(
    lab: Lab, stalled: pytest.MonkeyPatch
) -> None:
    graph = await submit(lab, "abcd", arrows("a>b>c>d"))
    await graph.fail("a")
    stalled.setattr(Joins, "remaining", 1)  # one edge in each transaction
    assert await pump(lab) == 4  # the last finds that nothing follows
    assert [await graph.state(name) for name in "bcd"] == ["skipped"] * 3
    assert await pump(lab) == 0


@woven
async def test_scenario_13_two_loops_share_the_work(lab: Lab) -> None:
    """Two engines on one store: what one does the other finds done."""
    if lab.url.startswith("memory"):
        return  # each engine has a memory of its own
    graph = await fan_out(lab, MANY)
    race = await fan_in(lab, 40, AnySucceeded(CANCEL))
    await graph.complete("a")
    await race.start()
    await race.complete("s0")
    other = open_engine(lab.url, config=lab.config, clock=lab.clock)
    await other.start()
    try:
        for _ in range(20):
            await asyncio.gather(lab.engine.move_due(), other.move_due())
            lab.clock.advance(50)
    finally:
        await other.close()
    assert await graph.tasks() == await race.tasks() == []
    assert (await graph.snapshot()).members[PublicState.WAITING] == MANY
    assert (await race.row()).cancelled_count == 39


@woven
async def test_two_upstreams_that_end_at_once_in_two_engines_fire_the_child_once(lab: Lab) -> None:
    """On every store, concurrent ends meet at the flow's row."""
    if lab.url.startswith("memory"):
        return
    graphs = [await fan_in(lab, 2, AllSucceeded()) for _ in range(15)]
    for graph in graphs:
        await graph.start()
    held = {key: each for graph in graphs for key, each in graph.claimed.items()}
    other = open_engine(lab.url, config=lab.config, clock=lab.clock)
    await other.start()
    try:
        await asyncio.gather(
            *(lab.engine.complete(held[graph.ids["s0"]].handle) for graph in graphs),
            *(other.complete(held[graph.ids["s1"]].handle) for graph in graphs),
        )
    finally:
        await other.close()
    for graph in graphs:
        lab.clock.advance(30)
        await pump(lab)
        assert await graph.counts("d") == (2, 2, 0, 0)
        assert await graph.state("d") == "waiting"
