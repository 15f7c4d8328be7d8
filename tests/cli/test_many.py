"""cancel, retry, hold, release and priority of everything that filters choose."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution
from flowfabric.cli.exits import Exit
from flowfabric.errors import StoreUnavailable
from tests.cli.desk import Desk


def fill(desk: Desk, kind: str, number: int) -> list[str]:
    async def work(engine: EngineBackend) -> list[str]:
        made = await engine.create_executions([NewExecution(execution_kind=kind)] * number)
        return [each.execution_id for each in made]

    return desk.given(work)


def states(desk: Desk) -> dict[str, int]:
    counted: dict[str, int] = {}
    for each in desk.json("ps", "--all")["executions"]:
        counted[each["public_state"]] = counted.get(each["public_state"], 0) + 1
    return counted


def test_all_that_fit_are_cancelled_page_by_page(desk: Desk) -> None:
    fill(desk, "brief", 450)
    kept = desk.submit("other")
    assert desk.ff("cancel", "--kind", "brief", "--yes", "--reason", "enough") == Exit.OK
    assert desk.out == "450 executions cancelled\n"
    assert states(desk) == {"cancelled": 450, "waiting": 1}
    assert desk.json("show", kept)["public_state"] == "waiting"


def test_a_dry_run_counts_and_changes_nothing(desk: Desk) -> None:
    fill(desk, "brief", 3)
    assert desk.ff("cancel", "--kind", "brief", "--dry-run") == Exit.OK
    assert desk.out == "3 executions would be cancelled\n"
    answer = desk.json("cancel", "--kind", "brief", "--dry-run", "--yes")
    assert answer == {"dry_run": True, "matched": 3}
    assert states(desk) == {"waiting": 3}


def test_without_a_terminal_it_wants_yes(desk: Desk) -> None:
    fill(desk, "brief", 2)
    assert desk.ff("cancel", "--kind", "brief") == Exit.USAGE
    assert "this would cancel 2 executions — add --yes" in desk.err
    error = desk.json("cancel", "--kind", "brief", code=Exit.USAGE)["error"]
    assert (error["code"], error["matched"]) == ("confirmation_needed", 2)
    assert states(desk) == {"waiting": 2}


def test_a_filter_without_matches_asks_nothing(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("cancel", "--kind", "brief") == Exit.OK
    assert "no executions match" in desk.err


def test_without_a_state_each_command_takes_those_it_is_for(desk: Desk) -> None:
    failed, done = desk.failed(), desk.completed()
    waiting = desk.submit("greet")
    assert desk.ff("retry", "--all", "--yes") == Exit.OK
    assert desk.out == "1 execution to be run again\n"
    assert desk.json("show", failed)["replay_count"] == 1
    assert desk.ff("priority", "7", "--all", "--yes") == Exit.OK
    assert desk.out == "2 executions now of priority 7\n"
    assert desk.json("show", waiting)["priority"] == 7
    assert desk.ff("hold", "--kind", "greet", "--yes") == Exit.OK
    assert "held" in desk.json("why", waiting)["summary"]
    assert desk.ff("release", "--kind", "greet", "--yes") == Exit.OK
    assert desk.out == "2 executions released\n"
    assert desk.ff("cancel", "--since", "1h", "--yes") == Exit.OK
    assert desk.out == "2 executions cancelled\n"
    assert desk.json("show", done)["public_state"] == "completed"


def test_those_that_refuse_are_counted_and_decide_the_exit(desk: Desk) -> None:
    desk.completed()
    desk.submit()
    words = ("--state", "completed,waiting", "--yes")
    assert desk.ff("cancel", *words) == Exit.FAILED
    assert desk.out == "1 execution cancelled\n"
    assert "1 refused (1 execution_not_active)" in desk.err
    answer = desk.json("retry", "--state", "waiting", "--yes")
    assert answer == {"matched": 0, "done": 0, "refused": {}}
    desk.submit()
    answer = desk.json("retry", "--state", "waiting", "--yes", code=Exit.REFUSED)
    assert answer == {"matched": 1, "done": 0, "refused": {"execution_not_terminal": 1}}


@pytest.mark.parametrize("command", ["cancel", "retry", "hold", "release", "priority"])
def test_every_filter_narrows(desk: Desk, command: str) -> None:
    desk.submit("brief", "--lane", "x", "--tag", "team.name=a")
    desk.submit("brief", "--lane", "y", "--namespace", "acme")

    def matched(*words: str) -> int:
        number = ("5",) if command == "priority" else ()
        document = desk.json(command, *number, "--state", "waiting", *words, "--dry-run")
        return int(document["matched"])

    assert matched() == 2
    assert matched("--kind", "brief") == 2
    assert matched("--kind", "other") == 0
    assert matched("--lane", "x") == 1
    assert matched("--tag", "team.name=a") == 1
    assert matched("--namespace", "acme") == 1
    assert matched("--since", "1h") == 2
    assert matched("--since", "2099-01-01") == 0
    assert matched("--before", "1h") == 0
    assert matched("--before", "2099-01-01") == 2


@pytest.mark.parametrize("command", ["cancel", "retry", "hold", "release", "priority"])
def test_ids_or_filters_and_not_nothing(desk: Desk, command: str) -> None:
    execution_id = desk.submit()
    number = ("5",) if command == "priority" else ()
    assert desk.ff(command, *number) == Exit.USAGE
    assert "--all" in desk.err
    assert desk.ff(command, *number, "--namespace", "default") == Exit.USAGE  # a habit, no choice
    assert desk.ff(command, execution_id, *number, "--kind", "greet", "--yes") == Exit.USAGE
    assert "give one of them" in desk.err
    assert desk.ff(command, execution_id, *number, "--dry-run") == Exit.USAGE
    assert states(desk) == {"waiting": 1}


def test_priority_takes_several_ids_and_then_its_number(desk: Desk) -> None:
    first, second = desk.submit(), desk.submit()
    assert desk.ff("priority", first, second[-8:], "12") == Exit.OK
    assert desk.out.count("priority 0 → 12") == 2
    assert desk.ff("priority", first, "high") == Exit.USAGE
    assert desk.ff("priority", "?", "3") == Exit.USAGE


def test_when_the_store_fails_it_says_how_far_it_came(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(desk, "brief", 250)
    cancel = EngineBackend.cancel_execution

    async def fails(self: EngineBackend, *, execution_id: str, **fields: object) -> object:
        if execution_id == ids[10]:  # newest first: on the second page
            raise StoreUnavailable("the store is gone")
        return await cancel(self, execution_id=execution_id, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineBackend, "cancel_execution", fails)
    assert desk.ff("cancel", "--kind", "brief", "--yes") == Exit.UNAVAILABLE
    assert "249 of 250 cancelled" in desk.err
    assert "the store is gone" in desk.err


def test_interrupted_it_says_how_many_were_done(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(desk, "brief", 500)
    cancel = EngineBackend.cancel_execution
    calls = 0

    async def interrupts(self: EngineBackend, **fields: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 250:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0)
        return await cancel(self, **fields)  # type: ignore[arg-type]

    monkeypatch.setattr(EngineBackend, "cancel_execution", interrupts)
    assert desk.ff("cancel", "--kind", "brief", "--yes") == Exit.INTERRUPTED
    assert "interrupted: 400 of 500 cancelled" in desk.err
    monkeypatch.undo()
    assert states(desk) == {"cancelled": 400, "waiting": 100}


# --- at a terminal --------------------------------------------------------------------------------


class Screen:
    """`ff` on a terminal of 80 columns."""

    def __init__(self, desk: Desk, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "flowfabric.cli", *words, "--url", desk.url]
        self.process = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "COLUMNS": "80", "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""

    def until(self, words: str) -> None:
        while words not in self.text:
            ready, _, _ = select.select([self.ours], [], [], 60)
            assert ready, self.text
            self.text += os.read(self.ours, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def end(self) -> int:
        code = self.process.wait(60)
        while select.select([self.ours], [], [], 0)[0]:
            try:
                self.text += os.read(self.ours, 4096).decode()
            except OSError:  # the other side is closed
                break
        os.close(self.ours)
        return code


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("\n", 1)])
def test_at_a_terminal_it_asks(desk: Desk, answer: str, code: int) -> None:
    fill(desk, "brief", 2)
    screen = Screen(desk, "cancel", "--kind", "brief")
    screen.until("cancel 2 executions? [y/N] ")
    screen.type(answer)
    assert screen.end() == code, screen.text
    assert ("nothing was changed" in screen.text) is bool(code)
    assert states(desk) == ({"waiting": 2} if code else {"cancelled": 2})


def test_the_question_can_be_interrupted(desk: Desk) -> None:
    fill(desk, "brief", 2)
    screen = Screen(desk, "cancel", "--kind", "brief")
    screen.until("[y/N] ")
    screen.process.send_signal(signal.SIGINT)
    assert screen.end() == Exit.INTERRUPTED, screen.text
    assert "Traceback" not in screen.text
    assert states(desk) == {"waiting": 2}


def test_a_listing_fits_80_columns_of_a_terminal(desk: Desk, tmp_path: Path) -> None:
    fill(desk, "a_kind_with_a_name_that_is_longer_than_anybody_needs", 2)
    desk.submit("brief", "--lane", "a-lane-with-a-rather-long-name", "--priority", "8999")
    desk.ff("cancel", "latest", "--reason", "because " * 30)
    screen = Screen(desk, "ps", "--no-color")
    assert screen.end() == 0
    lines = screen.text.replace("\r", "").splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80, screen.text
    assert "because because" in screen.text
