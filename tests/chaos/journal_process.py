"""Workers of handlers with steps, to be killed: python -m tests.chaos.journal_process …

In the mode `stuck` the process is a worker; in the body of the seventh step of an execution it says
`seventh` and waits to be killed. In the mode `nest` it makes a worker out of itself whenever it is
told a name: that takes milliseconds, a new process most of a second. Such a worker says `born PID`
and, in the body of each step, `step PID`. It does not outlive the nest.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from flowfabric import Worker
from tests.chaos.journaled import LEASE, Notes, journaled_fabric
from tests.chaos.worker_process import say
from tests.support.effects import Effect

STUCK_AT = 7


def stick(effect: Effect) -> None:
    """Block where the test kills the process."""
    if effect.key.endswith(f"#{STUCK_AT}"):
        say("seventh")
        time.sleep(600)


async def work(
    url: str, name: str, folder: Path, lease: str, on_effect: Callable[[Effect], None]
) -> None:
    fabric = journaled_fabric(url, Notes(folder / f"{name}.notes"), on_effect)
    await Worker(fabric, worker_id=name, concurrency=20, lease_ttl=lease).run()


def say_step(effect: Effect) -> None:
    """A body has begun, in this process."""
    say("step", os.getpid())


def hatch(url: str, folder: Path, lease: str) -> None:
    """A worker for each line."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead are not kept
    alive, nest = os.pipe()
    for line in sys.stdin:
        if os.fork() == 0:
            os.close(nest)
            threading.Thread(target=_die_with_the_nest, args=(alive,), daemon=True).start()
            say("born", os.getpid())
            asyncio.run(work(url, line.strip(), folder, lease, say_step))


def _die_with_the_nest(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("mode", choices=("stuck", "nest"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("lease", nargs="?", default=LEASE)
    asked = parser.parse_args()
    if asked.mode == "nest":
        hatch(asked.url, asked.folder, asked.lease)
    else:
        asyncio.run(work(asked.url, asked.name, asked.folder, asked.lease, stick))


if __name__ == "__main__":
    main()
