"""`ff flow`: list, draw, follow, cancel and retry flows."""

from __future__ import annotations

import asyncio
import io
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.cli.program import main
from flowfabric.cli.show.dag import LANES_MAX, draw, folded
from flowfabric.cli.show.flow import Row, _aligned
from flowfabric.engine.engine import Engine
from flowfabric.model.flow import AllDone, AnySucceeded, OnSatisfied, Quorum
from flowfabric.model.layers import ordered
from tests.cli.desk import Desk

if TYPE_CHECKING:
    import pytest

UNKNOWN = "01a1e84a-2878-7000-8f3b-f5553447f1b9"


def node(name: str, join: Any = None, kind: str | None = None) -> FlowNode:
    return FlowNode(name=name, execution=NewExecution(execution_kind=kind or name), join=join)


def submit(
    desk: Desk, nodes: list[FlowNode], edges: list[tuple[str, str]], **options: Any
) -> tuple[str, dict[str, str]]:
    async def work(engine: Engine) -> tuple[str, dict[str, str]]:
        reply: Any = await engine.submit_flow(
            nodes=nodes,
            edges=[FlowEdge(upstream=up, downstream=down) for up, down in edges],
            **options,
        )
        return reply.flow_id, dict(reply.execution_ids)

    return desk.given(work)


DIAMOND = [("build", "unit"), ("build", "e2e"), ("unit", "deploy"), ("e2e", "deploy")]


def diamond(desk: Desk, **options: Any) -> tuple[str, dict[str, str]]:
    nodes = [node(name) for name in ("build", "unit", "e2e", "deploy")]
    return submit(desk, nodes, DIAMOND, flow_kind="deploy", **options)


def failed_diamond(desk: Desk) -> tuple[str, dict[str, str]]:
    """The build and the unit tests passed, e2e failed, deploy was skipped."""
    flow_id, ids = diamond(desk)
    for _ in range(3):
        claimed = desk.claim()
        if claimed.execution_kind == "e2e":
            desk.fail(claimed, "AssertionError: blank page\nTraceback …")
        else:
            desk.complete(claimed)
    return flow_id, ids


# --- drawing --------------------------------------------------------------------------------------


def drawn(names: str, edges: str) -> list[str]:
    pairs = [(pair[0], pair[1]) for pair in edges.split()]
    order = ordered(list(names), pairs)
    rows = draw(order, pairs, dict.fromkeys(names, "o"))
    assert rows is not None
    return [f"{row} {name}" for row, name in zip(rows, order, strict=True)]


def test_a_diamond_is_drawn_with_lines_that_meet() -> None:
    assert drawn("abcde", "ab ac ad be ce") == [
        "o a",
        "├─o b",
        "├─│─o c",
        "╰─│─│─o d",
        "  ╰─┴─o e",
    ]


def test_a_line_that_goes_on_is_told_from_one_that_only_crosses() -> None:
    assert drawn("abcde", "ad bd be ce") == [
        "o a",
        "│ o b",
        "│ │ o c",
        "╰─┼─│─o d",
        "  ╰─┴─o e",
    ]


def test_a_chain_and_what_stands_alone() -> None:
    assert drawn("abc", "ab bc") == ["o a", "╰─o b", "  ╰─o c"]
    assert drawn("ab", "") == ["o a", "o b"]


def test_too_many_lines_are_not_drawn() -> None:
    names = [str(n) for n in range(LANES_MAX + 2)]
    chain = list(pairwise(names))
    wide = [("0", name) for name in names[1:]] + [(name, "end") for name in names[1:]]
    assert draw(names, [], dict.fromkeys(names, "o")) is not None
    every = [*names, "end"]
    assert draw(ordered(every, wide), wide, dict.fromkeys(every, "o")) is None
    assert ordered(list(reversed(names)), chain) == names


