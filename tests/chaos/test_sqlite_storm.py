"""A storm over one SQLite file: the disk fills up, the file is locked, processes are stopped and
killed, all at random, while workers spend, wait and spawn.

FF_STORM_S=60 at night (`bin/soak`).
"""

from __future__ import annotations

import random
import resource
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from flowfabric.clock import monotonic
from tests.chaos.processes import Crew, WorkerProcess, crew
from tests.chaos.storm import Client, check_aftermath
from tests.property.budget import budget

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

STORM_S = budget("FF_STORM_S", 5)
SEED = budget("FF_STORM_SEED", 1)
WORKERS = 3
FAULT_S = (0.2, 3.0)  # well below the lease
CALM_S = (0.1, 0.8)
DISK_MIB = 64


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk that can be filled, where the test may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    with ExitStack() as stack:
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            (folder / ".own").touch()
        yield folder


class Weather:
    """One fault at a time, each over before any lease could lapse by it."""

    def __init__(self, disk: Path, workers: Crew, rng: random.Random) -> None:
        self._disk = disk
        self._workers = workers
        self._rng = rng
        self.seen: set[str] = set()

    def faults(self) -> list[Callable[[], None]]:
        always = [self.kill, self.stop, self.lock, self.no_room_for_one]
        return [*always, self.full] if (self._disk / ".own").exists() else always

    def blow(self, until: float) -> None:
        """Every fault at least once, then at random until the time is over."""
        waiting = self.faults()
        self._rng.shuffle(waiting)
        while waiting or monotonic() < until:
            fault = waiting.pop() if waiting else self._rng.choice(self.faults())
            fault()
            self.seen.add(fault.__name__)
            self._workers.listen(self._rng.uniform(*CALM_S))

    def _last(self) -> None:
        """Let the fault last a while; the processes go on living."""
        over = monotonic() + self._rng.uniform(*FAULT_S)
        while (left := over - monotonic()) > 0:
            self._workers.listen(min(left, 0.1))

    def _someone(self) -> WorkerProcess:
        return self._rng.choice(self._workers.alive)

    def kill(self) -> None:
        self._workers.kill(self._someone())
        hire(self._workers)

    def stop(self) -> None:
        worker = self._someone()
        worker.send(signal.SIGSTOP)
        self._last()
        worker.send(signal.SIGCONT)

    def lock(self) -> None:
        """A backup tool, a shell: something holds the write lock."""
        with closing(sqlite3.connect(self._disk / "ff.db", isolation_level=None)) as rival:
            try:
                rival.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # the workers leave no gap
                return
            self._last()
            rival.execute("ROLLBACK")

    def no_room_for_one(self) -> None:
        """One process cannot make files longer: its writes fail in the middle."""
        worker = self._someone()
        worker.limit(resource.RLIMIT_FSIZE, self._rng.choice([0, 4096, 100_000]))
        self._last()
        worker.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)

    def full(self) -> None:
        """No byte is left for anyone."""
        ballast = self._disk / "ballast"
        with ballast.open("wb") as file:
            try:
                while file.write(bytes(65536)):
                    file.flush()
            except OSError:
                file.truncate(file.tell() // 65536 * 65536)
        self._last()
        ballast.unlink()


def hire(workers: Crew) -> None:
    worker = workers.hire("storm", "tests.chaos.storm_process")
    workers.wait_until(lambda: worker.heard("ready") > 0, "a worker that is ready")


def test_a_storm_over_one_file_fails_nothing(disk: Path) -> None:
    url = f"sqlite:///{disk / 'ff.db'}"
    with crew(url) as workers:
        client = Client(url)
        client.start()
        for _ in range(WORKERS):
            hire(workers)
        weather = Weather(disk, workers, random.Random(SEED))
        weather.blow(monotonic() + STORM_S)
        client.finish(lambda: workers.listen(0.2))
        workers.listen(0.2)
        check_aftermath(client, workers)
    assert client.submitted >= STORM_S
    assert weather.seen == {each.__name__ for each in weather.faults()}
