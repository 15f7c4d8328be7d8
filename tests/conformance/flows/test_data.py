"""Data passing: one edge replaces the input, several arrive as a map."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.model.flow import AllDone, AnySucceeded, OnSatisfied, Quorum
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from tests.support.flows import arrows, edge, empty, node, submit, woven
from tests.support.lab import Lab

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN
BYTES = bytes(range(256))


@woven
async def test_scenario_8_one_edge_hands_on_the_exact_bytes(lab: Lab) -> None:
    graph = await submit(
        lab, ["a", node("b", input_payload=b"own")], arrows("a>b", passes_result=True)
    )
    await graph.complete("a", result=BYTES, result_encoding="octets")
    assert await graph.payload("b") == BYTES
    claimed = await lab.claim()
    assert (claimed.payload, claimed.payload_encoding) == (BYTES, "octets")


@woven
async def test_scenario_8_an_edge_without_reference_keeps_the_input(lab: Lab) -> None:
    graph = await submit(lab, ["a", node("b", input_payload=b"own")], arrows("a>b"))
    await graph.complete("a", result=b"1")
    assert await graph.payload("b") == b"own"
    built = await empty(lab, "a")
    await built.add("b", input_payload=b"own")
    await built.link("a>b", data_passing_ref="")
    await built.complete("a", result=b"1")
    assert await built.payload("b") == b"own"


@woven
async def test_scenario_8_a_void_completion_keeps_the_input(lab: Lab) -> None:
    graph = await submit(
        lab, ["a", node("b", input_payload=b"own")], arrows("a>b", passes_result=True)
    )
    await graph.complete("a", result=None)
    assert await graph.payload("b") == b"own"


@woven
async def test_an_empty_result_is_a_result(lab: Lab) -> None:
    graph = await submit(
        lab, ["a", node("b", input_payload=b"own")], arrows("a>b", passes_result=True)
    )
    await graph.complete("a", result=b"")
    assert await graph.payload("b") == b""


@woven
async def test_scenario_8_a_child_that_has_ended_is_never_overwritten(lab: Lab) -> None:
    graph = await submit(
        lab, ["a", node("b", input_payload=b"own")], arrows("a>b", passes_result=True)
    )
    await graph.cancel("b")
    await graph.complete("a", result=b"1")
    assert await graph.payload("b") == b"own"


@woven
async def test_nothing_is_handed_to_who_is_skipped(lab: Lab) -> None:
    graph = await submit(
        lab,
        ["a", "c", node("b", input_payload=b"own")],
        arrows("a>b", "c>b", passes_result=True),
    )
    await graph.complete("a", result=b"1")
    await graph.fail("c")
    assert await graph.state("b") == "skipped"
    assert await graph.payload("b") == b"own"


@woven
async def test_several_edges_arrive_as_a_map_by_name_in_any_order(lab: Lab) -> None:
    """Deterministic: the same whoever came last."""
    payloads = set()
    for order in ("xyz", "zyx", "yxz"):
        graph = await submit(lab, [*"xyz", "d"], arrows("x>d", "y>d", "z>d", passes_result=True))
        await graph.start()
        for name in order:
            await graph.complete(name, result=f'"{name}!"'.encode())
        payloads.add(await graph.payload("d"))
        await graph.complete("d")
    (payload,) = payloads
    assert json.loads(payload) == {"x": "x!", "y": "y!", "z": "z!"}


@woven
async def test_a_map_is_laid_over_an_input_that_is_an_object(lab: Lab) -> None:
    graph = await submit(
        lab,
        ["x", "y", node("d", input_payload=b'{"keep": 1, "x": "old"}', payload_encoding="json")],
        arrows("x>d", "y>d", passes_result=True),
    )
    await graph.complete("x", result=b"[1, 2.50]")
    await graph.complete("y", result=None)
    assert json.loads(await graph.payload("d")) == {"keep": 1, "x": [1, 2.5], "y": None}
    assert b"2.50" in await graph.payload("d")  # a result is passed on as it is written


@woven
async def test_other_bytes_travel_as_base64(lab: Lab) -> None:
    graph = await submit(lab, ["x", "y", "d"], arrows("x>d", "y>d", passes_result=True))
    await graph.complete("x", result=b"\xff\x00", result_encoding="octets")
    await graph.complete("y", result=b"not json")
    assert json.loads(await graph.payload("d")) == {
        "x": {"base64": "/wA=", "encoding": "octets"},
        "y": {"base64": "bm90IGpzb24=", "encoding": None},
    }


@woven
async def test_a_named_edge_arrives_under_its_name_even_alone(lab: Lab) -> None:
    graph = await submit(lab, ["a", "b"], [edge("a", "b", passes_result=True, input_name="draft")])
    await graph.complete("a", result=b'"text"')
    assert json.loads(await graph.payload("b")) == {"draft": "text"}


@woven
async def test_edges_that_pass_nothing_add_nothing_to_the_map(lab: Lab) -> None:
    graph = await submit(lab, ["x", "y", "d"], [*arrows("x>d"), edge("y", "d", passes_result=True)])
    await graph.complete("x", result=b"1")
    await graph.complete("y", result=b"2")
    assert await graph.payload("d") == b"2"


@pytest.mark.parametrize("winner", ["s0", "s2"])
@woven
async def test_any_of_is_handed_the_winner_under_its_name(lab: Lab, winner: str) -> None:
    """Who lost, or comes late, hands on nothing."""
    names = ["s0", "s1", "s2"]
    graph = await submit(
        lab,
        [*names, node("d", AnySucceeded(LET_RUN))],
        [edge(name, "d", passes_result=True) for name in names],
    )
    await graph.start()
    await graph.fail("s1")
    await graph.complete(winner, result=b"1")
    handed = await graph.payload("d")
    assert json.loads(handed) == {winner: 1}
    await graph.complete("s0" if winner == "s2" else "s2", result=b"2")
    assert await graph.payload("d") == handed


@woven
async def test_a_quorum_is_handed_every_success_that_fired_it(lab: Lab) -> None:
    """Other systems pass on the k-th result only."""
    names = ["s0", "s1", "s2", "s3"]
    graph = await submit(
        lab,
        [*names, node("d", Quorum(2, CANCEL))],
        [edge(name, "d", passes_result=True) for name in names],
    )
    await graph.start()
    await graph.complete("s3", result=b"3")
    await graph.complete("s1", result=b"1")
    assert json.loads(await graph.payload("d")) == {"s1": 1, "s3": 3}


@woven
async def test_all_done_is_handed_the_successes(lab: Lab) -> None:
    graph = await submit(
        lab, ["x", "y", node("d", AllDone())], arrows("x>d", "y>d", passes_result=True)
    )
    await graph.start()
    await graph.fail("x")
    await graph.complete("y", result=b"2")
    assert json.loads(await graph.payload("d")) == {"y": 2}


@woven
async def test_an_upstream_that_ended_before_its_edge_hands_on_too(lab: Lab) -> None:
    graph = await empty(lab, "a", "b")
    await lab.engine.hold_execution(execution_id=graph.ids["b"])
    await graph.complete("a", result=b'"early"')
    await graph.link("a>b", data_passing_ref="result")
    assert await graph.payload("b") == b'"early"'


@woven
async def test_data_travels_down_a_chain(lab: Lab) -> None:
    graph = await submit(lab, "abc", arrows("a>b>c", passes_result=True))
    await graph.complete("a", result=b"1")
    claimed = await lab.claim()
    assert claimed.payload == b"1"
    await lab.engine.complete(claimed.handle, result=claimed.payload + b"2")
    assert (await lab.claim()).payload == b"12"


@woven
async def test_results_of_one_batch_are_handed_on(lab: Lab) -> None:
    """They are read from the batch itself, before they are stored."""
    names = [f"s{at}" for at in range(10)]
    graph = await submit(
        lab, [*names, "d"], [edge(name, "d", passes_result=True) for name in names]
    )
    await graph.start()
    claims = [(name, graph.claimed.pop(graph.ids[name])) for name in names]
    await asyncio.gather(
        *(lab.engine.complete(each.handle, result=name[1:].encode()) for name, each in claims)
    )
    assert json.loads(await graph.payload("d")) == {name: int(name[1:]) for name in names}


# --- the limit ---------------------------------------------------------------------------------


@woven
async def test_an_input_over_the_limit_fails_its_member_and_is_not_stored(lab: Lab) -> None:
    """As any failure: dependants are skipped, others go on, and the flow has failed."""
    await lab.configure(payload_bytes_max=1000)
    graph = await submit(
        lab,
        ["x", "y", "other", node("d", input_payload=b"own"), "e", "f"],
        [*arrows("x>d", "y>d", passes_result=True), *arrows("d>e>f", "x>other")],
    )
    await graph.complete("x", result=b"1" * 500)
    await graph.complete("y", result=b"2" * 501)
    assert await graph.states() == {
        "x": "completed",
        "y": "completed",
        "other": "waiting",
        "d": "failed",
        "e": "skipped",
        "f": "skipped",
    }
    ended = await lab.describe(graph.ids["d"])
    assert ended.failure_category == "input_too_large"
    assert ended.failure_reason is not None
    assert "payload_bytes_max is 1000" in ended.failure_reason
    assert ended.total_attempt_count == 0
    assert await graph.payload("d") == b"own"
    await graph.complete("other")
    assert (await graph.flow_state()).value == "failed"


@woven
async def test_an_input_at_the_limit_is_handed_on(lab: Lab) -> None:
    await lab.configure(payload_bytes_max=1000)
    graph = await submit(
        lab,
        ["x", node("d", input_payload=b'{"k":1}')],
        [edge("x", "d", passes_result=True, input_name="x")],
    )
    result = b'"%s"' % (b"r" * (1000 - len(b'{"k":1,"x":""}')))
    await graph.complete("x", result=result)
    assert len(await graph.payload("d")) == 1000
    over = await submit(
        lab,
        ["x", node("d", input_payload=b'{"kk":1}')],  # by this one letter
        [edge("x", "d", passes_result=True, input_name="x")],
    )
    await over.complete("x", result=result)
    assert await over.state("d") == "failed"


@woven
async def test_one_result_that_is_longer_as_text_is_bounded_as_it_arrives(lab: Lab) -> None:
    await lab.configure(payload_bytes_max=1000)
    graph = await submit(lab, ["a", "b"], [edge("a", "b", passes_result=True, input_name="raw")])
    await graph.complete("a", result=b"\xff" * 900)
    assert await graph.state("b") == "failed"


@woven
async def test_a_lower_limit_holds_for_a_result_that_replaces_the_input(lab: Lab) -> None:
    graph = await submit(lab, ["a", "c", "b"], [edge("a", "b", passes_result=True), edge("c", "b")])
    await graph.complete("a", result=b"1" * 500)
    lab.direct.config = replace(lab.direct.config, payload_bytes_max=400)
    await graph.complete("c")
    assert await graph.state("b") == "failed"


@woven
async def test_too_many_results_are_not_even_read(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their sizes are asked for first: a thousand large ones would fill the memory."""
    await lab.configure(payload_bytes_max=2000)
    names = [f"s{at}" for at in range(limits.RESULTS_UNSIZED_MAX + 2)]
    graph = await submit(
        lab,
        [*names, "d", "small", "e"],
        [
            *(edge(name, "d", passes_result=True) for name in names),
            *(edge(name, "small", passes_result=name == "s0") for name in names),
            *arrows("d>e"),
        ],
    )
    read: list[str] = []
    view = type(await one_view(lab))
    results = view.results

    async def counted(self: object, ids: list[str]) -> object:
        read.extend(ids)
        return await results(self, ids)

    monkeypatch.setattr(view, "results", counted)
    await graph.start()
    await graph.complete(*names, result=b"1" * 100)
    assert await graph.state("d") == "failed"
    assert await graph.state("e") == "skipped"
    assert await graph.payload("small") == b"1" * 100
    assert set(read) <= {graph.ids["s0"]}


