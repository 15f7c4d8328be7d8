"""Threads for sync tasks. They are daemons: a hanging handler cannot keep the process alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """As many threads as run at once, started when needed, up to a bound."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._count = 0
        self._idle = 0
        self._lock = threading.Lock()

    def run(self, job: Callable[[], None]) -> None:
        """Run a job in an idle thread, a new one, or the first that becomes idle."""
        with self._lock:
            self._idle -= 1  # below zero: jobs wait for a thread
            if self._idle < 0 and self._count < self._most:
                self._idle += 1
                self._count += 1
                name = f"flowfabric-task-{self._count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        self._jobs.put(job)

    def close(self) -> None:
        """Let every thread end after its current job."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            with self._lock:
                self._idle += 1
