"""An execution or flow can be named as people do: by some digits, `latest`, or `-`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode
from flowfabric.cli.exits import Exit
from flowfabric.cli.references import short_ids
from flowfabric.cli.shown import Shown
from flowfabric.engine.engine import Engine
from flowfabric.ids import new_execution_id
from flowfabric.model.flow_results import FlowSubmitted
from tests.cli.desk import Desk


def digits(execution_id: str) -> str:
    return execution_id[-36:].replace("-", "")


def a_flow(desk: Desk) -> tuple[str, str]:
    async def work(engine: Engine) -> tuple[str, str]:
        node = FlowNode(name="a", execution=NewExecution(execution_kind="k"))
        made = await engine.submit_flow(flow_kind="f", nodes=[node])
        assert isinstance(made, FlowSubmitted)
        return made.flow_id, made.execution_ids["a"]

    return desk.given(work)


@pytest.mark.parametrize("command", [("show",), ("why",), ("waits", "show")])
def test_a_unique_part_of_an_id_names_its_execution(desk: Desk, command: tuple[str, ...]) -> None:
    wanted, _ = desk.submit(), desk.submit()
    whole = digits(wanted)
    for part in (whole[-8:], whole[-8:].upper(), whole[:20], whole, wanted[-36:], wanted):
        assert desk.json(*command, part)["execution_id"] == wanted


def test_a_part_that_fits_several_is_refused_with_their_ends(desk: Desk) -> None:
    first, second = desk.submit(), desk.submit()
    shared = digits(first)[:5]
    assert desk.ff("show", shared) == Exit.USAGE
    assert "give more digits" in desk.err
    for each in (first, second):
        assert digits(each)[-8:] in desk.err
    error = desk.json("show", shared, code=Exit.USAGE)["error"]
    assert error["code"] == "ambiguous"
    assert set(error["candidates"]) == {first, second}


def test_a_part_that_fits_several_changes_none_of_them(desk: Desk) -> None:
    first, second = desk.submit(), desk.submit()
    assert desk.ff("cancel", first, digits(second)[:5]) == Exit.USAGE
    assert {each["public_state"] for each in desk.json("ps")["executions"]} == {"waiting"}


def test_a_part_of_nothing_says_how_far_it_looked(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("show", "ffffffff") == Exit.NOT_FOUND
    assert "no execution begins with ffffffff" in desk.err
    assert "ff ps" in desk.err


def test_latest_is_the_newest_of_the_namespace(desk: Desk) -> None:
    assert desk.ff("submit", "greet", "--namespace", "other") == 0
    other, newest = desk.out.strip(), desk.submit()
    assert desk.json("show", "latest")["execution_id"] == newest
    assert desk.json("show", "latest", "--namespace", "other")["execution_id"] == other
    assert desk.ff("show", "latest", "--namespace", "empty") == Exit.NOT_FOUND


def test_a_dash_is_the_last_one_shown(desk: Desk) -> None:
    first = desk.submit()
    assert desk.json("why", "-")["execution_id"] == first  # what was submitted
    second = desk.submit()
    assert desk.ff("show", first) == Exit.OK
    assert desk.json("show", "-")["execution_id"] == first
    assert desk.ff("ps") == Exit.OK  # several: what `-` means stays
    assert desk.ff("cancel", "-") == Exit.OK
    assert desk.json("show", second)["public_state"] == "waiting"
    assert desk.json("show", first)["public_state"] == "cancelled"
    assert desk.ff("ps", "--state", "waiting") == Exit.OK  # one row
    assert desk.json("show", "-")["execution_id"] == second


def test_a_dash_before_anything_was_shown_says_so(desk: Desk) -> None:
    desk.given(lambda engine: engine.create_execution(execution_kind="k"))
    assert desk.ff("show", "-") == Exit.NOT_FOUND
    assert "was shown yet" in desk.err


def test_options_may_stand_before_a_dash(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("cancel", "--reason", "x", "-") == Exit.OK
    assert desk.ff("cancel", "latest", "--reason", "x", "-") == Exit.OK


def test_flows_are_named_alike_also_by_their_members(desk: Desk) -> None:
    flow_id, member = a_flow(desk)
    other, _ = a_flow(desk)
    for word in (flow_id, flow_id[-8:], flow_id[:23], member, digits(member)[-8:]):
        assert desk.json("flow", "show", word)["flow_id"] == flow_id
    assert desk.json("flow", "show", "-")["flow_id"] == flow_id
    assert desk.json("flow", "show", "latest")["flow_id"] == other
    assert desk.ff("flow", "show", "ffffffff") == Exit.NOT_FOUND
    lone = desk.submit()
    assert desk.ff("flow", "show", lone[-8:]) == Exit.NOT_FOUND
    assert "belongs to no flow" in desk.err


def test_a_dash_for_a_flow_is_that_of_the_last_execution_shown(desk: Desk) -> None:
    flow_id, member = a_flow(desk)
    assert desk.ff("show", member) == Exit.OK
    assert desk.json("flow", "show", "-")["flow_id"] == flow_id


def test_a_budget_may_be_for_an_execution_named_in_short(desk: Desk) -> None:
    execution_id = desk.submit()
    made = desk.json("budget", "create", "b", "--hard", "t=1", "--scope", "execution:latest")
    assert made["policy"]["scope_id"] == execution_id
    flow_id, _ = a_flow(desk)
    made = desk.json("budget", "create", "c", "--hard", "t=1", "--scope", f"flow:{flow_id[-8:]}")
    assert made["policy"]["scope_id"] == flow_id
    assert desk.ff("budget", "create", "d", "--hard", "t=1", "--scope", "flow:?") == Exit.USAGE


def test_rows_of_the_last_listing_are_found_however_old_they_are(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = desk.submit(), desk.submit()
    monkeypatch.setattr("flowfabric.limits.FIND_AMONG", 1)
    assert desk.ff("show", old[-8:]) == Exit.NOT_FOUND
    assert desk.ff("ps") == Exit.OK
    assert old[-8:] in desk.out
    assert desk.ff("show", old[-8:]) == Exit.OK


# --- listings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ps", "flow"])
def test_a_listing_shows_short_ids_that_differ_and_whole_ones_when_asked(
    desk: Desk, command: str
) -> None:
    ids = [desk.submit() if command == "ps" else a_flow(desk)[0] for _ in range(2)]
    assert desk.ff(command) == Exit.OK
    assert all(each[-8:] in desk.out and each not in desk.out for each in ids)
    assert desk.ff(command, "--wide") == Exit.OK
    assert all(each in desk.out for each in ids)


def test_short_ids_grow_until_they_differ() -> None:
    ids = [f"{{fp:1}}:0193a1f0-0000-7000-8000-{tail}" for tail in ("10000000abcd", "20000000abcd")]
    assert list(short_ids(ids).values()) == ["10000000abcd", "20000000abcd"]
    assert list(short_ids(ids[:1]).values()) == ["0000abcd"]
    assert short_ids([]) == {}


# --- what is remembered ---------------------------------------------------------------------------


def test_the_last_listing_is_private_and_per_store(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "flowfabric"
    here, there = (Shown(place, folder=folder) for place in ("/a.db", "/b.db"))
    one = new_execution_id()
    here.remember("execution", [one], is_listing=False)
    assert here.last("execution") == one
    assert here.last("flow") is None
    assert there.last("execution") is None
    (file,) = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_password_and_no_place_is_remembered(tmp_path: Path) -> None:
    url = "postgresql://ada:hunter2@db.example/app"
    Shown(url, folder=tmp_path).remember("flow", ["x"], is_listing=False)
    text = (tmp_path / "shown.json").read_text()
    assert "hunter2" not in text
    assert "example" not in text
    assert Shown(url.replace("hunter2", "other"), folder=tmp_path).last("flow") == "x"


def test_a_bounded_number_of_stores_and_ids_is_remembered(tmp_path: Path) -> None:
    for number in range(50):
        many = [new_execution_id()] * 1000
        Shown(f"/{number}.db", folder=tmp_path).remember("execution", many, is_listing=True)
    assert (tmp_path / "shown.json").stat().st_size < 250_000
    assert Shown("/49.db", folder=tmp_path).listed("execution")
    assert not Shown("/0.db", folder=tmp_path).listed("execution")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', "null", "[" * 100_000, "\x00"])
def test_a_spoiled_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    (tmp_path / "shown.json").write_text(text)
    shown = Shown("/a.db", folder=tmp_path)
    assert shown.last("execution") is None
    assert shown.listed("flow") == []
    shown.remember("execution", ["x"], is_listing=False)
    assert shown.last("execution") == "x"


def test_where_nothing_can_be_remembered_everything_else_works(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    execution_id = desk.submit()
    assert desk.ff("show", execution_id) == Exit.OK
    assert desk.ff("show", "-") == Exit.NOT_FOUND