@woven
async def test_many_results_within_the_limit_arrive(lab: Lab) -> None:
    names = [f"s{at}" for at in range(limits.RESULTS_UNSIZED_MAX + 2)]
    graph = await submit(
        lab, [*names, "d"], [edge(name, "d", passes_result=True) for name in names]
    )
    await graph.start()
    await graph.complete(*names[:-1], result=b"1")
    await graph.complete(names[-1], result=None)
    assert json.loads(await graph.payload("d")) == {**dict.fromkeys(names, 1), names[-1]: None}


@woven
async def test_a_replay_is_handed_the_same_and_fails_again_unless_the_limit_is_raised(
    lab: Lab,
) -> None:
    await lab.configure(payload_bytes_max=1000)
    graph = await submit(lab, ["x", "y", "d"], arrows("x>d", "y>d", passes_result=True))
    await graph.complete("x", "y", result=b"1" * 600)
    assert await graph.state("d") == "failed"
    await lab.engine.replay_execution(execution_id=graph.ids["d"])
    assert await graph.state("d") == "failed"
    if lab.url == "memory://":
        return
    await lab.configure(payload_bytes_max=2000)
    await lab.engine.replay_execution(execution_id=graph.ids["d"])
    assert await graph.state("d") == "waiting"
    assert len(await graph.payload("d")) > 1200


async def one_view(lab: Lab) -> Any:
    """What the store hands to a transaction."""

    async def work(tx: Transaction) -> Any:
        return tx

    return await lab.engine.store.transact(work)
