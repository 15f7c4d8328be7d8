"""Joins: each kind of group with each end of its upstreams, and decisions worked by hand."""

from __future__ import annotations

import pytest

from flowfabric.errors import ExecutionNotActive
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    FlowState,
    GroupState,
    OnSatisfied,
    Quorum,
    TaskKind,
)
from tests.support.flows import arrows, empty, fan_in, node, pump, submit, woven
from tests.support.lab import Lab

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN
HOWS = (CANCEL, LET_RUN)


# --- the event table, row by row ---------------------------------------------------------------


@woven
async def test_row_1_2_all_of_waits_for_the_last(lab: Lab) -> None:
    graph = await fan_in(lab, 3, AllSucceeded())
    await graph.complete("s0", "s1")
    assert (await graph.group("d")).group_state is GroupState.PENDING
    assert await graph.state("d") == "waiting_children"
    await graph.complete("s2")
    assert (await graph.group("d")).group_state is GroupState.SATISFIED
    assert await graph.state("d") == "waiting"


@woven
async def test_row_3_all_of_is_lost_with_the_first_and_cancels_nobody(lab: Lab) -> None:
    graph = await fan_in(lab, 3, AllSucceeded())
    await graph.start()
    await graph.fail("s1")
    assert (await graph.group("d")).group_state is GroupState.IMPOSSIBLE
    assert await graph.state("d") == "skipped"
    await pump(lab)
    assert await graph.state("s0") == await graph.state("s2") == "active"
    assert await graph.tasks() == []
    await graph.complete("s0", "s2")
    assert await graph.counts("d") == (3, 2, 1, 0)


@pytest.mark.parametrize("how", HOWS)
@woven
async def test_row_4_a_quorum_does_not_fire_before_k(lab: Lab, how: OnSatisfied) -> None:
    graph = await fan_in(lab, 4, Quorum(3, how))
    await graph.start()
    await graph.complete("s0", "s1")
    await pump(lab)
    assert (await graph.group("d")).group_state is GroupState.PENDING
    assert await graph.states() == {
        "s0": "completed",
        "s1": "completed",
        "s2": "active",
        "s3": "active",
        "d": "waiting_children",
    }


@pytest.mark.parametrize("policy", [AnySucceeded(CANCEL), Quorum(1, CANCEL), Quorum(2, CANCEL)])
@woven
async def test_row_5_at_k_the_rest_is_cancelled_by_the_loop(lab: Lab, policy: EdgePolicy) -> None:
    """The cancels are deferred in the transaction that fires the group."""
    k = policy.k if isinstance(policy, Quorum) else 1
    graph = await fan_in(lab, 5, policy)
    await graph.start()
    await graph.complete(*[f"s{at}" for at in range(k)])
    assert await graph.state("d") == "waiting"
    assert await graph.state("s4") == "active"
    (task,) = await graph.tasks()
    assert (task.kind, task.reason) == (TaskKind.CANCEL_SIBLINGS, "sibling_quorum_satisfied")
    fired_at = (await graph.group("d")).satisfied_at
    lab.clock.advance(5)
    await pump(lab)
    assert await graph.tasks() == []
    for at in range(k, 5):
        loser = await lab.describe(graph.ids[f"s{at}"])
        assert loser.public_state.value == "cancelled"
        assert loser.cancellation_reason == "sibling_quorum_satisfied"
        assert loser.cancelled_by == "sibling_quorum"
    assert await graph.state("d") == "waiting"
    assert (await graph.group("d")).satisfied_at == fired_at
    assert await graph.counts("d") == (5, k, 5 - k, 0)


@pytest.mark.parametrize("policy", [AnySucceeded(LET_RUN), Quorum(2, LET_RUN)])
@woven
async def test_row_6_let_run_lets_run(lab: Lab, policy: EdgePolicy) -> None:
    """No work is deferred."""
    k = policy.k if isinstance(policy, Quorum) else 1
    graph = await fan_in(lab, 4, policy)
    await graph.start()
    await graph.complete(*[f"s{at}" for at in range(k)])
    assert await graph.state("d") == "waiting"
    assert await graph.tasks() == []
    assert await pump(lab) == 0
    assert await graph.state("s3") == "active"


@pytest.mark.parametrize("how", HOWS)
@woven
async def test_row_7_losses_are_borne_while_enough_are_left(lab: Lab, how: OnSatisfied) -> None:
    graph = await fan_in(lab, 5, Quorum(3, how))
    await graph.start()
    await graph.fail("s0")
    await graph.cancel("s1")
    assert await graph.state("d") == "waiting_children"
    await graph.complete("s2", "s3", "s4")
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (5, 3, 2, 0)


