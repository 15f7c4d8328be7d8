"""The weather over one store while workers spend, wait and spawn: one fault at a time."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable

from flowfabric.clock import monotonic
from tests.chaos.processes import Crew, WorkerProcess
from tests.chaos.storm import STORM_S, Client, check_aftermath
from tests.property.budget import budget

SEED = budget("FF_STORM_SEED", 1)
WORKERS = 3
FAULT_S = (0.2, 3.0 if STORM_S > 5 else 1.2)  # well below the lease
CALM_S = (0.1, 0.8)


class Weather:
    """One fault at a time, each over before any lease could lapse by it."""

    def __init__(self, workers: Crew) -> None:
        self._workers = workers
        self._rng = random.Random(SEED)
        self.seen: set[str] = set()

    def faults(self) -> list[Callable[[], None]]:
        """What may happen; a store adds its own."""
        return [self.kill, self.stop]

    def blow(self, until: float) -> None:
        """Every fault at least once, then at random until the time is over."""
        waiting = self.faults()
        self._rng.shuffle(waiting)
        while waiting or monotonic() < until:
            fault = waiting.pop() if waiting else self._rng.choice(self.faults())
            fault()
            self.seen.add(fault.__name__)
            self._workers.listen(self._rng.uniform(*CALM_S))

    def last(self) -> None:
        """Let the fault last a while; the processes go on living."""
        over = monotonic() + self._rng.uniform(*FAULT_S)
        while (left := over - monotonic()) > 0:
            self._workers.listen(min(left, 0.1))

    def someone(self) -> WorkerProcess:
        return self._rng.choice(self._workers.alive)

    def kill(self) -> None:
        self._workers.kill(self.someone())
        hire(self._workers)

    def stop(self) -> None:
        worker = self.someone()
        worker.send(signal.SIGSTOP)
        self.last()
        worker.send(signal.SIGCONT)


def hire(workers: Crew) -> None:
    worker = workers.hire("storm", "tests.chaos.storm_process")
    workers.wait_until(lambda: worker.heard("ready") > 0, "a worker that is ready")


def storm_over(url: str, workers: Crew, weather: Weather) -> None:
    """Workers and a client through all the weather, and what must be true afterwards."""
    client = Client(url)
    client.start()
    for _ in range(WORKERS):
        hire(workers)
    weather.blow(monotonic() + STORM_S)
    client.finish(lambda: workers.listen(0.2))
    workers.listen(0.2)
    check_aftermath(client, workers)
    assert client.submitted >= STORM_S
    assert weather.seen == {each.__name__ for each in weather.faults()}
