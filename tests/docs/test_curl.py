"""The README's curl lines, executed as written, submit, wait and print the result."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_docs import BLOCK, README, environment
from tests.support.serving import PATIENCE_S, serving

_WRITTEN = "http://127.0.0.1:9090"  # where a server listens that is told nothing
_LINES = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_lines_of_the_readme_submit_wait_and_print_the_result(tmp_path: Path) -> None:
    page = README.read_text("utf-8")
    (program,) = (each for each in BLOCK.findall(page) if each.startswith("# app.py"))
    (tmp_path / "app.py").write_text(program)
    (lines,) = _LINES.findall(page)
    given = environment(tmp_path)
    with serving(given["FLOWFABRIC_URL"], "--migrate", folder=tmp_path) as server:
        address = str(server.told["address"])
        command = [sys.executable, "-m", "flowfabric.cli", "worker", "app:ff", "--url", address]
        with (tmp_path / "worker.log").open("w") as log:
            worker = subprocess.Popen(command, cwd=tmp_path, env=given, stdout=log, stderr=log)
        try:
            submit, listing = (
                each for each in lines.replace("\\\n", " ").splitlines() if each.strip()
            )
            first, again, listed = (
                curl(each.replace(_WRITTEN, address)) for each in (submit, submit, listing)
            )
        finally:
            worker.terminate()
            assert worker.wait(PATIENCE_S) == 0, (tmp_path / "worker.log").read_text()
    assert (first["type"], again["type"]) == ("Created", "Duplicate")
    assert first["outcome"]["result"] == again["outcome"]["result"] == "all about solar"
    (run,) = listed["items"]
    assert run["execution_id"] == first["execution_id"] == again["execution_id"]


def curl(line: str) -> dict[str, Any]:
    """What one line prints."""
    words = shlex.split(line)
    assert words[0] == "curl"
    done = subprocess.run(
        [*words, "--max-time", str(PATIENCE_S), "--retry", "9"],  # a busy server says 503
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
