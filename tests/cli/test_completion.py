"""Shell completion: each shell reads its script and offers what the grammar has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowfabric.cli import main
from flowfabric.cli.commands.completion import places
from flowfabric.cli.exits import Exit
from flowfabric.cli.parser import build_parser
from tests.cli.desk import Desk

ASK = {
    "bash": """source {script}
COMP_WORDS=({words}); COMP_CWORD=$(({count}-1)); COMPREPLY=(); __ff; echo "${{COMPREPLY[*]}}" """,
    "zsh": """autoload -Uz compinit; compinit -u -D; source {script}
compadd() {{ print -r -- "${{@[2,-1]}}" }}
_files() {{ print -r -- files }}
words=({words}); CURRENT={count}; _ff""",
    "fish": "source {script}; complete -C {line}",
}
PLAIN = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["-N"]}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The three scripts, and an `ff` for them to ask."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in ASK:
        command = [sys.executable, "-m", "flowfabric.cli", "completion", shell]
        made = subprocess.run(command, capture_output=True, text=True, check=True)
        (folder / f"ff.{shell}").write_text(made.stdout)
    program = folder / "ff"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m flowfabric.cli "$@"\n')
    program.chmod(0o755)
    return folder


def offered(shell: str, scripts: Path, *words: str, url: str = "") -> set[str]:
    """What is offered for the last word; zsh itself narrows it down to what was typed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    quoted = " ".join(f"'{word}'" for word in words)
    program = ASK[shell].format(
        script=scripts / f"ff.{shell}", words=quoted, count=len(words), line=f"'{' '.join(words)}'"
    )
    done = subprocess.run(
        [shell, *PLAIN[shell], "-c", program],
        env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "FLOWFABRIC_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == "", done.stderr
    if shell == "fish":
        return {line.partition("\t")[0] for line in done.stdout.splitlines()}
    found = set(done.stdout.split())
    return {word for word in found if word.startswith(words[-1])} or found & {"files"}


CASES = [
    (("ff", "canc"), {"cancel"}),
    (("ff", "--url", "memory://", "canc"), {"cancel"}),
    (("ff", "ps", "--sta"), {"--state"}),
    (("ff", "cancel", "--state", "wait"), {"waiting", "waiting_children"}),
    (("ff", "waits", "approve", "--pay"), {"--payload"}),
    (("ff", "lanes", "pau"), {"pause"}),
    (("ff", "flow", "--url", "memory://", "show", "--wat"), {"--watch"}),
    (("ff", "budget", "create", "x", "--on-hard", "canc"), {"cancel_pending"}),
    (("ff", "show", "lat"), {"latest"}),
]
FEW = 5  # for the shells that read the same tables, or say the same in their own words


@pytest.mark.parametrize(
    ("shell", "words", "expected"),
    [(shell, *case) for shell in ASK for case in (CASES if shell == "bash" else CASES[:FEW])],
)
def test_a_word_is_completed(
    shell: str, scripts: Path, words: tuple[str, ...], expected: set[str]
) -> None:
    assert offered(shell, scripts, *words) == expected


@pytest.mark.parametrize("shell", ASK)
def test_names_of_the_store_are_asked_for(shell: str, scripts: Path, desk: Desk) -> None:
    desk.submit("render", "--lane", "video")
    desk.submit("greet", "--lane", "odd;lane")
    assert desk.ff("budget", "create", "gpt", "--hard", "tokens=1") == Exit.OK
    assert desk.ff("quota", "create", "calls", "--starts", "1") == Exit.OK

    def asked(*words: str) -> set[str]:
        return offered(shell, scripts, *words, url=desk.url)

    assert asked("ff", "ps", "--lane", "v") == {"video"}
    if shell != "bash":
        return
    assert asked("ff", "ps", "--lane", "odd") == set()  # a shell would take it apart
    assert asked("ff", "ps", "--kind", "r") == {"render"}
    assert asked("ff", "submit", "gr") == {"greet"}
    assert asked("ff", "budget", "show", "g") == {"gpt"}
    assert asked("ff", "quota", "show", "c") == {"calls"}


@pytest.mark.parametrize("shell", ASK)
def test_where_there_is_no_store_nothing_is_said(shell: str, scripts: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/none.db"
    assert offered(shell, scripts, "ff", "ps", "--lane", "v", url=url) == set()
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("shell", ASK)
def test_files_are_offered_where_a_file_is_wanted(
    shell: str, scripts: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "secret-key").write_text("")
    monkeypatch.chdir(tmp_path)
    found = offered(shell, scripts, "ff", "keys", "rotate", "--secret-file", "secret")
    assert found in ({"secret-key"}, {"files"})


def test_every_command_and_option_is_in_every_script(scripts: Path) -> None:
    for shell in ASK:
        text = (scripts / f"ff.{shell}").read_text()
        for place in places(build_parser()):
            assert all(word in text for word in place.words)
            for option in place.options:
                assert option in text or f"-l {option[2:]} " in text or f"-s {option[1:]} " in text


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "fihs"]) == Exit.USAGE
    assert "did you mean fish?" in capsys.readouterr().err
