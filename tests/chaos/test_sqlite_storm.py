"""A storm over one SQLite file: the disk fills up, the file is locked, processes are stopped and
killed, all at random, while workers spend, wait and spawn.

FF_STORM_S=60 at night (`bin/soak`).
"""

from __future__ import annotations

import resource
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import which

import pytest

from tests.chaos.processes import Crew, crew
from tests.chaos.weather import Weather, storm_over

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

DISK_MIB = 64


def mounted(folder: Path) -> bool:
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(folder)]
    if which(words[0]) is None:
        return False
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk that can be filled, where the test may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with ExitStack() as stack:
        if mounted(folder):
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
            (folder / ".own").touch()
        yield folder


class DiskWeather(Weather):
    """What happens to a file."""

    def __init__(self, disk: Path, workers: Crew) -> None:
        super().__init__(workers)
        self._disk = disk

    def faults(self) -> list[Callable[[], None]]:
        always = [*super().faults(), self.lock, self.no_room_for_one]
        return [*always, self.full] if (self._disk / ".own").exists() else always

    def lock(self) -> None:
        """A backup tool, a shell: something holds the write lock."""
        with closing(sqlite3.connect(self._disk / "ff.db", isolation_level=None)) as rival:
            try:
                rival.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:  # the workers leave no gap
                return
            self.last()
            rival.execute("ROLLBACK")

    def no_room_for_one(self) -> None:
        """One process cannot make files longer: its writes fail in the middle."""
        worker = self.someone()
        worker.limit(resource.RLIMIT_FSIZE, self._rng.choice([0, 4096, 100_000]))
        self.last()
        worker.limit(resource.RLIMIT_FSIZE, resource.RLIM_INFINITY)

    def full(self) -> None:
        """No byte is left for anyone."""
        ballast = self._disk / "ballast"
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(bytes(65536)):
                continue
        self.last()
        ballast.unlink()


def test_a_storm_over_one_file_fails_nothing(disk: Path) -> None:
    url = f"sqlite:///{disk / 'ff.db'}"
    with crew(url) as workers:
        storm_over(url, workers, DiskWeather(disk, workers))
