"""Suspend, signal, resume: how soon a wait is over, and how many waits a process gets through.

One process at default settings: a worker loop that sleeps in `claim` until it is woken, and callers
that suspend and signal. Everything is measured again beside many executions that stay suspended.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median

from benchmarks.scenarios.preload import SUSPENDED, preload_suspended
from flowfabric.api.waits import Signal, SuspendRequest
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import (
    Measurement,
    MeasurementFailed,
    check_count,
    percentile,
    percentiles_ms,
    versions,
)
from flowfabric.bench.workload import KIND, LANE, PAYLOAD, RESULT, WORKER
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.model.handle import HandleKind
from flowfabric.model.record import Record
from flowfabric.model.results import Claimed, Created
from flowfabric.model.suspension import SignalAccepted, SignalEffect, Single, Suspended

N = 3_200  # waits
LAPS = 200
WARM_UP = 20
PAUSE_S = 0.005  # between laps, so that the worker is idle again
CONCURRENT = 64  # executions at once
ROUNDS = 3
_WAIT_MS = 10_000
_PATIENCE_S = 60.0
_REQUEST = SuspendRequest(resume_condition=Single("answer", "go"))


class Pace(Record, frozen=True):
    """What one run on one database showed."""

    laps: list[float]  # seconds from the suspend to the acknowledged completion
    waits_per_s: float  # suspend → signal → claimed again
    lives_per_s: float  # create → claim → suspend → signal → claim → complete
    cpu_us_per_wait: float  # of this process


def measure(
    databases: Databases, n: int | None = None, *, suspended: int = SUSPENDED, rounds: int = ROUNDS
) -> Measurement:
    """Medians of the rounds; `extra` has the same beside many suspended executions."""
    count = n or N
    with databases.empty() as empty, databases.empty() as full:
        asyncio.run(preload_suspended(empty, 1))
        asyncio.run(preload_suspended(full, suspended))
        pairs = [
            (asyncio.run(pace(empty, count)), asyncio.run(pace(full, count))) for _ in range(rounds)
        ]
    alone, beside = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    laps = [lap for each in alone for lap in each.laps]
    crowded = [lap for each in beside for lap in each.laps]
    rate, crowded_rate = _rate(alone), _rate(beside)
    slower = percentile(crowded, 50) / percentile(laps, 50)
    return Measurement(
        scenario="suspend",
        store=databases.store,
        n=count,
        throughput_per_s=round(rate, 1),
        **percentiles_ms(laps),
        settings={
            "concurrent": CONCURRENT,
            "laps": len(laps),
            "suspended": suspended,
            "rounds": rounds,
            "poll_interval_ms": "default",
        },
        extra={
            "rounds_per_s": [round(each.waits_per_s, 1) for each in alone],
            "whole_lives_per_s": round(median(each.lives_per_s for each in alone), 1),
            "cpu_us_per_wait": round(median(each.cpu_us_per_wait for each in alone), 1),
            "beside_suspended": {
                **percentiles_ms(crowded),
                "throughput_per_s": round(crowded_rate, 1),
                "whole_lives_per_s": round(median(each.lives_per_s for each in beside), 1),
            },
            "slower_percent": {
                "latency": round((slower - 1) * 100, 1),
                "throughput": round((rate / crowded_rate - 1) * 100, 1),
            },
        },
        versions=versions(),
    )


def _rate(paces: list[Pace]) -> float:
    return median(each.waits_per_s for each in paces)


async def pace(url: str, n: int) -> Pace:
    """Laps one by one, then many executions at once; what was done is counted in the store."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    try:
        before = await _ended(engine)
        async with Loop(engine) as loop:
            laps = await _laps(loop, LAPS)
            rounds = max(1, n // CONCURRENT)
            await _crowd(loop, 1)  # warm
            cpu, started = time.process_time(), monotonic()
            await _crowd(loop, rounds)
            seconds, cpu = monotonic() - started, time.process_time() - cpu
            started = monotonic()
            await _lives(loop, rounds)
            lives_s = monotonic() - started
            waits, ended = loop.waits, loop.completed
        check_count("completed in the store", await _ended(engine) - before, ended)
        check_count("resumed", loop.resumed, waits)
    finally:
        await engine.close()
    done = rounds * CONCURRENT
    return Pace(laps, done / seconds, done / lives_s, cpu / done * 1e6)


async def _ended(engine: Engine) -> int:
    counts = await engine.count_executions()
    return sum(states.get("completed", 0) for states in counts.values())


class Loop:
    """A worker that only claims; whoever waits for an execution is handed its claim."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.waits = self.resumed = self.completed = 0
        self._expected: dict[str, asyncio.Future[Claimed]] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Loop:
        self._task = asyncio.create_task(self._claim())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _claim(self) -> None:
        while True:
            claimed = await self.engine.claim(
                lanes=[LANE],
                worker_id=WORKER,
                worker_instance_id=f"{WORKER}-1",
                limit=CONCURRENT,
                wait_ms=_WAIT_MS,
            )
            for each in claimed:
                self.resumed += each.handle.kind is HandleKind.RESUMED
                self.expect(each.execution_id).set_result(each)

    def expect(self, execution_id: str) -> asyncio.Future[Claimed]:
        """The next claim of an execution, which the loop may have seen already."""
        if execution_id not in self._expected:
            self._expected[execution_id] = asyncio.get_running_loop().create_future()
        return self._expected[execution_id]

    async def begin(self) -> Claimed:
        """A new execution, claimed."""
        created = await self.engine.create_execution(execution_kind=KIND, input_payload=PAYLOAD)
        if not isinstance(created, Created):
            raise MeasurementFailed("nothing was created")
        return await self._soon(created.execution_id)

    async def wait(self, claimed: Claimed) -> Claimed:
        """Suspend, signal, and be claimed again."""
        begun = await self.engine.suspend(claimed.handle, _REQUEST)
        if not isinstance(begun, Suspended):
            raise MeasurementFailed("it did not suspend")
        address = begun.waitpoints[0]
        told = await self.engine.deliver_signal(
            Signal(
                execution_id=claimed.execution_id,
                waitpoint_id=address.waitpoint_id,
                token=address.token,
                signal_name="go",
                payload=PAYLOAD,
            )
        )
        if not isinstance(told, SignalAccepted) or told.effect is not SignalEffect.RESUMED:
            raise MeasurementFailed(f"the signal was answered {told}")
        self.waits += 1
        return await self._soon(claimed.execution_id)

    async def complete(self, claimed: Claimed) -> None:
        """The end."""
        await self.engine.complete(claimed.handle, result=RESULT)
        self.completed += 1

    async def _soon(self, execution_id: str) -> Claimed:
        if self._task is None or self._task.done():
            raise MeasurementFailed("the worker loop has ended")
        async with asyncio.timeout(_PATIENCE_S):
            claimed = await self.expect(execution_id)
        del self._expected[execution_id]
        return claimed


async def _laps(loop: Loop, n: int) -> list[float]:
    laps = []
    for number in range(n + WARM_UP):
        claimed = await loop.begin()
        await asyncio.sleep(PAUSE_S)
        started = monotonic()
        await loop.complete(await loop.wait(claimed))
        if number >= WARM_UP:
            laps.append(monotonic() - started)
    return laps


async def _crowd(loop: Loop, rounds: int) -> None:
    """Many executions, each of which waits again and again."""
    claimed = await asyncio.gather(*(loop.begin() for _ in range(CONCURRENT)))

    async def live(each: Claimed) -> None:
        for _ in range(rounds):
            each = await loop.wait(each)
        await loop.complete(each)

    await asyncio.gather(*map(live, claimed))


async def _lives(loop: Loop, rounds: int) -> None:
    """As many at once, each with one wait and an end."""

    async def live() -> None:
        for _ in range(rounds):
            await loop.complete(await loop.wait(await loop.begin()))

    await asyncio.gather(*(live() for _ in range(CONCURRENT)))
