"""Workers that die around the commit of a transaction: python -m tests.chaos.seller_process …

For each line it is told it makes a worker out of itself, and says `died` at its end; a worker says
`began` in each step. One that is told a number kills itself in its so-many-th step: up to a few
milliseconds after the function returned, which is before, in or after the commit. One that is told
0 lives.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from typing import Any

import asyncpg

from flowfabric import Context, Fabric, Worker
from flowfabric.config import EngineConfig
from flowfabric.ids import new_secret_id
from tests.chaos.worker_process import say

STEPS = 3
LEASE = "1s"
NEAR_S = 0.006  # a function that returned is recorded by then, mostly
RECOVERIES = 1_000


class Till:
    """Where rows go, and when the process dies."""

    def __init__(self, url: str, dies_in: int) -> None:
        self._url = url
        self._left = dies_in
        self.pool: Any = None

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self._url, min_size=1, max_size=3)

    async def sell(self, connection: Any, number: int) -> str:
        """A row, and the same word as the result; another one each time."""
        word = f"{number}={new_secret_id()}"
        say("began")
        await connection.execute("INSERT INTO sold VALUES ($1)", word)
        self._left -= 1
        if self._left == 0:
            threading.Timer(
                random.random() * NEAR_S, os.kill, (os.getpid(), signal.SIGKILL)
            ).start()
        return word


def selling_fabric(url: str, till: Till) -> Fabric:
    """With the one task."""
    ff = Fabric(url, config=EngineConfig(pool_size=3, poll_interval_ms=100))

    @ff.task(recoveries=RECOVERIES)
    async def order(ctx: Context) -> list[str]:
        return [await ctx.transaction("sell", till.pool, till.sell, n) for n in range(STEPS)]

    return ff


async def work(url: str, shop: str, name: str, dies_in: int) -> None:
    till = Till(shop, dies_in)
    await till.open()
    fabric = selling_fabric(url, till)
    await Worker(fabric, worker_id=name, concurrency=4, lease_ttl=LEASE).run()


def main() -> None:
    url, name, _mode, shop = sys.argv[1:]
    alive, nest = os.pipe()
    for count, line in enumerate(sys.stdin):
        child = os.fork()
        if child == 0:
            os.close(nest)
            threading.Thread(target=_die_with_the_nest, args=(alive,), daemon=True).start()
            random.seed(count)
            asyncio.run(work(url, shop, f"{name}-{count}", int(line)))
        os.waitpid(child, 0)
        say("died")


def _die_with_the_nest(alive: int) -> None:
    os.read(alive, 1)
    os._exit(1)


if __name__ == "__main__":
    main()
