"""The two entrances of a flow's cancel: cancel_flow with its waits, and header, acks and grace.

A header leaves the members to its caller: none of them starts any more, and
whoever is left after the grace is cancelled by the loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.engine.operations import waiting
from flowfabric.engine.unit.flows.locks import Locks
from flowfabric.errors import FlowAlreadyTerminal, InvalidInput, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.limits import CANCEL_GRACE_MS_DEFAULT
from flowfabric.model.execution import Execution
from flowfabric.model.flow import CancellationPolicy, FlowState, TaskKind
from flowfabric.model.flow_results import (
    AlreadyTerminal,
    CancellationScheduled,
    FlowCancelled,
    PartiallyCancelled,
)
from tests.support.flows import Graph, arrows, empty, node, pump, submit, woven
from tests.support.lab import Lab

ALL, PENDING, ONLY = CancellationPolicy


async def owed(graph: Graph) -> list[str]:
    """The names of the members whose cancel is owed."""
    names = {key: name for name, key in graph.ids.items()}
    tasks = [each for each in await graph.tasks() if each.kind is TaskKind.CANCEL_MEMBER]
    return sorted(names[each.execution_id] for each in tasks)


def everybody(graph: Graph) -> tuple[str, ...]:
    return tuple(sorted(graph.ids.values()))


# --- cancel_flow -------------------------------------------------------------------------------


@woven
async def test_an_unknown_flow_is_not_found(lab: Lab) -> None:
    """The same answer of both entrances on every store."""
    missing = new_uuid7s(1)[0]
    async with lab.refuses(NotFound, "flow"):
        await lab.engine.cancel_flow(flow_id=missing)
    async with lab.refuses(NotFound, "flow"):
        await lab.engine.cancel_flow_header(flow_id=missing)


@woven
async def test_a_repeated_cancel_changes_nothing(lab: Lab) -> None:
    graph = await submit(lab, "ab", arrows("a>b"))
    first = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=PENDING, reason="x")
    assert first == FlowCancelled(PENDING, everybody(graph))
    async with lab.unchanged():
        again = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=ALL, reason="y")
    assert again == first


@woven
@pytest.mark.parametrize(
    ("narrow", "wide"), [(ONLY, PENDING), (ONLY, ALL), (PENDING, ALL)], ids=str
)
async def test_a_wider_cancel_takes_what_the_first_one_left(
    lab: Lab, narrow: CancellationPolicy, wide: CancellationPolicy
) -> None:
    """It is no repetition: `pending`, and then `all`, stops what went on."""
    graph = await submit(lab, "ab", arrows("a>b"))
    await graph.start("a")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=narrow, reason="first")
    since = (await graph.snapshot()).cancelled_at
    await lab.after(5)
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=wide, reason="second")
    assert reply == FlowCancelled(wide, everybody(graph))
    assert await graph.state("a") == ("cancelled" if wide is ALL else "active")
    assert await graph.state("b") == "cancelled"
    snapshot = await graph.snapshot()
    assert (snapshot.cancellation_policy, snapshot.cancelled_at) == (wide, since)
    assert await graph.events() == ["cancelled"]
    async with lab.unchanged():  # a narrower one, and the same, are repetitions
        for again in (narrow, wide):
            assert reply == await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=again)


@woven
async def test_a_wider_header_owes_what_the_first_one_left(lab: Lab) -> None:
    graph = await submit(lab, "ab")
    await graph.start("a")
    await graph.complete("b")
    await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=PENDING)
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, policy=ALL, grace_ms=1_000)
    assert await owed(graph) == ["a"]
    await lab.after(1_000)
    assert await graph.state("a") == "cancelled"


@woven
async def test_a_finished_flow_cannot_be_cancelled(lab: Lab) -> None:
    graph = await submit(lab, "a")
    await graph.complete("a")
    async with lab.refuses(FlowAlreadyTerminal, graph.flow_id):
        await lab.engine.cancel_flow(flow_id=graph.flow_id)
    async with lab.unchanged():
        reply = await lab.engine.cancel_flow_header(flow_id=graph.flow_id)
    assert reply == AlreadyTerminal(None, None, everybody(graph))


@woven
async def test_scenario_16_an_empty_flow_owes_nothing_and_is_over(lab: Lab) -> None:
    graph = await empty(lab)
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id)
    assert reply == FlowCancelled(ALL, ())
    snapshot = await graph.snapshot()
    assert (snapshot.public_flow_state, snapshot.finished_at) == (FlowState.CANCELLED, lab.now)


@woven
async def test_the_reason_has_a_default(lab: Lab) -> None:
    given: tuple[dict[str, Any], ...] = ({}, {"reason": ""})
    for reason in given:
        graph = await submit(lab, "a")
        await lab.engine.cancel_flow(flow_id=graph.flow_id, **reason)
        told = await lab.describe(graph.ids["a"])
        assert told.cancellation_reason == "flow_cancelled"


@woven
async def test_d34_waiting_waits_for_the_members(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for the header, which is flipped at once."""
    monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    graph = await submit(lab, "abc", arrows("a>b"))
    no_wait = await submit(lab, [node("a", lane_id="other")])
    scheduled = await lab.engine.cancel_flow(flow_id=no_wait.flow_id)
    assert scheduled == CancellationScheduled(ALL, 1, everybody(no_wait))
    assert await no_wait.state("a") == "waiting"
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=10_000)
    assert reply == FlowCancelled(ALL, everybody(graph))
    assert set((await graph.states()).values()) == {"cancelled"}


