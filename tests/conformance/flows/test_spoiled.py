"""Rows of flows spoiled behind the engine's back are reported, and their neighbours live on.

A row that cannot be moved does not hide the rows behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from flowfabric.engine.unit.flows.locks import Locks
from flowfabric.errors import Corruption
from flowfabric.limits import ASIDE_MS_MIN
from flowfabric.model.execution import Execution
from flowfabric.model.flow import AllSucceeded, AnySucceeded, OnSatisfied
from tests.support.flows import Graph, arrows, fan_in, node, pump, submit, woven
from tests.support.lab import Lab

CANCEL = OnSatisfied.CANCEL_REMAINING

# What the schema lets pass; words and counts it does not.
SPOIL = {
    "flow": "UPDATE ff_flow_core SET tags = '[1]' WHERE flow_id = '{flow}'",
    "member": "UPDATE ff_flow_member SET policy = '[1]' WHERE execution_id = '{child}'",
    "task": "UPDATE ff_flow_task SET kind = 'whim' WHERE flow_id = '{flow}'",
}
HEAL = {
    "flow": "UPDATE ff_flow_core SET tags = '{{}}' WHERE flow_id = '{flow}'",
    "member": "UPDATE ff_flow_member SET policy = NULL WHERE execution_id = '{child}'",
}


async def spoil(graph: Graph, name: str, statements: dict[str, str] = SPOIL) -> None:
    child = graph.ids.get("b", graph.ids.get("d"))
    await graph.lab.sql(statements[name].format(flow=graph.flow_id, child=child))


@pytest.mark.parametrize("what", ["flow", "member"])
def test_a_spoiled_flow_stops_no_other_worker(durable_lab: Lab, what: str) -> None:
    """A batch with an end in it answers every other item; nothing of the refused one is done."""
    lab = durable_lab

    async def check() -> None:
        nodes = [node("a"), node("b", AllSucceeded())]  # with a group, which must be read
        bad, good = await submit(lab, nodes, arrows("a>b")), await submit(lab, nodes, arrows("a>b"))
        await bad.start()
        await spoil(bad, what)
        one, two = await bad.handle("a"), await good.handle("a")
        answers = await asyncio.gather(
            lab.engine.complete(one), lab.engine.complete(two), return_exceptions=True
        )
        assert isinstance(answers[0], Corruption)
        name = bad.flow_id if what == "flow" else bad.ids["b"]
        assert name in str(answers[0])
        assert await good.state("b") == "waiting"
        assert await bad.state("a") == "active"
        await spoil(bad, what, HEAL)
        await lab.engine.complete(one)
        assert await bad.state("b") == "waiting"

    lab.run(check())


@pytest.mark.parametrize("what", ["flow", "member"])
def test_a_spoiled_flow_stops_no_timer(durable_lab: Lab, what: str) -> None:
    """The loop does what is due for others, and the spoiled one when it is readable again."""
    lab = durable_lab

    async def check() -> None:
        nodes = [node("a", execution_deadline_at=lab.now + 100), node("b")]
        bad, good = await submit(lab, nodes, arrows("a>b")), await submit(lab, nodes, arrows("a>b"))
        race = await fan_in(lab, 3, AnySucceeded(CANCEL))
        await race.start("s0", "s1", "s2")
        await race.complete("s0")
        late = await lab.create(delay_until=lab.now + 100)
        await spoil(bad, what)
        await lab.after(100)
        assert await good.states() == {"a": "expired", "b": "skipped"}
        assert await race.state("s1") == "cancelled"
        assert (await lab.state(late)).value == "waiting"
        assert await bad.state("a") == "active"
        assert await lab.engine.move_due() == 0  # and it does not keep the loop busy
        problems = (await lab.engine.doctor()).problems
        name = bad.flow_id if what == "flow" else bad.ids["b"]
        assert any(each.code == "corrupt" and name in each.subject for each in problems)
        assert any(each.code == "loops" and bad.ids["a"] in each.subject for each in problems)
        await spoil(bad, what, HEAL)
        await lab.after(ASIDE_MS_MIN)
        assert await bad.states() == {"a": "expired", "b": "skipped"}

    lab.run(check())


def test_a_spoiled_task_stops_no_other(durable_lab: Lab) -> None:
    lab = durable_lab

    async def check() -> None:
        bad, good = (
            await fan_in(lab, 3, AnySucceeded(CANCEL)),
            await fan_in(lab, 3, AnySucceeded(CANCEL)),
        )
        await bad.complete("s0")
        await good.complete("s0")
        await spoil(bad, "task")
        await lab.engine.move_due()
        assert await good.state("s1") == await good.state("s2") == "cancelled"
        assert await bad.state("s1") == "active"

    lab.run(check())


@pytest.mark.parametrize("what", ["flow", "member"])
def test_scenario_20_a_spoiled_row_is_told_by_whoever_reads_it(durable_lab: Lab, what: str) -> None:
    lab = durable_lab

    async def check() -> None:
        bad, good = await submit(lab, "ab", arrows("a>b")), await submit(lab, "ab", arrows("a>b"))
        await spoil(bad, what)
        with pytest.raises(Corruption, match=bad.flow_id):
            await lab.engine.describe_flow(flow_id=bad.flow_id)
        assert (await good.snapshot()).node_count == 2
        if what == "flow":
            with pytest.raises(Corruption):
                await lab.engine.cancel_flow(flow_id=bad.flow_id)
        await lab.engine.cancel_flow(flow_id=good.flow_id)

    lab.run(check())


def test_a_member_that_cannot_be_read_stays_owed_its_cancel(durable_lab: Lab) -> None:
    """Nobody can say that it has ended, so nobody's word is taken for it."""
    lab = durable_lab

    async def check() -> None:
        graph = await submit(lab, "a")
        uuid = graph.ids["a"][-36:]
        await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=1000)
        policy = "UPDATE ff_exec_body SET policy = '{}' WHERE execution_id = '{}'"
        await lab.sql(policy.format("[1]", uuid))
        with pytest.raises(Corruption, match=graph.ids["a"]):
            await lab.engine.ack_cancel_member(flow_id=graph.flow_id, execution_id=graph.ids["a"])
        assert len(await graph.tasks()) == 1
        await lab.sql(policy.format("{}", uuid))
        await lab.after(1000)
        assert await graph.state("a") == "cancelled"

    lab.run(check())


