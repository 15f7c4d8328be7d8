"""Changes to more executions than a command makes one by one: operations, and `ff operations`."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import bulk
from flowfabric.cli.exits import Exit
from flowfabric.limits import OPERATION_PIECE
from tests.cli.desk import Desk
from tests.cli.test_many import fill, states


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "OPERATION_ABOVE", 3)


def test_many_are_changed_by_an_operation_that_is_watched(desk: Desk) -> None:
    fill(desk, "brief", OPERATION_PIECE + 50)
    assert desk.ff("cancel", "--kind", "brief", "--yes", "--reason", "enough") == Exit.OK
    assert desk.out == f"{OPERATION_PIECE + 50} executions cancelled\n"
    assert states(desk) == {"cancelled": OPERATION_PIECE + 50}
    (found,) = desk.json("operations")["operations"]
    assert (found["action"], found["state"], found["done"]) == ("cancel", "done", 250)
    assert (found["arguments"]["reason"], found["filter"]["execution_kind"]) == ("enough", "brief")
    name = found["operation_id"]
    answer = desk.json("retry", "--state", "cancelled", "--yes")
    assert (answer["matched"], answer["done"], answer["refused"]) == (250, 250, {})
    assert (answer["state"], answer["operation_id"] != name) == ("done", True)
    assert desk.ff("operations", "ls", "--state", "done") == Exit.OK
    assert [line.split()[1] for line in desk.out.splitlines()[1:]] == ["retry", "cancel"]
    assert desk.ff("operations", "show", name) == Exit.OK
    assert "cancel reason=enough" in desk.out
    assert "execution_kind=brief" in desk.out
    assert desk.json("events", "--kind", "operator", "--type", "operation_ended")


@pytest.mark.parametrize(
    ("command", "filters"),
    [("hold", ()), ("priority", ()), ("release", ()), ("release", ("--reason", "mismatch"))],
)
def test_every_command_has_its_operation(
    desk: Desk, command: str, filters: tuple[str, ...]
) -> None:
    fill(desk, "brief", 5)
    number = ("7",) if command == "priority" else ()
    if command == "release" and not filters:
        assert desk.ff("hold", "--all", "--yes") == Exit.OK
    code = desk.ff(command, *number, "--all", "--yes", *filters)
    said = {"hold": "held", "priority": "now of priority 7", "release": "released"}[command]
    if filters:  # none is held for that
        assert (code, "no executions match" in desk.err) == (Exit.OK, True)
    else:
        assert (code, desk.out) == (Exit.OK, f"5 executions {said}\n"), desk.err


def test_without_a_wait_it_is_left_to_engines_and_can_be_stopped(desk: Desk) -> None:
    fill(desk, "brief", 5)
    assert desk.ff("hold", "--all", "--yes", "--no-wait") == Exit.OK
    first = desk.out.strip()
    assert desk.json("operations", "show", first)["state"] == "running"
    assert desk.json("operations", "stop", first)["state"] == "stopped"
    assert desk.ff("operations", "show", first, "--wait") == Exit.OK
    assert "stopped" in desk.out
    second = desk.json("hold", "--all", "--yes", "--no-wait")["operation_id"]
    assert desk.json("operations", "show", second, "--wait")["done"] == 5
    unknown = "01890000-0000-7000-8000-000000000001"
    for action in ("show", "stop"):
        assert desk.ff("operations", action, unknown) == Exit.NOT_FOUND
        assert "ff operations" in desk.err
        assert desk.ff("operations", action, "x") == Exit.USAGE
    assert desk.ff("operations", "ls", "--state", "odd") == Exit.USAGE


def test_refusals_decide_the_exit_as_they_do_one_by_one(desk: Desk) -> None:
    fill(desk, "brief", 5)
    words = ("retry", "--state", "waiting", "--yes")
    answer = desk.json(*words, code=Exit.REFUSED)
    assert (answer["done"], answer["refused"]) == (0, {"execution_not_terminal": 5})


def test_interrupted_it_says_that_the_operation_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(desk, "brief", 5)

    async def interrupts(self: EngineBackend, *, operation_id: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    monkeypatch.setattr(EngineBackend, "describe_operation", interrupts)
    monkeypatch.setattr(bulk, "_LOOK_EVERY_S", 0.0)
    error = desk.json("hold", "--all", "--yes", code=Exit.INTERRUPTED)["error"]
    monkeypatch.undo()
    assert "goes on" in error["detail"]
    assert f"ff operations stop {error['operation_id']}" in error["detail"]
    found = desk.json("operations", "show", error["operation_id"], "--wait")
    assert (found["state"], found["done"]) == ("done", 5)
