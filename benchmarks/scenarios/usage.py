"""`report_usage` on one hot budget from many callers in one process, against its floor.

Every caller waits for its own outcome before it reports again, so what is measured is how well the
engine shares commits among those who wait. The work is verified: usage is the sum of what was
answered as applied, and a hard limit is met exactly.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from statistics import median

from benchmarks.scenarios.usage_floor import measure_usage_floor
from flowfabric.api.budgets import Usage
from flowfabric.assemble import open_engine
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import (
    Measurement,
    MeasurementFailed,
    check_count,
    percentiles_ms,
    versions,
)
from flowfabric.bench.workload import LANE, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.model.budget import HardAction
from flowfabric.model.handle import Handle
from flowfabric.model.record import Record

CALLERS = 64
ROUNDS = 3
N = 20_000
BUDGET = "bench-hot"
DIMENSIONS = ("cost_micros", "input_tokens")
AMOUNTS = (30, 7)  # of one report, by dimension
_AMPLE = 1 << 40
_LEASE_MS = 3_600_000
_EXACT_MAX = 4_000  # reports of the round that meets a hard limit


class UsageRound(Record, frozen=True):
    """One round: what it took, and how each report was answered."""

    seconds: float
    cpu_seconds: float
    laps: list[float]
    answers: dict[str, int]


def measure(databases: Databases, n: int | None = None, *, rounds: int = ROUNDS) -> Measurement:
    """Engine and floors in turn, each on databases of its own; medians of the rounds."""
    count = n or N
    plain, keyed, floors, single = [], [], [], []
    for _ in range(rounds):
        plain.append(_engine_round(databases, count))
        floors.append(_floor_round(databases, count))
        keyed.append(_engine_round(databases, count, keyed=True))
        single.append(_floor_round(databases, count, coalesced=False))
    check_hard_limit(databases, min(count, _EXACT_MAX))
    rates = [count / each.seconds for each in plain]
    ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
    laps = [lap for each in plain for lap in each.laps]
    return Measurement(
        scenario="usage",
        store=databases.store,
        n=count,
        throughput_per_s=round(median(rates), 1),
        floor_per_s=round(median(floors), 1),
        ratio_to_floor=round(median(ratios), 3),
        **percentiles_ms(laps),
        settings={
            "callers": CALLERS,
            "rounds": rounds,
            "dimensions": len(DIMENSIONS),
            "durable": True,
        },
        extra={
            "rounds_per_s": [round(rate, 1) for rate in rates],
            "cpu_us_per_report": round(median(_cpu_us(each, count) for each in plain), 1),
            "with_dedup_key_per_s": round(median(count / each.seconds for each in keyed), 1),
            "with_dedup_key_cpu_us": round(median(_cpu_us(each, count) for each in keyed), 1),
            "floor_rounds_per_s": [round(floor, 1) for floor in floors],
            "floor_of_single_updates_per_s": round(median(single), 1),
            "hard_limit": "exact",
        },
        versions=versions(),
    )


def _cpu_us(found: UsageRound, n: int) -> float:
    return found.cpu_seconds / n * 1e6


def _engine_round(databases: Databases, n: int, *, keyed: bool = False) -> UsageRound:
    with databases.empty() as url:
        return asyncio.run(usage_round(url, n, keyed=keyed))


def _floor_round(databases: Databases, n: int, *, coalesced: bool = True) -> float:
    with databases.empty() as url:
        asyncio.run(usage_round(url, 1))  # the rows the floor writes to
        return asyncio.run(measure_usage_floor(url, BUDGET, n, CALLERS, coalesced=coalesced))


def check_hard_limit(databases: Databases, n: int) -> None:
    """Callers race for a limit that only half of the reports fit in: exactly those get in."""
    fitting = n // 2
    with databases.empty() as url:
        seen = asyncio.run(usage_round(url, n, hard_limit=fitting * AMOUNTS[0] + AMOUNTS[0] - 1))
    check_count("reports within the hard limit", seen.answers.get("Ok", 0), fitting)
    check_count("reports refused by it", seen.answers.get("HardBreach", 0), n - fitting)


async def usage_round(
    url: str, n: int, *, keyed: bool = False, hard_limit: int = _AMPLE, callers: int = CALLERS
) -> UsageRound:
    """Report n times under one lease, on a database of any content; answers match the usage."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    try:
        await engine.create_budget(
            budget_id=BUDGET,
            dimensions=list(DIMENSIONS),
            hard_limits=[hard_limit, _AMPLE],
            soft_limits=[_AMPLE, _AMPLE],
            on_hard_limit=HardAction.DENY,
        )
        handle = await _running(engine)
        before = await _used(engine)
        turns, answers, laps = iter(range(n)), Counter[str](), list[float]()
        started, cpu = monotonic(), time.process_time()
        await asyncio.gather(
            *(_report(engine, handle, turns, keyed, answers, laps) for _ in range(callers))
        )
        seconds, cpu = monotonic() - started, time.process_time() - cpu
        applied = answers["Ok"] + answers["SoftBreach"]
        check_count("reports answered", answers.total(), n)
        for name, amount in zip(DIMENSIONS, AMOUNTS, strict=True):
            used = (await _used(engine)).get(name, 0) - before.get(name, 0)
            check_count(f"{name} used", used, applied * amount)
        status = await engine.get_budget_status(budget_id=BUDGET)
        check_count("breaches counted", status.breach_count, answers["HardBreach"])
    finally:
        await engine.close()
    return UsageRound(seconds, cpu, laps, dict(answers))


async def _report(
    engine: Engine,
    handle: Handle,
    turns: Iterator[int],
    keyed: bool,
    answers: Counter[str],
    laps: list[float],
) -> None:
    """One caller: report, wait for the outcome, report again."""
    cost, tokens = AMOUNTS
    for turn in turns:
        key = f"call-{turn}" if keyed else None
        usage = Usage(input_tokens=tokens, custom={"cost_micros": cost}, dedup_key=key)
        asked_at = monotonic()
        outcome = await engine.report_usage(handle, budget_id=BUDGET, usage=usage)
        laps.append(monotonic() - asked_at)
        answers[type(outcome).__name__] += 1


async def _running(engine: Engine) -> Handle:
    """An execution under a lease that outlives the round."""
    await engine.create_executions([new_execution()])
    claimed = await engine.claim(
        lanes=[LANE],
        worker_id=WORKER,
        worker_instance_id=f"{WORKER}-1",
        limit=1,
        lease_ttl_ms=_LEASE_MS,
    )
    if not claimed:
        raise MeasurementFailed("nothing to report for")
    return claimed[0].handle


async def _used(engine: Engine) -> dict[str, int]:
    return dict((await engine.read_budget_usage_and_limits(budget_id=BUDGET)).usage)
