"""The workers in an engine's own process.

Whatever stops the engine's background loop stops them too: a blocked event loop, a stopped process,
a machine that slept. So when that loop finds their leases expired, it knows that no worker was
lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowfabric.api.backend import LocalWorker


class WorkersHere:
    """The workers that share a process with an engine."""

    def __init__(self) -> None:
        self._workers: list[LocalWorker] = []
        self.ids: frozenset[str] = frozenset()

    @contextmanager
    def present(self, worker: LocalWorker) -> Iterator[None]:
        """The worker is at work while the block runs."""
        self._workers.append(worker)
        self._note()
        try:
            yield
        finally:
            self._workers.remove(worker)
            self._note()

    async def catch_up(self) -> None:
        """Let each of them renew before the loop looks for overdue leases."""
        for worker in tuple(self._workers):
            await worker.catch_up()

    def _note(self) -> None:
        self.ids = frozenset(worker.instance_id for worker in self._workers)
