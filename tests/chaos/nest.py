"""A process that makes workers out of itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.chaos.journaled import LEASE
from tests.chaos.processes import Crew

PROCESS = "tests.chaos.journal_process"


class Nest:
    """A process that makes workers, and how many steps each has begun."""

    def __init__(self, workers: Crew, folder: Path, lease: str = LEASE) -> None:
        self._workers = workers
        self._process = workers.hire("nest", PROCESS, str(folder), lease)
        self._count = 0

    def hatch(self) -> int:
        """Another worker's process id."""
        self._count += 1
        self._process.tell(f"worker-{self._count}")
        self._workers.wait_until(lambda: self._process.heard("born") == self._count, "a worker")
        return int([line[1] for line in self._process.said if line[0] == "born"][-1])

    def steps(self) -> Counter[int]:
        """Of each worker."""
        return Counter(int(line[1]) for line in self._process.said if line[0] == "step")
