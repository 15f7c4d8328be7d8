"""What admission costs a claim: work under a budget, a quota and capabilities beside plain work.

The floor of a bounded claim is a plain claim: two engines on two databases take turns, call by
call, so whatever else the machine does slows down both alike. A second part lets plain work on an
empty database take turns with plain work on one where many executions of the same route are blocked
on an exhausted budget.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.scenarios.preload import BLOCKED, preload_blocked
from flowfabric.api.executions import NewExecution
from flowfabric.api.leases import Complete
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
from flowfabric.bench.workload import LANE, RESULT, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.model.policy import policy_from
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed

BATCH = 500
LIMITS = (500, 100)  # how many a claim asks for
ROUNDS = 3
N = 10_000
BUDGET = "bench-ample"
QUOTA = "bench-ample"
NEEDS = ("bench", "gpu")
_AMPLE = 1_000_000
_LEASE_MS = 3_600_000

Pair = tuple["Side", "Side"]  # two that took turns


class Side:
    """One of two engines that take turns, and what each of its calls took."""

    def __init__(self, engine: Engine, wanted: NewExecution, needs: Sequence[str]) -> None:
        self._engine = engine
        self._wanted = wanted
        self._needs = needs
        self.claimed: list[Claimed] = []
        self.laps: dict[str, list[float]] = {"create": [], "claim": [], "complete": []}
        self.cpu: dict[str, float] = dict.fromkeys(self.laps, 0.0)

    async def create(self, size: int) -> None:
        """New work."""
        with _Lap(self, "create"):
            await self._engine.create_executions([self._wanted] * size)

    async def claim(self, limit: int) -> None:
        """As many as asked for, or the figures mean nothing."""
        with _Lap(self, "claim"):
            found = await self._engine.claim(
                lanes=[LANE],
                worker_id=WORKER,
                worker_instance_id=f"{WORKER}-1",
                capabilities=self._needs,
                limit=limit,
                lease_ttl_ms=_LEASE_MS,
            )
        check_count("claimed", len(found), limit)
        self.claimed += found

    async def complete(self, start: int, size: int) -> None:
        """Some of what was claimed."""
        chosen = self.claimed[start : start + size]
        requests = [
            Complete(handle=each.handle, result=RESULT, result_encoding="json") for each in chosen
        ]
        with _Lap(self, "complete"):
            replies = await self._engine.complete_many(requests)
        for reply in replies:
            if isinstance(reply, Exception):
                raise MeasurementFailed(f"a completion was refused: {reply}")

    def seconds(self, phase: str) -> float:
        """What all calls of a phase took."""
        return sum(self.laps[phase])


class _Lap:
    """Times one call."""

    def __init__(self, side: Side, phase: str) -> None:
        self._side = side
        self._phase = phase

    def __enter__(self) -> None:
        self._started, self._cpu = monotonic(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self._side.laps[self._phase].append(monotonic() - self._started)
        self._side.cpu[self._phase] += time.process_time() - self._cpu


def measure(
    databases: Databases, n: int | None = None, *, rounds: int = ROUNDS, blocked: int = BLOCKED
) -> Measurement:
    """Plain and bounded work in turn on fresh databases, then beside the blocked; medians."""
    count = n or N
    pairs: dict[int, list[Pair]] = {limit: [] for limit in LIMITS}
    for _ in range(rounds):
        for limit in LIMITS:
            with databases.empty() as plain, databases.empty() as bounded:
                pairs[limit].append(
                    asyncio.run(_bounded_beside_plain(plain, bounded, count, limit))
                )
    main = pairs[LIMITS[0]]
    return Measurement(
        scenario="admission",
        store=databases.store,
        n=count,
        throughput_per_s=_rate(count, [pair[1] for pair in main]),
        floor_per_s=_rate(count, [pair[0] for pair in main]),
        ratio_to_floor=_ratio(main, "claim"),
        **percentiles_ms([lap for pair in main for lap in pair[1].laps["claim"]]),
        settings={
            "limits": list(LIMITS),
            "rounds": rounds,
            "attached": "budget, quota (cap and rate), 2 capabilities",
        },
        extra={
            "claim_ratio": {f"limit_{limit}": _ratio(pairs[limit], "claim") for limit in LIMITS},
            "claim_cpu_ratio": {
                f"limit_{limit}": _cpu_ratio(pairs[limit], "claim") for limit in LIMITS
            },
            "create_ratio": _ratio(main, "create"),
            "complete_ratio": _ratio(main, "complete"),
            "claim_cpu_us": [_cpu_us(count, [pair[side] for pair in main]) for side in (0, 1)],
            "plain_claim_p50_ms": _p50([pair[0] for pair in main]),
            "beside_blocked": _beside_blocked(databases, count, blocked, rounds),
        },
        versions=versions(),
    )


async def _bounded_beside_plain(plain_url: str, bounded_url: str, n: int, limit: int) -> Pair:
    async with open_engine(plain_url) as plain, open_engine(bounded_url) as bounded:
        sides = (
            Side(plain, new_execution(), ()),
            Side(bounded, await _bounded_execution(bounded), NEEDS),
        )
        await _create(sides, n)
        await _claim(sides, n, limit)
        await _check_counters(bounded, active=n, in_window=n)
        await _complete(sides, n)
        await _check_counters(bounded, active=0, in_window=n)
    return sides


async def bounded_work(url: str, n: int, limit: int) -> Side:
    """Only the bounded side, for whoever looks at where its time goes."""
    async with open_engine(url) as engine:
        side = Side(engine, await _bounded_execution(engine), NEEDS)
        await _create((side,), n)
        await _claim((side,), n, limit)
        await _complete((side,), n)
        await _check_counters(engine, active=0, in_window=n)
    return side


async def _create(sides: Sequence[Side], n: int) -> None:
    for start in range(0, n, BATCH):
        for side in sides:
            await side.create(min(BATCH, n - start))


async def _claim(sides: Sequence[Side], n: int, limit: int) -> None:
    for start in range(0, n, limit):
        for side in sides:
            await side.claim(min(limit, n - start))


async def _complete(sides: Sequence[Side], n: int) -> None:
    for start in range(0, n, BATCH):
        for side in sides:
            await side.complete(start, min(BATCH, n - start))


async def _bounded_execution(engine: Engine) -> NewExecution:
    """Work under limits that admit it."""
    await engine.create_budget(
        budget_id=BUDGET,
        dimensions=["cost_micros", "input_tokens"],
        hard_limits=[_AMPLE, _AMPLE],
        soft_limits=[_AMPLE, _AMPLE],
    )
    await engine.create_quota_policy(
        quota_policy_id=QUOTA,
        window_seconds=3_600,
        max_requests_per_window=_AMPLE,
        max_concurrent=_AMPLE,
    )
    needs = {"routing_requirements": {"required_capabilities": list(NEEDS)}}
    return replace(
        new_execution(), budget_ids=(BUDGET,), quota_policy_id=QUOTA, policy=policy_from(needs)
    )


async def _check_counters(engine: Engine, *, active: int, in_window: int) -> None:
    """The quota counted every start, and every end."""
    status = await engine.get_quota_status(quota_policy_id=QUOTA)
    check_count("places taken", sum(gate.active for gate in status.gates), active)
    check_count("starts counted", sum(gate.in_window for gate in status.gates), in_window)


# --- beside many that are blocked --------------------------------------------------------------


def _beside_blocked(databases: Databases, n: int, blocked: int, rounds: int) -> dict[str, Any]:
    """Plain claims with one and with many blocked in the same lane and on the same route."""
    with databases.empty() as free, databases.empty() as full:
        asyncio.run(preload_blocked(free, 1))
        asyncio.run(preload_blocked(full, blocked))
        pairs = [asyncio.run(_other_work(free, full, n)) for _ in range(rounds)]
        for url, count in ((free, 1), (full, blocked)):
            check_count("still blocked", asyncio.run(_count_blocked(url)), count)
    without, beside = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return {
        "blocked": blocked,
        "claims_per_s": [_rate(n, without), _rate(n, beside)],
        "claim_p50_ms": [_p50(without), _p50(beside)],
        "claim_ratio": _ratio(pairs, "claim"),
        "claim_cpu_ratio": _cpu_ratio(pairs, "claim"),
    }


async def _other_work(free_url: str, full_url: str, n: int) -> Pair:
    async with open_engine(free_url) as free, open_engine(full_url) as full:
        sides = (Side(free, new_execution(), ()), Side(full, new_execution(), ()))
        await _create(sides, n)
        await _claim(sides, n, LIMITS[-1])
        await _complete(sides, n)
    return sides


async def _count_blocked(url: str) -> int:
    async with open_engine(url) as engine:
        counts = await engine.count_executions()
    return counts[LANE].get("rate_limited", 0)


# --- figures -----------------------------------------------------------------------------------


def _rate(n: int, sides: Sequence[Side]) -> float:
    return round(n / median(side.seconds("claim") for side in sides), 1)


def _ratio(pairs: Sequence[Pair], phase: str) -> float:
    """The rate of the second over that of the first."""
    return round(median(a.seconds(phase) / b.seconds(phase) for a, b in pairs), 3)


def _cpu_ratio(pairs: Sequence[Pair], phase: str) -> float:
    """The same by what this process computed, which a busy machine disturbs less."""
    return round(median(a.cpu[phase] / b.cpu[phase] for a, b in pairs), 3)


def _cpu_us(n: int, sides: Sequence[Side]) -> float:
    return round(median(side.cpu["claim"] for side in sides) / n * 1e6, 1)


def _p50(sides: Sequence[Side]) -> float:
    return round(percentile([lap for side in sides for lap in side.laps["claim"]], 50) * 1000, 3)