@woven
async def test_a_cancel_waits_as_long_as_it_lasts_or_not_at_all(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    graph = await submit(lab, "abc")
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=0)
    assert reply == CancellationScheduled(ALL, 3, everybody(graph))
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=None)
    assert reply == FlowCancelled(ALL, everybody(graph))
    assert set((await graph.states()).values()) == {"cancelled"}


@woven
async def test_scenario_17_one_that_cannot_be_cancelled_is_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds its row for longer than the caller waits: it stays owed, the others go."""
    monkeypatch.setattr(limits, "CANCEL_INLINE_MAX", 0)
    graph = await submit(lab, "abc")
    free = Locks.load_unlocked

    async def all_but_b(self: Locks, ids: Iterable[str]) -> dict[str, Execution | None]:
        return await free(self, [key for key in ids if key != graph.ids["b"]])

    monkeypatch.setattr(Locks, "load_unlocked", all_but_b)
    looks = count()  # the caller waits for ten of them, however slow they are
    monkeypatch.setattr(waiting, "stopwatch", lambda: next(looks) / 100)
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=100)
    assert reply == PartiallyCancelled(ALL, everybody(graph), (graph.ids["b"],))
    assert await graph.states() == {"a": "cancelled", "b": "waiting", "c": "cancelled"}
    assert await owed(graph) == ["b"]
    monkeypatch.setattr(Locks, "load_unlocked", free)
    assert await lab.claims() == []
    await lab.after(10_000)
    assert await graph.state("b") == "cancelled"


@woven
async def test_d67_a_repeated_cancel_says_what_is_owed_and_has_it_done(lab: Lab) -> None:
    """A header's grace ends when cancel_flow is called: its caller does not do it by hand."""
    graph = await submit(lab, "abc")
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, policy=ALL, reason="mine")
    reply = await lab.engine.cancel_flow(flow_id=graph.flow_id, policy=ONLY, reason="other")
    assert reply == CancellationScheduled(ALL, 3, everybody(graph))
    await pump(lab)
    told = await lab.describe(graph.ids["a"])
    assert (told.public_state.value, told.cancellation_reason) == ("cancelled", "mine")
    async with lab.unchanged():
        again = await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=0)
    assert again == FlowCancelled(ALL, everybody(graph))


# --- header, acknowledgements, grace -----------------------------------------------------------


@woven
async def test_scenario_16_a_header_owes_its_members_until_they_are_acknowledged(lab: Lab) -> None:
    graph = await submit(lab, "abcd", arrows("a>b"))
    await graph.start("a", "c", "d")
    await graph.complete("d")
    reply = await lab.engine.cancel_flow_header(flow_id=graph.flow_id, reason="mine")
    assert reply == FlowCancelled(ALL, everybody(graph))
    assert await owed(graph) == ["a", "b", "c"]
    assert {each.due_at for each in await graph.tasks()} == {lab.now + CANCEL_GRACE_MS_DEFAULT}
    assert await graph.states() == {
        "a": "active",
        "b": "waiting",  # paused by the flow's cancel
        "c": "active",
        "d": "completed",
    }
    for name, left in (("c", ["a", "b"]), ("a", ["b"]), ("b", [])):
        await graph.cancel(name)
        await lab.engine.ack_cancel_member(flow_id=graph.flow_id, execution_id=graph.ids[name])
        assert await owed(graph) == left
    async with lab.unchanged():  # idempotent and silent
        await lab.engine.ack_cancel_member(flow_id=graph.flow_id, execution_id=graph.ids["a"])
        await lab.engine.ack_cancel_member(flow_id=new_uuid7s(1)[0], execution_id=graph.ids["a"])
    assert (await graph.snapshot()).finished_at == lab.now