def test_only_those_that_are_alike_in_everything_are_one_row() -> None:
    edges = [*((f"m{n}", "r") for n in range(6)), ("x", "r"), ("m5", "y")]
    found = folded(
        [*(f"m{n}" for n in range(6)), "x", "r", "y"],
        edges,
        name=str,
        alike=lambda each: each[0],
        least=5,
    )
    assert found == [["m0", "m1", "m2", "m3", "m4"], ["m5"], ["x"], ["r"], ["y"]]


# --- ls -------------------------------------------------------------------------------------------


def test_flows_are_listed_newest_first_with_their_progress(desk: Desk) -> None:
    desk.given(lambda engine: engine.ping())
    assert desk.ff("flow") == 0
    assert "no flows yet" in desk.err
    first, _ = failed_diamond(desk)
    second, _ = submit(desk, [node("a")], [], flow_kind="single", namespace="acme")
    assert desk.ff("flow", "ls") == 0
    lines = desk.out.splitlines()
    assert lines[0].split() == ["ID", "STATUS", "KIND", "NAMESPACE", "ENDED", "AGE"]
    assert lines[1].split()[:5] == [second[-8:], "active", "single", "acme", "0/1"]
    assert lines[2].split()[:4] == [first[-8:], "failed", "deploy", "4/4"]
    document = desk.json("flow", "ls", "--status", "failed")
    assert [flow["flow_id"] for flow in document["flows"]] == [first]
    assert document["flows"][0]["ended_count"] == 4
    document = desk.json("flow", "ls", "--namespace", "acme")
    assert [flow["flow_id"] for flow in document["flows"]] == [second]


def test_a_listing_goes_on_where_it_stopped(desk: Desk) -> None:
    ids = [submit(desk, [node("a")], [])[0] for _ in range(3)]
    page = desk.json("flow", "--limit", "2")
    assert [flow["flow_id"] for flow in page["flows"]] == ids[:0:-1]
    rest = desk.json("flow", "ls", "--cursor", page["next_cursor"])
    assert [flow["flow_id"] for flow in rest["flows"]] == ids[:1]
    assert rest["next_cursor"] is None
    assert desk.ff("flow", "ls", "--status", "finished") == 2


# --- show -----------------------------------------------------------------------------------------


def test_a_flow_is_drawn_with_states_joins_and_reasons(desk: Desk) -> None:
    flow_id, ids = failed_diamond(desk)
    assert desk.ff("flow", "show", flow_id) == 0
    head, _, graph = desk.out.partition("\n\n")
    assert head.startswith(f"{flow_id}  deploy  failed\n")
    assert "4/4: 1 failed, 1 skipped, 2 completed" in head
    assert graph.splitlines() == [
        "✓ build         completed",
        "├─✓ unit        completed",
        "╰─│─✕ e2e       failed              AssertionError: blank page",
        "  ╰─┴─↷ deploy  skipped    all 1/2  dependency_impossible",
    ]
    shown = desk.out
    assert desk.ff("flow", "show", ids["unit"]) == 0  # by a member
    assert desk.out.partition("\n\n")[2] == shown.partition("\n\n")[2]
    document = desk.json("flow", "show", flow_id)
    assert document["public_flow_state"] == "failed"
    assert {each["node_name"]: each["public_state"] for each in document["nodes"]} == {
        "build": "completed",
        "unit": "completed",
        "e2e": "failed",
        "deploy": "skipped",
    }
    assert len(document["edges"]) == 4


def test_joins_say_how_far_they_are(desk: Desk) -> None:
    keep = OnSatisfied.LET_RUN
    names = ["a", "b", "c"]
    joins = {"first": AnySucceeded(keep), "two": Quorum(2, keep), "tidy": AllDone(), "all": None}
    flow_id, _ = submit(
        desk,
        [*map(node, names), *(node(name, join) for name, join in joins.items())],
        [(name, join) for join in joins for name in names],
    )
    desk.complete(desk.claim())
    desk.ff("flow", "show", flow_id)
    for told in ("any 1/1 of 3", "quorum 1/2 of 3", "all done 1/3", "all 1/3"):
        assert told in desk.out


