"""Worker processes under a test's thumb: started, heard, stopped and killed."""

from __future__ import annotations

import os
import resource
import selectors
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from flowfabric.clock import monotonic
from tests.chaos.nursery import Born

ROOT = Path(__file__).parents[2]
WORKER = "tests.chaos.worker_process"
DISK = "/var/tmp"  # temporary, but not in memory
PATIENCE_S = 240.0  # reached only by a bug, however busy the machine is


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file whose writer may have been killed in the middle of the last one: what the
    line is about had not gone on."""
    return path.read_bytes().split(b"\n")[:-1]


class WorkerProcess:
    """One process and what it has said."""

    def __init__(self, name: str, module: str, *words: str) -> None:
        self.name = name
        self.said: list[list[str]] = []
        self._rest = b""
        self._process = Born(str(ROOT), module, words)
        os.set_blocking(self.pipe.fileno(), False)

    @property
    def pipe(self) -> IO[bytes]:
        return self._process.stdout

    def heard(self, word: str) -> int:
        """How often it said that."""
        return sum(line[0] == word for line in self.said)

    def listen(self) -> None:
        """Take in what it has said since; half a line waits for its end."""
        while chunk := self.pipe.read():
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        self.said += [line.decode().split(" ") for line in lines if line]

    def is_running(self) -> bool:
        return self._process.is_running()

    def wait_for_end(self) -> None:
        """Until it has killed itself; hear its last words."""
        ended = self._process.wait(PATIENCE_S)
        self.listen()
        assert ended == -signal.SIGKILL, f"{self.name} ended with {ended}: {self.said[-3:]}"

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def limit(self, what: int, most: int) -> None:
        """Set a resource limit of the process from outside (Linux)."""
        hard = resource.prlimit(self._process.pid, what)[1]
        resource.prlimit(self._process.pid, what, (most, hard))

    def tell(self, line: str) -> None:
        """A line on its standard input."""
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """kill -9, and hear its last words."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.listen()
        self.pipe.close()
        self._process.stdin.close()


class Crew:
    """Several processes; a test waits until one of them says something."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._selector = selectors.DefaultSelector()
        self._count = 0
        self.alive: list[WorkerProcess] = []
        self.buried: list[WorkerProcess] = []

    def hire(self, mode: str, module: str = WORKER, *words: str) -> WorkerProcess:
        self._count += 1
        name = f"{mode}-{self._count}"
        worker = WorkerProcess(name, module, self._url, name, mode, *words)
        self._selector.register(worker.pipe, selectors.EVENT_READ)
        self.alive.append(worker)
        return worker

    def kill(self, worker: WorkerProcess) -> None:
        self._selector.unregister(worker.pipe)
        worker.kill()
        self.alive.remove(worker)
        self.buried.append(worker)

    def listen(self, timeout_s: float) -> None:
        """Wait until somebody speaks, no longer than that."""
        self._selector.select(timeout_s)
        for worker in self.alive:
            worker.listen()
            assert worker.is_running(), f"{worker.name} ended by itself: {worker.said[-3:]}"

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Listen until something is true; a test that waits in vain says for what."""
        deadline = monotonic() + PATIENCE_S
        while not condition():
            assert monotonic() < deadline, f"in vain: {what}"
            self.listen(0.1)

    def lines(self, word: str) -> Iterator[list[str]]:
        """Everything anybody said that begins with a word."""
        for worker in (*self.buried, *self.alive):
            yield from (line[1:] for line in worker.said if line[0] == word)

    def dismiss(self) -> None:
        for worker in list(self.alive):
            self.kill(worker)
        self._selector.close()


@contextmanager
def crew(url: str) -> Iterator[Crew]:
    """Nobody outlives the test."""
    members = Crew(url)
    try:
        yield members
    finally:
        members.dismiss()
