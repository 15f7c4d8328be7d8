"""ff worker finds the app, works, drains, and says clearly when it cannot."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from flowfabric.cli import main
from flowfabric.cli.exits import Exit
from flowfabric.clock import monotonic
from flowfabric.sdk.worker.telling import EVENTS
from tests.cli.desk import Desk

APP = """
    from flowfabric import Context, Fabric

    ff = Fabric("sqlite:///unused.db")
    other = 1

    @ff.task
    async def greet(ctx: Context, name: str, times: int = 1) -> str:
        return "hello " * times + name

    @ff.task
    async def crash(name: str) -> str:
        raise ValueError(f"no {name} here")
"""
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cli_app.py").write_text(textwrap.dedent(APP))
    (tmp_path / "cli_broken.py").write_text("import nowhere_to_be_found")
    (tmp_path / "cli_empty.py").write_text("from flowfabric import Fabric\nff = Fabric()")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("cli_app", "cli_broken", "cli_empty"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "code", "hint"),
    [
        ("cli_app", Exit.USAGE, "app:ff"),
        ("cli_ap:ff", Exit.NOT_FOUND, "no module 'cli_ap'"),
        ("cli_app:fff", Exit.NOT_FOUND, "did you mean ff?"),
        ("cli_app:other", Exit.USAGE, "did you mean cli_app:ff?"),
        ("cli_broken:ff", Exit.FAILED, "nowhere_to_be_found"),
        ("cli_empty:ff", Exit.USAGE, "no task"),
    ],
)
def test_a_wrong_target_is_explained(
    app: Path, target: str, code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", target]) == code
    captured = capsys.readouterr()
    assert hint in captured.err
    assert captured.err.count("\n") == 1
    assert not list(app.glob("*.db"))


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--lease-ttl", "1ms"], "lease_ttl"), (["--capability", "a,b"], "capabilities")],
)
def test_a_bad_setting_is_named(
    app: Path, words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", "cli_app:ff", *words]) == Exit.USAGE
    assert named in capsys.readouterr().err
    assert app.exists()


def registered(desk: Desk) -> Any:
    """The entries of a worker, which registers for each tenant while it works already."""
    deadline = monotonic() + PATIENCE_S
    while len(found := desk.json("workers")) < 2:
        assert monotonic() < deadline, found
    return found


def start_worker(app: Path, desk: Desk, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flowfabric.cli", "worker", "cli_app:ff", "--url", desk.url]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [*command, *words],
        cwd=app,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_worker_process_runs_what_is_submitted_and_drains(app: Path, desk: Desk) -> None:
    tenants = ("--namespace", "default", "--namespace", "b")
    process = start_worker(app, desk, "--concurrency", "2", "--json", "--quiet", *tenants)
    try:
        answer = desk.json("submit", "greet", "name=ada", "times:=2", "--wait", "--timeout", "60s")
        assert answer["result"] == "hello hello ada"
        assert desk.ff("submit", "crash", "name=ada", "--wait", "--timeout", "60s") == Exit.FAILED
        assert "no ada here" in desk.err
        tenant = ("--namespace", "b", "--wait", "--timeout", "60s")
        assert desk.json("submit", "greet", "name=bo", *tenant)["result"] == "hello bo"
        workers = registered(desk)
        assert [each["namespace"] for each in workers] == ["b", "default"]
        assert workers[0]["kinds"] == ["crash", "greet"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0, err
    told = json.loads(out)
    assert (told["concurrency"], told["namespaces"]) == (2, ["b", "default"])
    (line,) = err.splitlines()  # quiet: the failure, and nothing else
    assert " WARNING crash " in line
    assert ": ValueError: no ada here; there is no further try" in line
    assert not (app / "unused.db").exists()


def test_a_worker_logs_one_json_object_per_line_with_the_fields_of_each_event(
    app: Path, desk: Desk
) -> None:
    process = start_worker(app, desk, "--log-format", "json")
    try:
        answer = desk.json("submit", "greet", "name=ada", "--wait", "--timeout", "60s")
        assert desk.ff("submit", "crash", "name=bo", "--wait", "--timeout", "60s") == Exit.FAILED
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (0, "")
    lines = {line["event"]: line for line in map(json.loads, err.splitlines())}
    assert set(lines) == {"worker_started", "completed", "failed", "worker_stopped"}
    for event, line in lines.items():
        assert line.keys() - {"event", "time", "level", "logger", "message"} == set(EVENTS[event])
    assert lines["completed"]["execution_id"] == answer["execution_id"]
    assert lines["failed"]["reason"] == "ValueError: no bo here"
    assert lines["worker_started"]["lanes"] == ["default"]