def test_many_alike_are_one_row_unless_all_are_asked_for(desk: Desk) -> None:
    names = [f"page-{n}" for n in range(50)]
    flow_id, _ = submit(
        desk,
        [*(node(name, kind="page") for name in names), node("sum")],
        [(name, "sum") for name in names],
    )
    for _ in range(2):
        desk.complete(desk.claim())
    desk.ff("flow", "show", flow_id)
    assert desk.out.partition("\n\n")[2].splitlines() == [
        "○ page ×50  48 waiting, 2 completed",
        "╰─◇ sum     waiting_children         all 2/50  waiting for others to end",
    ]
    desk.ff("flow", "show", flow_id, "--all")
    rows = desk.out.partition("\n\n")[2].splitlines()
    assert len(rows) == 51
    assert "after page-0, page-1" in rows[-1]  # too wide to be drawn


def test_a_flow_that_did_without_its_losers_says_so(desk: Desk) -> None:
    flow_id, _ = submit(
        desk,
        [node("a"), node("b"), node("pick", AnySucceeded(OnSatisfied.CANCEL_REMAINING))],
        [("a", "pick"), ("b", "pick")],
    )
    desk.fail(desk.claim())
    desk.complete(desk.claim())
    desk.complete(desk.claim())
    assert desk.ff("flow", "show", flow_id) == 0
    assert "its joins did without what was lost" in desk.out
    assert desk.ff("flow", "show", flow_id, "--watch") == 0


def test_a_race_with_cancelled_losers_is_completed(desk: Desk) -> None:
    flow_id, _ = submit(
        desk,
        [node("a"), node("b"), node("pick", AnySucceeded(OnSatisfied.CANCEL_REMAINING))],
        [("a", "pick"), ("b", "pick")],
    )
    desk.complete(desk.claim())
    desk.given(lambda engine: engine.move_due())
    desk.complete(desk.claim())
    assert desk.ff("flow", "show", flow_id) == 0
    assert "completed" in desk.out.splitlines()[0]


def test_an_unknown_flow_exits_with_3(desk: Desk) -> None:
    lone = desk.submit()
    for words in (("show",), ("cancel",), ("retry",)):
        assert desk.ff("flow", *words, UNKNOWN) == 3
        assert "ff flow ls lists them" in desk.err
        assert desk.ff("flow", *words, lone) == 3
        assert "belongs to no flow" in desk.err
    assert desk.ff("flow", "show", "nonsense") == 2
    assert desk.ff("flow", "shwo", UNKNOWN) == 2
    assert "did you mean show?" in desk.err


def test_watching_ends_with_the_flow_and_says_how(desk: Desk) -> None:
    flow_id, _ = failed_diamond(desk)
    assert desk.ff("flow", "show", flow_id, "--watch") == 1
    assert desk.out.splitlines()[-1] == f"{flow_id}  failed"
    assert "e2e  failed  AssertionError: blank page" in desk.out
    assert desk.ff("flow", "show", flow_id, "--watch", "--json") == 2


