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


@pytest.mark.slow
@pytest.mark.chaos
def test_the_demo_shows_durability_without_a_terminal(tmp_path: Path) -> None:
    done = run("demo.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    for told in ("interrupted_reclaimed", "ended_success", "kill -9", "why", "frame 20 of 20"):
        assert told in done.stdout
    assert not [c for c in done.stdout if not (c.isprintable() or c == "\n")]
