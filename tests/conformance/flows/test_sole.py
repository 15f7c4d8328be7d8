"""Members that wait for one success alone: their edge says for their group that it is met."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.engine.unit.flows.locks import Locks
from flowfabric.errors import DependencyGroupDecided
from flowfabric.model.execution import Execution
from flowfabric.model.flow import GroupState
from tests.support.flows import arrows, node, submit, woven
from tests.support.lab import Lab

CHILD = NewExecution(execution_kind="work", lane_id="k")


def hold(monkeypatch: pytest.MonkeyPatch, execution_id: str) -> None:
    """As if another transaction had it."""
    free = Locks.load_unlocked

    async def held(self: Locks, ids: Iterable[str]) -> dict[str, Execution | None]:
        return {key: each for key, each in (await free(self, ids)).items() if key != execution_id}

    monkeypatch.setattr(Locks, "load_unlocked", held)


@woven
async def test_the_group_is_told_as_any_other(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    assert (await graph.group("b")).group_state is GroupState.PENDING
    await lab.after(5)
    await graph.complete("a")
    group = await graph.group("b")
    assert (group.group_state, group.satisfied_at) == (GroupState.SATISFIED, lab.now)
    assert await graph.counts("b") == (1, 1, 0, 0)
    eligible = await lab.engine.evaluate_flow_eligibility(execution_id=graph.ids["b"])
    assert eligible.status == "eligible"
    assert not (await lab.engine.doctor()).problems


@woven
async def test_a_second_edge_is_waited_for(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b"))
    await graph.link("c>b")
    await graph.complete("a")
    assert await graph.state("b") == "waiting_children"
    assert await graph.counts("b") == (2, 1, 0, 0)
    await graph.complete("c")
    assert await graph.state("b") == "waiting"
    assert await graph.counts("b") == (2, 2, 0, 0)


@woven
async def test_a_second_edge_comes_too_late_once_the_first_is_met(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b"))
    await graph.complete("a")
    assert await graph.state("b") == "waiting"
    with pytest.raises(DependencyGroupDecided):
        await graph.stage("c>b")


@woven
async def test_what_was_skipped_is_met_in_another_life(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b", "b>c"))
    await graph.fail("a")
    assert await graph.states() == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert await graph.counts("b") == (1, 0, 1, 0)
    assert await graph.counts("c") == (1, 0, 0, 1)
    await lab.engine.replay_execution(execution_id=graph.ids["a"], cascade=True)
    assert await graph.counts("b") == (1, 0, 0, 0)
    for name in "abc":
        await graph.complete(name)
    assert await graph.states() == dict.fromkeys("abc", "completed")
    assert await graph.counts("c") == (1, 1, 0, 0)
    assert not (await lab.engine.doctor()).problems


@woven
async def test_one_who_was_cancelled_meanwhile_finds_it_met(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.cancel("b")
    await graph.complete("a")
    assert await graph.counts("b") == (1, 1, 0, 0)
    await lab.engine.replay_execution(execution_id=graph.ids["b"])
    assert await graph.state("b") == "waiting"


@pytest.mark.parametrize("paths", [("a>b",), ("a>b", "a>c"), ("a>b", "a>c", "d>c")])
@woven
async def test_one_whom_somebody_holds_is_set_free_a_little_later(
    lab: Lab, paths: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it waits for one alone, beside another who does, or beside a group."""
    graph = await submit(lab, "abcd", arrows(*paths))
    await graph.start("a")
    hold(monkeypatch, graph.ids["b"])
    await graph.complete("a")
    assert await graph.state("b") == "waiting_children"
    assert (await graph.edge_states())["a>b"] == "applied"
    monkeypatch.undo()
    await lab.after(1_000)
    assert await graph.state("b") == "waiting"
    assert not await graph.tasks()


@woven
async def test_a_parent_who_was_set_free_by_one_keeps_its_count(lab: Lab) -> None:
    """Its row is written for another reason, together with a group that is opened again."""
    graph = await submit(lab, ["a", node("y", lane_id="y")], arrows("a>y"))
    other = await submit(lab, "fx", arrows("f>x"))
    await graph.complete("a")
    await other.fail("f")
    parent = await lab.claim(lanes=("y",))
    await lab.engine.spawn_children(parent.handle, children=[CHILD])
    child = await lab.claim(lanes=("k",))
    await asyncio.gather(  # in one commit
        lab.engine.complete(child.handle),
        lab.engine.replay_execution(execution_id=other.ids["x"]),
    )
    assert await graph.counts("y") == (1, 1, 0, 0)
    assert not (await lab.engine.doctor()).problems


@woven
async def test_why_a_parent_waits_whose_children_have_ended(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds it for the moment."""
    graph = await submit(lab, ["a", node("y", lane_id="y")], arrows("a>y"))
    await graph.complete("a")
    parent = await lab.claim(lanes=("y",))
    await lab.engine.spawn_children(parent.handle, children=[CHILD])
    child = await lab.claim(lanes=("k",))
    await lab.engine.wait_children(parent.handle)
    hold(monkeypatch, graph.ids["y"])
    await lab.engine.complete(child.handle)
    explained = await lab.engine.explain(execution_id=graph.ids["y"])
    assert "goes on in a moment" in explained.summary
    monkeypatch.undo()
    await lab.after(1_000)
    assert await graph.state("y") == "waiting"
