"""A wrong command line gets one helpful line and exit code 2; nothing else happens."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flowfabric.api.operation import Request
from flowfabric.cli import commands, main
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.parser import build_parser
from flowfabric.cli.program import parse
from tests.cli.desk import Desk
from tests.support.loopback import Loopback

ROOT = Path(__file__).resolve().parents[2]
ID = "{fp:1}:0193a1f0-0000-7000-8000-000000000000"


def command_names() -> list[str]:
    parser = build_parser()
    actions = [a for a in parser._actions if isinstance(a.choices, dict)]
    return list(actions[0].choices or [])


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["pss"], "did you mean ps?"),
        (["cancle", ID], "did you mean cancel?"),
        (["ps", "--stat", "failed"], "did you mean --state?"),
        (["ps", "--state", "complet"], "did you mean completed?"),
        (["lanes", "puase", "default"], "did you mean pause?"),
        (["lanes", "pause"], "ff lanes pause LANE"),
        (["db", "migrat"], "did you mean migrate?"),
        (["bench", "cicle"], "did you mean cycle?"),
        (["submit", "greet", "name"], "name=text or name:=json"),
        (["submit", "greet", "n:={"], "is not JSON"),
        (["submit", "greet", "n=1", "n=2", "--url", "memory://"], "given twice"),
        (["submit", "greet", "--url", "memory://"], "is forgotten"),
        (["submit", "greet", "--key", ""], "--key is empty"),
        (["priority", ID, "high"], "high"),
        (["result", ID, "--wait", "soon"], "is not a duration"),
        (["ps", "--limit", "0"], "at least 1"),
        (["show"], "ID"),
        (["show", ID, "surplus"], "unknown argument"),
        ([], "ff --help"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == Exit.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("ff: ")
    assert captured.err.count("\n") == 1
    assert hint in captured.err
    assert " — " in captured.err


def test_with_json_the_mistake_is_also_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pss", "--json"]) == Exit.USAGE
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "usage"
    assert error["exit_code"] == 2
    assert error["retryable"] is False


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == Exit.OK
    shown = capsys.readouterr().out
    assert f"ff {name}" in shown
    assert "--json" in shown


def test_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == Exit.OK
    shown = capsys.readouterr().out
    for code in Exit:
        assert f"\n  {code.value} " in shown


def test_common_options_stand_before_or_after_the_command() -> None:
    before = parse(["--json", "--url", "memory://", "--namespace", "a", "ps"])
    after = parse(["ps", "--json", "--url", "memory://", "--namespace", "a"])
    mixed = parse(["--url", "memory://", "ps", "--json", "--namespace", "a"])
    for parsed in (before, after, mixed):
        assert (parsed.json, parsed.url, parsed.namespace) == (True, "memory://", "a")
    assert parse(["ps"]).json is False


def test_a_worker_may_serve_several_tenants() -> None:
    assert parse(["worker", "a:ff", "--namespace", "a", "--namespace", "b"]).namespaces == [
        "a",
        "b",
    ]
    assert parse(["--namespace", "a", "worker", "a:ff"]).namespace == "a"
    assert parse(["worker", "a:ff"]).namespaces is None


def test_positionals_may_stand_on_both_sides_of_an_option() -> None:
    assert parse(["cancel", ID, "--reason", "x", ID]).ids == [ID, ID]
    submitted = parse(["submit", "greet", "--wait", "a=1", "--lane", "x", "b:=2"])
    assert submitted.payload == [("a", "1"), ("b", 2)]


@pytest.mark.parametrize("name", command_names())
def test_every_command_is_in_the_manual(name: str) -> None:
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert f"`ff {name}" in manual


def test_the_manual_gives_every_option_and_exit_code() -> None:
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    options = {
        word
        for name in command_names()
        for word in parse_options(name)
        if word not in ("-h", "--help")
    }
    assert [word for word in sorted(options) if f"`{word}" not in manual] == []
    assert [code for code in Exit if f"| {code.value} |" not in manual] == []


def parse_options(name: str) -> list[str]:
    """The options of a command and of its actions, if it has any."""
    command = subcommands(build_parser())[name]
    parts = [command, *subcommands(command).values()]
    return [word for part in parts for word in part.option_words()]


def subcommands(parser: FfParser) -> dict[str, FfParser]:
    for action in parser._actions:
        if isinstance(action.choices, dict):
            return action.choices
    return {}


def test_every_action_of_a_command_is_in_the_manual_and_has_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    manual = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name in command_names():
        for action in subcommands(subcommands(build_parser())[name]):
            assert f"`ff {name} {action}" in manual
            assert main([name, action, "--help"]) == Exit.OK
            assert f"ff {name} {action}" in capsys.readouterr().out


def test_help_loads_no_store_and_no_driver() -> None:
    code = (
        "import sys; from flowfabric.cli import main; main(['--help']);"
        "heavy = {'asyncpg', 'sqlite3'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_file_is_the_command_word() -> None:
    folder = Path(commands.__file__).parent
    words = {file.stem for file in folder.glob("*.py")} - {"__init__"}
    assert words == {each.word for each in commands.COMMANDS}


def test_only_the_command_that_is_named_is_loaded() -> None:
    code = (
        "import sys; from flowfabric.cli import main; main(['keys', '--help']);"
        "print([name for name in sys.modules if name.startswith('flowfabric.cli.commands.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "['flowfabric.cli.commands.keys']"


def test_in_this_suite_commands_are_behind_a_wire(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ask = Loopback.call

    async def listened(self: Loopback, request: Request[Any]) -> Any:
        asked.append(type(request).__name__)
        return await ask(self, request)

    monkeypatch.setattr(Loopback, "call", listened)
    desk.submit()
    assert "NewExecution" in asked
