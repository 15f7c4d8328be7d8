"""What tests recorded, replayed in other processes with other hash seeds.

Within one process a set has one order, so a handler that depends on it replays well there, and not
where another worker takes over.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from typing import Any, Final

from flowfabric.config import environment_with
from flowfabric.testing.child import MARK
from flowfabric.testing.histories import Recorded
from flowfabric.testing.history import History, written

SEEDS: Final = ("1", "2", "3")
_EACH: Final = 5  # histories of one task
_PATIENCE_S: Final = 120.0


class Elsewhere:
    """The histories of one session of tests whose tasks another process can import."""

    def __init__(self) -> None:
        self._jobs: list[dict[str, str]] = []
        self._taken: Counter[tuple[str, str]] = Counter()

    def take(self, recorded: Recorded) -> None:
        """Keep some of what a test recorded and replayed."""
        for history, task in recorded.checked_ones.values():
            self._take(history, task.function)

    def _take(self, history: History, function: Any) -> None:
        name, place = function.__qualname__, function.__module__
        if "<" in name or place == "__main__" or self._taken[place, name] >= _EACH:
            return
        self._taken[place, name] += 1
        file = getattr(sys.modules.get(place), "__file__", None) or ""
        job = {"module": place, "file": file, "name": name, "history": written(history)}
        self._jobs.append(job)

    def check(self) -> list[str]:
        """What does not replay elsewhere."""
        if not self._jobs:
            return []
        given = json.dumps({"path": sys.path, "jobs": self._jobs})
        children = [_begun(seed) for seed in SEEDS]
        found = [_told(child, given) for child in children]
        return list(dict.fromkeys(problem for each in found for problem in each))


def _begun(seed: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "flowfabric.testing.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_with(PYTHONHASHSEED=seed),
    )


def _told(child: subprocess.Popen[str], given: str) -> list[str]:
    try:
        out, err = child.communicate(given, timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return [f"the replay in another process took longer than {_PATIENCE_S:g} s"]
    for line in out.splitlines():
        if line.startswith(MARK):
            problems: list[str] = json.loads(line.removeprefix(MARK))
            return problems
    tail = err.strip().rpartition("\n")[2]
    return [f"the replay in another process ended with {child.returncode}: {tail}"]
