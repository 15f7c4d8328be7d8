"""Handlers that sleep: what they cost meanwhile, and how soon many that are due at once go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, MeasurementFailed, check_count, versions
from flowfabric.bench.statements import queries, watching
from flowfabric.clock import monotonic
from flowfabric.model.state import PublicState
from flowfabric.sdk.context.context import Context
from flowfabric.sdk.fabric import Fabric
from flowfabric.sdk.worker.worker import Worker

N: Final = 10_000
CONCURRENCY: Final = 500
IDLE_S: Final = 20.0
_SHARE_DUE: Final = 10  # one in so many is due at once
_FAR_MS: Final = 365 * 86_400_000
_SUBMITTED: Final = 1_000
_REST_S: Final = 3.0
_AHEAD_S: Final = 5.0
_PATIENCE_S: Final = 120.0


def measure(databases: Databases, n: int | None = None, *, idle_s: float = IDLE_S) -> Measurement:
    """n handlers that sleep, a tenth of them until one instant; a worker in this process."""
    count = n or N
    statements: Counter[str] = Counter()
    with databases.empty() as url, watching(databases.store, statements):
        found = asyncio.run(_Night(url, statements, count).measured(idle_s))
    return Measurement(
        scenario="sleepers",
        store=databases.store,
        n=count,
        throughput_per_s=found["due_per_s"],
        settings={"concurrency": CONCURRENCY, "idle_s": idle_s, "processes": 1},
        extra=found,
        versions=versions(),
    )


class _Night:
    """One database, one worker."""

    def __init__(self, url: str, statements: Counter[str], count: int) -> None:
        self._fabric = Fabric(url)
        self._statements = statements
        self._count = count
        self._due = max(1, count // _SHARE_DUE)
        self._went_on = 0
        self._last_at = 0.0

    async def measured(self, idle_s: float) -> dict[str, Any]:
        """First those that sleep for long, then those that are due."""
        fabric = self._fabric

        @fabric.task(name="nap")
        async def nap(ctx: Context, until_ms: int) -> None:
            await ctx.sleep_until(datetime.fromtimestamp(until_ms / 1000, UTC))
            self._went_on += 1
            self._last_at = monotonic()

        async with fabric:
            worker = Worker(fabric, concurrency=CONCURRENCY, warm=0)
            running = asyncio.create_task(worker.run(handle_signals=False))
            started = monotonic()
            await self._lie_down(nap, self._count - self._due, await self._now() + _FAR_MS)
            await self._all_asleep(self._count - self._due)
            put_s = monotonic() - started
            await asyncio.sleep(_REST_S)
            self._statements.clear()
            started = monotonic()
            await asyncio.sleep(idle_s)
            idle = queries(self._statements) / (monotonic() - started)
            asked = dict(self._statements.most_common(10))
            due_at = await self._due_together(nap, _AHEAD_S + 2 * put_s / _SHARE_DUE)
            worker.stop()
            await running
        check_count("handlers that went on", self._went_on, self._due)
        took = self._last_at - due_at
        return {
            "asleep": self._count - self._due,
            "idle_queries_per_s": round(idle, 2),
            "idle_by_statement": asked,
            "due_at_once": self._due,
            "all_went_on_s": round(took, 2),
            "due_per_s": round(self._due / took, 1),
            "put_to_sleep_per_s": round((self._count - self._due) / put_s, 1),
        }

    async def _due_together(self, nap: Any, ahead_s: float) -> float:
        """When those were due that slept until one instant. On a machine that is busy some may
        have come too late; then others sleep a little longer."""
        for longer in (1, 4, 16):
            self._went_on = 0
            tick = await self._now() + round(longer * ahead_s * 1000)
            await self._lie_down(nap, self._due, tick)
            is_in_time = await self._all_asleep(self._count, until=tick)
            due_at = monotonic() + (tick - await self._now()) / 1000
            await asyncio.sleep(max(0.0, due_at - monotonic()))
            while self._went_on < self._due:
                if monotonic() > due_at + _PATIENCE_S:
                    raise MeasurementFailed(f"{self._went_on} of {self._due} went on")
                await asyncio.sleep(0.02)
            if is_in_time:
                return due_at
        raise MeasurementFailed("not all were asleep when the first ones were due")

    async def _now(self) -> int:
        return await (await self._fabric.start()).server_time_ms()

    async def _lie_down(self, nap: Any, count: int, until_ms: int) -> None:
        for first in range(0, count, _SUBMITTED):
            size = min(_SUBMITTED, count - first)
            await self._fabric.submit_many(nap, [until_ms] * size)

    async def _all_asleep(self, wanted: int, *, until: int | None = None) -> bool:
        """Whether so many are, before an instant."""
        engine, asleep = await self._fabric.start(), (PublicState.SUSPENDED.value,)
        deadline = monotonic() + _PATIENCE_S + wanted / 100
        while await engine.count_listed(states=asleep) < wanted:
            if until is not None and await engine.server_time_ms() >= until:
                return False
            if monotonic() > deadline:
                raise MeasurementFailed(f"no {wanted} were asleep in time")
            await asyncio.sleep(0.1)
        return until is None or await engine.server_time_ms() < until