@woven
async def test_scenario_16_who_is_left_after_the_grace_is_cancelled(lab: Lab) -> None:
    graph = await submit(lab, "abc")
    await graph.start()
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, reason="mine", grace_ms=500)
    await lab.after(499)
    assert set((await graph.states()).values()) == {"active"}
    await lab.after(1)
    assert set((await graph.states()).values()) == {"cancelled"}
    told = await lab.describe(graph.ids["b"])
    assert (told.cancellation_reason, told.cancelled_by) == ("mine", "flow_cancel")
    assert await graph.tasks() == []


@woven
async def test_d14_what_ended_by_itself_within_the_grace_is_let_be(lab: Lab) -> None:
    graph = await submit(lab, "ab")
    await graph.start()
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=500)
    await graph.complete("a")
    await lab.after(500)
    assert await graph.states() == {"a": "completed", "b": "cancelled"}
    assert await graph.tasks() == []


@woven
async def test_scenario_16_a_repeated_header_never_fills_the_backlog_again(lab: Lab) -> None:
    graph = await submit(lab, "ab")
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, policy=ALL, reason="first")
    await graph.cancel("a")
    await lab.engine.ack_cancel_member(flow_id=graph.flow_id, execution_id=graph.ids["a"])
    async with lab.unchanged():
        again = await lab.engine.cancel_flow_header(flow_id=graph.flow_id, policy=ONLY, reason="no")
    assert again == AlreadyTerminal(ALL, "first", everybody(graph))
    assert await owed(graph) == ["b"]


@pytest.mark.parametrize("how", [PENDING, ONLY])
@woven
async def test_scenario_16_a_header_owes_only_whom_its_policy_takes(
    lab: Lab, how: CancellationPolicy
) -> None:
    """Other systems fill no backlog for other policies, and so cancel no member."""
    graph = await submit(lab, "abc", arrows("a>b"))
    await graph.start("a")
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id, policy=how, grace_ms=0)
    assert await owed(graph) == (["b"] if how is PENDING else [])
    await pump(lab)
    assert await graph.state("a") == await graph.state("c") == "active"
    assert await graph.state("b") == ("cancelled" if how is PENDING else "waiting_children")


@woven
async def test_d29b_nobody_starts_within_the_grace(lab: Lab) -> None:
    graph = await submit(lab, [node("a"), node("b", delay_until=lab.now + 10), "c"], arrows("a>c"))
    await lab.engine.cancel_flow_header(flow_id=graph.flow_id)
    assert await lab.claims(limit=10) == []
    await lab.after(10)
    assert await lab.claims(limit=10) == []
    await graph.cancel("a")  # its end does not set free who waits for it
    assert await lab.claims(limit=10) == []
    assert await graph.state("c") == "cancelled"


@pytest.mark.parametrize(
    "grace",
    [float("nan"), float("inf"), -1, 0.5, 2**53, "1", None, True, limits.DURATION_MS_MAX + 1],
)
@woven
async def test_scenario_16_a_malformed_grace_is_refused(lab: Lab, grace: object) -> None:
    graph = await submit(lab, "a")
    async with lab.refuses(InvalidInput, "grace_ms"):
        await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=grace)  # type: ignore[arg-type]


@pytest.mark.parametrize("wait", [-1, 0.5, "1", True, limits.DURATION_MS_MAX + 1])
@woven
async def test_a_malformed_wait_is_refused(lab: Lab, wait: object) -> None:
    graph = await submit(lab, "a")
    async with lab.refuses(InvalidInput, "wait_ms"):
        await lab.engine.cancel_flow(flow_id=graph.flow_id, wait_ms=wait)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["flow_only", "CANCEL_ALL", "", None, 5])
@woven
async def test_d29_an_unknown_policy_is_refused(lab: Lab, policy: Any) -> None:
    """It never widens to another."""
    graph = await submit(lab, "a")
    for call in (lab.engine.cancel_flow, lab.engine.cancel_flow_header):
        async with lab.refuses(InvalidInput, "policy"):
            await call(flow_id=graph.flow_id, policy=policy)