def test_watching_tells_changes_while_they_happen(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flow_id, _ = submit(desk, [node("a"), node("b")], [("a", "b")])
    looks: list[int] = []

    async def work_instead() -> None:
        """Each pause between two looks is used to do the next piece of work."""
        looks.append(1)
        await asyncio.to_thread(lambda: desk.complete(desk.claim()))

    monkeypatch.setattr("flowfabric.cli.commands.flow.pause", work_instead)
    code = main(["flow", "show", flow_id, "--watch", "--url", desk.url])
    out = capsys.readouterr().out
    assert code == 0
    lines = [line.split()[:2] for line in out.splitlines()]
    assert lines == [
        ["a", "waiting"],
        ["b", "waiting_children"],
        ["a", "completed"],
        ["b", "waiting"],
        ["b", "completed"],
        [flow_id, "completed"],
    ]
    assert len(looks) == 2


# --- cancel and retry -----------------------------------------------------------------------------


def test_a_flow_is_cancelled_by_policy(desk: Desk) -> None:
    flow_id, ids = diamond(desk)
    claimed = desk.claim()
    words = ("--policy", "pending", "--reason", "wrong branch", "--wait", "5s")
    assert desk.ff("flow", "cancel", flow_id, *words) == 0
    assert f"{flow_id}  cancelled (cancel_pending)" in desk.out
    document = desk.json("flow", "show", flow_id)
    assert document["cancel_reason"] == "wrong branch"
    states = {each["node_name"]: each["public_state"] for each in document["nodes"]}
    assert states == {
        "build": "active",
        "unit": "cancelled",
        "e2e": "cancelled",
        "deploy": "cancelled",
    }
    desk.complete(claimed)
    again = desk.json("flow", "cancel", flow_id)
    assert again["outcome"] == "FlowCancelled"
    assert again["cancellation_policy"] == "cancel_pending"
    assert sorted(again["member_execution_ids"]) == sorted(ids.values())
    assert desk.ff("flow", "cancel", flow_id, "--policy", "some") == 2


def test_a_finished_flow_cannot_be_cancelled(desk: Desk) -> None:
    flow_id, _ = failed_diamond(desk)
    assert desk.ff("flow", "cancel", flow_id) == 4
    assert "has finished" in desk.err


def test_a_retry_puts_back_what_failed_and_what_that_skipped(desk: Desk) -> None:
    flow_id, ids = failed_diamond(desk)
    assert desk.ff("flow", "retry", flow_id, "--reason", "repaired") == 0
    assert desk.out.splitlines() == [f"{ids['e2e']}  e2e  waiting"]
    for kind in ("e2e", "deploy"):
        claimed = desk.claim()
        assert claimed.execution_kind == kind
        desk.complete(claimed)
    document = desk.json("flow", "show", flow_id)
    assert document["public_flow_state"] == "completed"
    assert desk.json("flow", "retry", flow_id) == {"flow_id": flow_id, "replayed": []}
    assert desk.ff("flow", "retry", flow_id) == 0
    assert "nothing to run again" in desk.err


def test_a_retry_of_one_member_may_take_those_it_skipped_along(desk: Desk) -> None:
    _, ids = failed_diamond(desk)
    assert desk.ff("retry", ids["e2e"], "--cascade") == 0
    assert "waiting again (replay 1)" in desk.out
    assert desk.json("show", ids["deploy"])["public_state"] == "waiting_children"


def test_why_a_blocked_member_waits_is_answered(desk: Desk) -> None:
    _, ids = diamond(desk)
    assert desk.ff("why", ids["deploy"]) == 0
    assert desk.out.startswith("waiting_children: ")
    for upstream in ("unit", "e2e"):
        assert f"{upstream} (waiting_children)" in desk.out
    assert "build" not in desk.out


def test_on_a_terminal_the_drawing_is_cut_to_its_height(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow_id, _ = failed_diamond(desk)
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("LINES", "9")
    assert main(["flow", "show", flow_id, "--watch", "--no-color", "--url", desk.url]) == 1
    lines = screen.getvalue().splitlines()
    assert len(lines) <= 9
    assert lines[-1].startswith("… 3 more rows")


def test_stored_names_and_reasons_cannot_drive_the_terminal(desk: Desk) -> None:
    flow_id, _ = submit(desk, [node("a")], [])
    desk.fail(desk.claim(), "\x1b[2Jgone\nTraceback …")
    for words in ((), ("--watch",)):
        desk.ff("flow", "show", flow_id, *words)
        assert "gone" in desk.out
        assert "\x1b" not in desk.out


def test_a_wide_mark_keeps_the_columns_in_line() -> None:
    rows = [
        Row("⌛", "a", "expired", "expired", "", ""),
        Row("✓", "b", "completed", "completed", "", ""),
    ]
    call: Any = SimpleNamespace(
        terminal=SimpleNamespace(is_tty=False, state_as=lambda text, _: text)
    )
    assert _aligned(call, rows) == ["⌛a  expired", "✓ b  completed"]
