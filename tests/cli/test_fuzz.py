"""Whatever is typed and whatever is stored: a documented exit code, one line, no traceback, and no
control character on the terminal."""

from __future__ import annotations

import io
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode
from flowfabric.cli import main
from flowfabric.cli.commands.completion import Place, places
from flowfabric.cli.exits import Exit
from flowfabric.cli.parser import build_parser
from flowfabric.engine.engine import Engine
from flowfabric.model.attempt import FailureClass
from tests.cli.desk import Desk

UNKNOWN_ID = "{fp:29}:01a1eb6f-1e9b-7000-aceb-fecfaefe10e5"
STRANGE = (
    *("", " ", "-", "--", "-1", "0", "1e9", "99999999999999999999999", "9" * 5000, "1.5", "NaN"),
    *("a", "a=b", "a.b=c", "a:=1", "a:={", "a:=" + "[" * 3000, "=", "latest", "ffff", "{fp:1}:x"),
    *("x" * 70_000, "日本", "e\u0301", "\u202e", "\x1b[2J", "a\x00b", "a\nb", "\ud800", "%s%n"),
    *("10ms", "100000000000d", "2026-11-16T08:00", "9999-12-31T23:59:59", "0001-01-01", "lane:x"),
    *("../../etc/passwd", "app:ff", "tokens=5", "tokens=+5", "tokens=-5", UNKNOWN_ID),
)
HOSTILE = "a\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\r\nb"
# They run until they are stopped, or measure for long.
ENDLESS = ("worker", "bench", "serve", "conformance")
# They wait for more, or are about the program itself.
NOT_GIVEN = ("--url", "-h", "--help", "--version", "--debug", "--follow", "-f")
EVERY = [each for each in places(build_parser()) if each.path.partition(" ")[0] not in ENDLESS]


class _Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def buffer(self) -> Any:
        return io.BytesIO()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "fuzz.db"


def a_screen(monkeypatch: pytest.MonkeyPatch) -> _Screen:
    """Called in the test itself: pytest puts its own stream back between fixture and test."""
    found = _Screen()
    monkeypatch.setattr(sys, "stdout", found)
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(sys, "stdin", io.StringIO("not a link\n"))
    monkeypatch.setenv("COLUMNS", "80")
    return found


def checked(words: list[str], screen: _Screen) -> str:
    """Run it, and hold what every command promises."""
    screen.seek(0)
    screen.truncate()
    code = main([*words, "--no-color"])
    told = screen.getvalue()
    assert told or code == Exit.OK, words
    assert code in list(Exit), (words, code)
    assert "Traceback" not in told, (words, told)
    assert "--debug for the traceback" not in told, (words, told)  # an error nobody foresaw
    bare = told.replace("\r\x1b[2K", "")  # our own progress line
    strange = {c for c in bare if not (c.isprintable() or c in "\n\ud800")}
    assert not strange, (words, strange)
    return told


def calls(place: Place, random_: random.Random) -> Iterator[list[str]]:
    """The command with nothing, with strange positionals, and with strange values of options."""
    path = place.path.split()
    yield path
    for count in (1, 1, 2, 2, 3):
        yield [*path, *(random_.choice(STRANGE) for _ in range(count))]
    usual = ["latest", "publish", "a"][: random_.randrange(4)]
    for option, (_, values) in place.options.items():
        if option in NOT_GIVEN:
            continue
        if values is None:
            yield [*path, *usual, option]
            continue
        yield [*path, *usual, option, random_.choice(STRANGE)]
        yield [*path, *usual, f"{option}={random_.choice(STRANGE)}"]


@pytest.mark.parametrize("place", EVERY, ids=[each.path or "ff" for each in EVERY])
def test_strange_words_end_with_a_documented_exit_code(
    place: Place, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = a_screen(monkeypatch)
    random_ = random.Random(place.path)
    url = f"sqlite:///{store}"
    checked(["submit", "greet", "--url", url], screen)
    for words in calls(place, random_):
        checked([*words, "--url", url], screen)


@pytest.mark.parametrize("url", [each for each in STRANGE if each != ""])
def test_a_strange_url_is_refused(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = a_screen(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for prefix in ("", "sqlite:///", "postgresql://127.0.0.1:1/"):
        checked(["ps", "--url", prefix + url], screen)
    assert not list(tmp_path.glob("*.db"))


SPOILED = {
    "ff_route": ("execution_kind",),
    "ff_lane_registry": ("reason",),
    "ff_exec_core": (
        *("blocking_detail", "failure_reason", "failure_category", "cancellation_reason"),
        *("progress_message", "worker_id", "worker_instance_id"),
    ),
    "ff_exec_body": ("payload",),
    "ff_attempt": ("failure_reason", "worker_id", "worker_instance_id", "result"),
    "ff_flow_core": ("flow_kind", "cancel_reason"),
    "ff_flow_member": ("node_name",),
}


def test_stored_control_characters_never_reach_a_terminal(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it is refused at every entrance; a terminal is safe from what got in otherwise."""

    async def work(engine: Engine) -> list[str]:
        node = FlowNode(name="a", execution=NewExecution(execution_kind="k"))
        await engine.submit_flow(flow_kind="f", nodes=[node])
        for failure in (None, "broken"):
            await engine.create_execution(execution_kind="k")
            [claimed] = await engine.claim(
                lanes=["default"], worker_id="w", worker_instance_id="i", limit=1
            )
            if failure is None:
                await engine.complete(claimed.handle, result=b"x")
            else:
                await engine.fail(
                    claimed.handle, reason=failure, failure_class=FailureClass.PERMANENT
                )
        listed = await engine.list_executions()
        return [each.execution_id for each in listed.items]

    ids = desk.given(work)
    with closing(sqlite3.connect(desk.path)) as connection, connection:
        for table, columns in SPOILED.items():
            for column in columns:
                spoil = f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL"
                value = HOSTILE.encode() if column in ("payload", "result") else HOSTILE
                connection.execute(spoil, (value,))
    screen = a_screen(monkeypatch)
    commands = [["ps"], ["lanes"], ["flow"], ["flow", "show", "latest"], ["workers"], ["doctor"]]
    commands += [[word, each] for word in ("show", "why", "result") for each in ids]
    shown = 0
    for words in commands:
        for option in ([], ["--json"]):
            told = checked([*words, *option, "--url", desk.url], screen)
            shown += "owned" in told
    assert shown > 10
