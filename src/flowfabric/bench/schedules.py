"""Schedules: many that are not due, a thousand that are due in one second, and what an engine asks
of its database while none is."""

from __future__ import annotations

import asyncio
from collections import Counter
from statistics import median
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.executions import NewExecution
from flowfabric.api.schedules import ScheduledStart
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import Measurement, MeasurementFailed, check_count, versions
from flowfabric.bench.statements import queries, watching
from flowfabric.clock import monotonic
from flowfabric.limits import PAGE_MAX
from flowfabric.model.schedule import Timing

N: Final = 10_000
DUE: Final = 1_000
ROUNDS: Final = 3
IDLE_S: Final = 20.0
_DAY_MS: Final = 86_400_000
_AT_ONCE: Final = 250  # creations that wait together, and share commits
_AHEAD_S: Final = 6  # of the tick, when those that are due then are made
_LOOK_EVERY_S: Final = 0.05
_PATIENCE_S: Final = 60.0


def measure(
    databases: Databases,
    n: int | None = None,
    *,
    due: int = DUE,
    rounds: int = ROUNDS,
    idle_s: float = IDLE_S,
) -> Measurement:
    """On one database; medians of the rounds, each with schedules of its own that are due."""
    count = n or N
    statements: Counter[str] = Counter()
    with databases.empty() as url, watching(databases.store, statements):
        found = asyncio.run(_Calendar(url, statements, due).measured(count, rounds, idle_s))
    created, seen = found["created_ms"], found["seen_ms"]
    return Measurement(
        scenario="schedules",
        store=databases.store,
        n=count,
        throughput_per_s=round(due / max(0.001, median(seen) / 1000), 1),
        settings={"due_in_one_second": due, "rounds": rounds, "idle_s": idle_s, "processes": 1},
        extra={
            "last_run_created_ms_after_its_tick": round(median(created), 1),
            "all_seen_ms_after_their_tick": round(median(seen), 1),
            "rounds_ms": [round(each, 1) for each in seen],
            "idle_queries_per_s": found["idle"][1],
            "idle_queries_per_s_without": found["idle"][0],
            "create_schedule_per_s": round(found["create"][0], 1),
        },
        versions=versions(),
    )


class _Calendar:
    """Schedules of one database."""

    def __init__(self, url: str, statements: Counter[str], due: int) -> None:
        self._engine: EngineBackend = open_engine(url)
        self._statements = statements
        self._due = due
        self._made = self._wanted = 0

    async def measured(self, count: int, rounds: int, idle_s: float) -> dict[str, list[float]]:
        """Idle without schedules, then with all of them; then the seconds in which many are due."""
        engine = self._engine
        await engine.start(migrate=True)
        try:
            await self._create(1, Timing(every_ms=_DAY_MS, anchor=_DAY_MS // 2))
            idle = [await self._idle(idle_s)]
            started = monotonic()
            far = Timing(every_ms=_DAY_MS, anchor=await self._far())
            await self._create(count - 1, far)
            create = (count - 1) / (monotonic() - started) if count > 1 else 0.0
            idle.append(await self._idle(idle_s))
            found = [await self._round() for _ in range(rounds)]
        finally:
            await engine.close()
        created, seen = zip(*found, strict=True)
        return {
            "created_ms": list(created),
            "seen_ms": list(seen),
            "idle": idle,
            "create": [create],
        }

    async def _far(self) -> int:
        """An instant whose daily tick is half a day away."""
        now = await self._engine.server_time_ms()
        return (now + _DAY_MS // 2) // 1000 * 1000

    async def _create(self, count: int, timing: Timing) -> None:
        start = ScheduledStart(execution=NewExecution(execution_kind="bench"))
        for first in range(self._made, self._made + count, _AT_ONCE):
            last = min(first + _AT_ONCE, self._made + count)
            await asyncio.gather(
                *(
                    self._engine.create_schedule(schedule_id=f"s{at}", timing=timing, start=start)
                    for at in range(first, last)
                )
            )
        self._made += count

    async def _idle(self, seconds: float) -> float:
        await asyncio.sleep(min(seconds, 2.0))  # what was begun before is done
        self._statements.clear()
        started = monotonic()
        await asyncio.sleep(seconds)
        return round(queries(self._statements) / (monotonic() - started), 2)

    async def _round(self) -> tuple[float, float]:
        """How long after its tick the last run was created, by the store's clock, and seen. On a
        machine that is busy the schedules may be there too late; then later ones are made."""
        for ahead_s in (_AHEAD_S, 4 * _AHEAD_S, 16 * _AHEAD_S):
            now = await self._engine.server_time_ms()
            tick = (now // 1000 + ahead_s) * 1000
            await self._create(self._due, Timing(at=(tick,)))
            self._wanted += self._due
            left_s = (tick - await self._engine.server_time_ms()) / 1000
            due_at = monotonic() + left_s
            await asyncio.sleep(max(0.0, left_s))
            await self._all_run(due_at)
            if left_s > 0:
                break
        else:
            raise MeasurementFailed(f"{self._due} schedules were not made in time")
        seen = monotonic() - due_at
        page = await self._engine.list_executions(execution_kind="bench", limit=PAGE_MAX)
        last = max(each.created_at for each in page.items)
        check_count("runs", await self._runs(), self._wanted)
        return float(last - tick), seen * 1000

    async def _all_run(self, due_at: float) -> None:
        while await self._runs() < self._wanted:
            if monotonic() > due_at + _PATIENCE_S:
                raise MeasurementFailed(f"no {self._wanted} runs within {_PATIENCE_S} s")
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _runs(self) -> int:
        return await self._engine.count_listed(execution_kind="bench")
