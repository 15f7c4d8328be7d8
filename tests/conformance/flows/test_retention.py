"""Retention of whole flows: a flow is purged as one, in pages, and no member before it."""

from __future__ import annotations

import pytest

from flowfabric.limits import CASCADE_MAX
from flowfabric.model.flow import CancellationPolicy
from flowfabric.model.policy import ExecutionPolicy
from tests.support.flows import Graph, arrows, empty, node, pump, submit, woven
from tests.support.lab import Lab

DAY = 86_400_000
TABLES = ("ff_flow_core", "ff_flow_member", "ff_edge", "ff_flow_task", "executions", "bodies")


async def left(lab: Lab) -> dict[str, int]:
    """How many rows of each kind there are."""
    dump = await lab.dump()
    return {name: len(dump[name]) for name in TABLES if dump.get(name)}


async def trim(lab: Lab, after_ms: int = 0) -> None:
    """Let time pass and everything go whose time has come."""
    lab.clock.advance(after_ms)
    for _ in range(40):
        await lab.engine.tick()
        lab.clock.advance(30)  # between the pages of one flow


async def finished(lab: Lab, **fields: object) -> Graph:
    graph = await submit(lab, "abc", arrows("a>b>c"), **fields)
    await graph.run()
    return graph


@woven
async def test_a_finished_flow_goes_as_a_whole_after_its_time(lab: Lab) -> None:
    graph = await finished(lab)
    await lab.after(DAY - 1)
    assert await graph.states() == dict.fromkeys("abc", "completed")
    await trim(lab, 1)
    assert await left(lab) == {}
    assert await lab.engine.describe_flow(flow_id=graph.flow_id) is None
    assert await lab.engine.describe_execution(execution_id=graph.ids["a"]) is None
    assert (await lab.engine.list_edges(flow_id=graph.flow_id)).items == ()


@woven
async def test_members_stay_while_one_of_them_lives(lab: Lab) -> None:
    """An upstream is never purged from under a child that waits."""
    graph = await submit(lab, ["a", node("b", lane_id="slow"), "c"], arrows("a>b>c"))
    await graph.complete("a")
    await trim(lab, 10 * DAY)
    assert await graph.states() == {"a": "completed", "b": "waiting", "c": "waiting_children"}
    (claimed,) = await lab.claims(lanes=("slow",))
    await lab.engine.complete(claimed.handle)
    await graph.complete("c")
    await trim(lab, DAY)
    assert await left(lab) == {}


@pytest.mark.parametrize(("keep", "is_kept"), [(0, False), (1000, False), (5 * DAY, True)])
@woven
async def test_a_flow_says_how_long_it_is_kept(lab: Lab, keep: int, is_kept: bool) -> None:
    await finished(lab, retention_ms=keep)
    await trim(lab, 2 * DAY)
    assert bool(await left(lab)) == is_kept
    await trim(lab, 5 * DAY)
    assert await left(lab) == {}


@woven
async def test_the_longest_wish_of_a_member_counts(lab: Lab) -> None:
    """A member goes with its flow, so a shorter one cannot go before."""
    short, long = (ExecutionPolicy(retention_ttl_ms=keep) for keep in (5, 3 * DAY))
    graph = await submit(lab, [node("a", policy=short), node("b", policy=long)])
    await graph.run()
    await trim(lab, 3 * DAY - 5000)
    assert await graph.states() == {"a": "completed", "b": "completed"}
    await trim(lab, 5000)
    assert await left(lab) == {}


@woven
async def test_a_large_flow_goes_page_by_page(lab: Lab) -> None:
    size = CASCADE_MAX + 200
    names = [f"n{at}" for at in range(size)]
    graph = await submit(lab, names, arrows(">".join(names)))
    await graph.fail("n0")
    await pump(lab)
    assert (await graph.row()).skipped_count == size - 1
    lab.clock.advance(DAY)
    await lab.engine.move_due()
    assert (await left(lab))["ff_flow_member"] == 200
    assert await lab.engine.describe_flow(flow_id=graph.flow_id) is not None
    await trim(lab)
    assert await left(lab) == {}


@woven
async def test_a_replay_keeps_the_flow(lab: Lab) -> None:
    graph = await finished(lab)
    lab.clock.advance(DAY - 1)
    await lab.engine.replay_execution(execution_id=graph.ids["b"])
    await trim(lab, DAY)
    assert await graph.states() == {"a": "completed", "b": "waiting", "c": "completed"}
    await graph.complete("b")
    await trim(lab, DAY)
    assert await left(lab) == {}


@woven
async def test_a_reopened_flow_is_kept(lab: Lab) -> None:
    graph = await finished(lab)
    lab.clock.advance(DAY - 1)
    await graph.add("d", reopen=True)
    await trim(lab, DAY)
    assert await graph.state("a") == "completed"
    await graph.complete("d")
    await trim(lab, DAY)
    assert await left(lab) == {}


@pytest.mark.parametrize("how", CancellationPolicy)
@woven
async def test_a_cancelled_flow_goes_when_its_last_member_has_ended(
    lab: Lab, how: CancellationPolicy
) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.start("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=how)
    if how is not CancellationPolicy.CANCEL_ALL:
        lab.clock.advance(10)
        await graph.complete("a")
    if how is CancellationPolicy.FLOW_ONLY:
        await graph.complete("b")
    await trim(lab, DAY)
    assert await left(lab) == {}


@woven
async def test_an_empty_flow_is_kept_until_it_is_cancelled(lab: Lab) -> None:
    graph = await empty(lab)
    await trim(lab, 10 * DAY)
    assert await left(lab) == {"ff_flow_core": 1}
    await lab.engine.cancel_flow(flow_id=graph.flow_id)
    await trim(lab, DAY)
    assert await left(lab) == {}


@woven
async def test_what_was_owed_goes_with_the_flow(lab: Lab) -> None:
    """A caller that never acknowledged leaves no task behind."""
    graph = await submit(lab, "ab", arrows("a>b"), retention_ms=1000)
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=30 * DAY)
    await graph.cancel("b", "a")
    await trim(lab, 1000)
    assert await left(lab) == {}


@woven
async def test_staged_edges_go_too(lab: Lab) -> None:
    graph = await empty(lab, "a", "b")
    await graph.stage("a>b")
    await graph.complete("a", "b")
    await trim(lab, DAY)
    assert await left(lab) == {}


@woven
async def test_other_flows_and_lone_executions_are_not_touched(lab: Lab) -> None:
    other = await submit(lab, [node("x", lane_id="other")])
    await finished(lab)
    alone = await lab.completed()
    await trim(lab, DAY - 5000)
    await lab.describe(alone)
    await trim(lab, 5000)
    found = await left(lab)
    assert {found[name] for name in ("ff_flow_core", "ff_flow_member", "executions")} == {1}
    assert await other.states() == {"x": "waiting"}


@woven
async def test_events_of_flows_are_swept_with_the_others(lab: Lab) -> None:
    """All but the newest, from which ids go on."""
    for _ in range(2):
        await finished(lab)
    newest = await finished(lab)
    assert len((await lab.dump())["flow_events"]) == 3
    await trim(lab, lab.config.event_retention_ms + DAY)
    (event,) = (await lab.dump())["flow_events"]
    assert event.flow_id == newest.flow_id