@woven
async def test_row_8_scenario_10_an_impossible_quorum_cancels_the_survivors(lab: Lab) -> None:
    """Both branches, with their own reason."""
    graph = await fan_in(lab, 5, Quorum(3, CANCEL))
    await graph.start()
    await graph.fail("s0", "s1")
    assert await graph.state("d") == "waiting_children"
    await graph.fail("s2")
    assert await graph.state("d") == "skipped"
    await pump(lab)
    for name in ("s3", "s4"):
        assert (
            await lab.describe(graph.ids[name])
        ).cancellation_reason == "sibling_quorum_impossible"
    assert await graph.flow_state() is FlowState.FAILED


@woven
async def test_row_9_scenario_10_under_let_run_the_survivors_run_on(lab: Lab) -> None:
    graph = await fan_in(lab, 5, Quorum(3, LET_RUN))
    await graph.start()
    await graph.fail("s0", "s1", "s2")
    assert await graph.state("d") == "skipped"
    await pump(lab)
    await graph.complete("s3", "s4")
    assert await graph.counts("d") == (5, 2, 3, 0)


@pytest.mark.parametrize("late", ["success", "failed"])
@woven
async def test_row_10_q1_a_decided_group_only_counts(lab: Lab, late: str) -> None:
    """Later ends neither wake the child again nor move its instant."""
    graph = await fan_in(lab, 3, AnySucceeded(LET_RUN))
    await graph.complete("s0")
    fired_at = (await graph.group("d")).satisfied_at
    claimed = await lab.claims(limit=10)
    down = next(each for each in claimed if each.execution_id == graph.ids["d"])
    graph.claimed.update({each.execution_id: each for each in claimed})
    await lab.engine.delay(down.handle, delay_until=lab.now + 1000)
    lab.clock.advance(10)
    await graph.end("s1", late)
    await graph.end("s2", late)
    assert await graph.state("d") == "delayed"
    group = await graph.group("d")
    assert (group.group_state, group.satisfied_at) == (GroupState.SATISFIED, fired_at)
    assert group.running_count == 0


@woven
async def test_an_impossible_group_is_not_revived_by_successes(lab: Lab) -> None:
    graph = await fan_in(lab, 3, AllSucceeded())
    await graph.start()
    await graph.fail("s0")
    lost_at = (await graph.group("d")).satisfied_at
    lab.clock.advance(10)
    await graph.complete("s1", "s2")
    group = await graph.group("d")
    assert (group.group_state, group.satisfied_at) == (GroupState.IMPOSSIBLE, lost_at)


# --- the worked decisions ----------------------------------------------------------------------


