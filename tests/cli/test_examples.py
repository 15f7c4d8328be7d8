"""What newcomers run first works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_hello_says_hello(tmp_path: Path) -> None:
    done = run("hello.py", tmp_path, FLOWFABRIC_URL=f"sqlite:///{tmp_path / 'hello.db'}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello, world\n"


def test_the_token_budget_warns_stops_and_goes_on(tmp_path: Path) -> None:
    done = run("token_budget.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = done.stdout.split("an operator: ")
    assert "tides: tokens 900 is over 800" in before
    assert "tides: no room, tokens 1200/1200" in before
    assert "tokens      [#############|######] 100%  1200 of 1200" in before
    for prompt in ("solar", "wind"):
        assert f"{prompt:12}ended: completed" in before
    for prompt in ("tides", "geothermal", "fusion"):
        assert f"{prompt:12}budget prompts: tokens 1200/1200" in before
        assert f"{prompt:12}" in after
    assert "done:\n" in after
    assert not [line for line in after.splitlines() if "no room" in line]


def test_the_approval_needs_two_people(tmp_path: Path) -> None:
    done = run("approval.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [(who, what.split(":")[0]) for who, _, what in (a.partition(": ") for a in answers)] == [
        ("mallory", "refused, invalid_token"),
        ("ada", "refused, invalid_payload"),
        ("ada", "appended_to_waitpoint"),
        ("ada", "appended_to_waitpoint_duplicate"),
        ("ada", "appended_to_waitpoint"),
        ("grace", "resume_condition_satisfied"),
        ("joan", "refused, target_not_signalable"),
    ]
    assert "sources on deploy (0/2); when its time is over, it is cancelled" in done.stdout
    assert "(1/2)" in done.stdout
    told = "approved by user:ada (tests are green), user:grace (looks good)"
    assert told in done.stdout
    assert not done.stderr
    assert "k1:" not in done.stdout
    assert "ffw1." not in done.stdout


@pytest.mark.slow
@pytest.mark.chaos
def test_the_demo_shows_durability_without_a_terminal(tmp_path: Path) -> None:
    done = run("demo.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    for told in ("interrupted_reclaimed", "ended_success", "kill -9", "why", "frame 20 of 20"):
        assert told in done.stdout
    assert not [c for c in done.stdout if not (c.isprintable() or c == "\n")]