@pytest.mark.parametrize("newest_first", [False, True])
def test_d23_a_listing_leaves_out_what_cannot_be_read(durable_lab: Lab, newest_first: bool) -> None:
    """As a listing of executions does: spoiled flows neither fail a page nor shorten it."""
    lab = durable_lab

    async def check() -> None:
        graphs = [await submit(lab, "a") for _ in range(8)]
        graphs.sort(key=lambda graph: graph.flow_id, reverse=newest_first)
        for at in (0, 1, 4, 7):  # in front, in the middle, where a page ends, and last
            await spoil(graphs[at], "flow")
        seen: list[list[str]] = []
        cursor = None
        while not seen or cursor is not None:
            page = await lab.engine.list_flows(limit=2, cursor=cursor, newest_first=newest_first)
            seen.append([each.flow_id for each in page.items])
            cursor = page.next_cursor
        left = [graphs[at].flow_id for at in (2, 3, 5, 6)]
        assert seen == [left[:2], left[2:]]
        listed = await lab.engine.list_flows(status="active", namespace="default")
        assert {each.flow_id for each in listed.items} == set(left)
        with pytest.raises(Corruption, match=graphs[0].flow_id):
            await lab.engine.describe_flow(flow_id=graphs[0].flow_id)

    lab.run(check())


@woven
async def test_a_poisoned_head_hides_nothing_behind_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work that cannot be done is postponed, ever longer, and the next is done."""
    bad, good = await submit(lab, "ab"), await submit(lab, "ab")
    free = Locks.load_unlocked

    async def held(self: Locks, ids: Iterable[str]) -> dict[str, Execution | None]:
        return await free(self, [key for key in ids if key not in bad.ids.values()])

    for graph in (bad, good):
        await lab.engine.cancel_flow_header(flow_id=graph.flow_id, grace_ms=0)
    monkeypatch.setattr(Locks, "load_unlocked", held)
    for _ in range(4):
        await lab.engine.move_due(limit=1)
    assert set((await good.states()).values()) == {"cancelled"}
    before = {each.due_at for each in await bad.tasks()}
    assert min(before) > lab.now
    for _ in range(12):
        await lab.after(1000)
    pauses = {each.due_at - lab.now for each in await bad.tasks()}
    assert max(pauses) > 1000
    monkeypatch.setattr(Locks, "load_unlocked", free)
    await lab.after(10_000)
    assert set((await bad.states()).values()) == {"cancelled"}
    assert await pump(lab) == 0