@woven
async def test_decision_1_a_failed_side_skips_the_end_of_a_diamond(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b>d", "a>c>d"))
    await graph.complete("a")
    await graph.start("b", "c")
    await graph.fail("b")
    assert await graph.state("d") == "skipped"
    assert await graph.state("c") == "active"
    await graph.complete("c")
    assert await graph.state("c") == "completed"


@woven
async def test_decision_2_skips_travel_down_a_chain(lab: Lab) -> None:
    graph = await submit(lab, "abcde", arrows("a>b>c>d", "c>e"))
    await graph.complete("a")
    await graph.fail("b")
    assert [await graph.state(name) for name in "cde"] == ["skipped"] * 3
    assert await graph.counts("d") == (1, 0, 0, 1)


@woven
async def test_decision_3_any_of_three_keeps_the_first(lab: Lab) -> None:
    graph = await fan_in(lab, 3, AnySucceeded(CANCEL))
    await graph.start()
    await graph.complete("s1")
    await pump(lab)
    assert await graph.states() == {
        "s0": "cancelled",
        "s1": "completed",
        "s2": "cancelled",
        "d": "waiting",
    }


@woven
async def test_decision_5_three_of_three_is_lost_with_the_first(lab: Lab) -> None:
    graph = await fan_in(lab, 3, Quorum(3, LET_RUN))
    await graph.fail("s0")
    assert await graph.state("d") == "skipped"


@woven
async def test_decision_6_a_cancelled_sibling_is_a_loss_elsewhere(lab: Lab) -> None:
    """By default siblings go even when others still need them."""
    graph = await submit(
        lab, ["x", "y", node("d", AnySucceeded(CANCEL)), "other"], arrows("x>d", "y>d", "y>other")
    )
    await graph.start()
    await graph.complete("x")
    await pump(lab)
    assert await graph.state("y") == "cancelled"
    assert await graph.state("other") == "skipped"


@woven
async def test_d63_shared_siblings_are_spared_on_request(lab: Lab) -> None:
    join = AnySucceeded(CANCEL, only_if_unshared=True)
    graph = await submit(
        lab, ["x", "y", "z", node("d", join), "other"], arrows("x>d", "y>d", "z>d", "y>other")
    )
    await graph.start()
    await graph.complete("x")
    await pump(lab)
    assert await graph.state("y") == "active"
    assert await graph.state("z") == "cancelled"
    await graph.complete("y")
    assert await graph.state("other") == "waiting"


@woven
async def test_d63_those_whose_every_group_is_decided_are_shared_by_nobody(lab: Lab) -> None:
    join = AnySucceeded(CANCEL, only_if_unshared=True)
    graph = await submit(
        lab, ["x", "y", node("d", join), node("e", join)], arrows("x>d", "y>d", "x>e", "y>e")
    )
    await graph.start("x", "y")
    await graph.complete("x")
    await pump(lab)
    assert await graph.state("y") == "cancelled"


# --- arithmetic --------------------------------------------------------------------------------


@woven
async def test_skipped_is_a_loss_that_a_quorum_may_bear(lab: Lab) -> None:
    """There is no policy that tolerates it but by arithmetic."""
    graph = await submit(
        lab,
        ["a", "b", "c", node("d", AnySucceeded(LET_RUN)), "e"],
        arrows("a>b", "b>d", "c>d", "b>e"),
    )
    await graph.start()
    await graph.fail("a")
    assert await graph.state("d") == "waiting_children"
    assert await graph.counts("d") == (2, 0, 0, 1)
    assert await graph.state("e") == "skipped"
    await graph.complete("c")
    assert await graph.state("d") == "waiting"


@woven
async def test_d62_a_quorum_larger_than_its_edges_is_lost_at_the_first_end(lab: Lab) -> None:
    """Step by step n may still grow, so it is judged when an edge resolves; submit_flow refuses."""
    graph = await empty(lab, "a", "b", "d")
    await graph.join("d", Quorum(3, LET_RUN))
    await graph.link("a>d", "b>d")
    assert await graph.state("d") == "waiting_children"
    await graph.complete("a")
    assert await graph.state("d") == "skipped"


@woven
async def test_all_done_goes_on_whatever_the_outcomes(lab: Lab) -> None:
    """A policy of ours: every upstream must end, however it does."""
    graph = await fan_in(lab, 3, AllDone())
    await graph.start()
    await graph.fail("s0")
    await graph.cancel("s1")
    assert await graph.state("d") == "waiting_children"
    await graph.complete("s2")
    assert await graph.state("d") == "waiting"
    assert await graph.counts("d") == (3, 1, 2, 0)


# --- siblings ----------------------------------------------------------------------------------


@woven
async def test_scenario_12_eight_groups_fired_at_once_drain_once(lab: Lab) -> None:
    nodes, edges = [], []
    for at in range(8):
        nodes += [
            node(f"{at}a"),
            node(f"{at}b"),
            node(f"{at}c"),
            node(f"{at}d", AnySucceeded(CANCEL)),
        ]
        edges += arrows(f"{at}a>{at}d", f"{at}b>{at}d", f"{at}c>{at}d")
    graph = await submit(lab, nodes, edges)
    await graph.start()
    await graph.complete(*[f"{at}b" for at in range(8)])
    assert len(await graph.tasks()) == 8
    await pump(lab)
    assert await graph.tasks() == []
    assert (await graph.row()).cancelled_count == 16
    async with lab.unchanged():
        assert await pump(lab) == 0


@woven
async def test_scenario_12_fifty_edges_lead_to_one(lab: Lab) -> None:
    graph = await fan_in(lab, 50, Quorum(20, CANCEL))
    await graph.start()
    await graph.complete(*[f"s{at}" for at in range(20)])
    await pump(lab)
    assert await graph.counts("d") == (50, 20, 30, 0)
    assert await graph.state("d") == "waiting"


@woven
async def test_scenario_13_d14_a_sibling_that_ended_meanwhile_hinders_nobody(lab: Lab) -> None:
    """It may succeed before its cancel lands; the others are cancelled all the same."""
    graph = await fan_in(lab, 4, AnySucceeded(CANCEL))
    await graph.start()
    await graph.complete("s0")
    await graph.complete("s1")
    await graph.fail("s2")
    await pump(lab)
    assert await graph.state("s3") == "cancelled"
    assert await graph.tasks() == []
    assert await graph.counts("d") == (4, 2, 2, 0)


@woven
async def test_q6_what_is_owed_to_siblings_survives_a_restart(lab: Lab) -> None:
    if lab.url.startswith("memory"):
        return
    graph = await fan_in(lab, 3, AnySucceeded(CANCEL))
    await graph.start()
    await graph.complete("s0")
    await lab.configure()
    await pump(lab)
    assert await graph.state("s1") == await graph.state("s2") == "cancelled"


@woven
async def test_d52_a_cancelled_sibling_is_fenced(lab: Lab) -> None:
    """Its worker's late success is refused, and no second end is told."""
    graph = await fan_in(lab, 2, AnySucceeded(CANCEL))
    await graph.start()
    loser = graph.claimed[graph.ids["s1"]]
    await graph.complete("s0")
    await pump(lab)
    with pytest.raises(ExecutionNotActive):
        await lab.engine.complete(loser.handle)
    assert len(await lab.completions(graph.ids["s1"])) == 1
