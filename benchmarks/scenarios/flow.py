"""Flows: chains with real dependencies, a race that cancels its losers, a wide fan-out.

Chains are run by one worker process, as users run one, and submitted by this one, a call each. The
race and the fan-out go through the engine's own calls; the fan-out is compared with as many plain
executions that depend on nothing, in the same run.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from statistics import median

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.leases import Complete
from flowfabric.assemble import open_engine
from flowfabric.bench.cycle import engine_rate
from flowfabric.bench.databases import Databases
from flowfabric.bench.measurement import (
    Measurement,
    MeasurementFailed,
    check_count,
    percentile,
    percentiles_ms,
    versions,
)
from flowfabric.bench.processes import worker_beside
from flowfabric.bench.workload import LANE, RESULT, TOPIC, WORKER, new_execution
from flowfabric.clock import monotonic
from flowfabric.engine.engine import Engine
from flowfabric.model.flow import FlowState, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import to_json
from flowfabric.model.state import PublicState

N = 600  # chains
LENGTH = 10
CALLERS = 64
CONCURRENCY = 500
LAPS = 60
SIBLINGS = 1_000
RACES = 10
FAN = 10_000
ROUNDS = 3
FAN_ROUNDS = 7
_BATCH = 500
_PATIENCE_MS = 120_000
_PAYLOAD = to_json({"topic": TOPIC})


def measure(
    databases: Databases,
    n: int | None = None,
    *,
    rounds: int = ROUNDS,
    laps: int = LAPS,
    races: int = RACES,
    fan: int = FAN,
    fan_rounds: int = FAN_ROUNDS,
) -> Measurement:
    """Medians of the rounds; latencies are those of a lone chain."""
    count = n or N
    rates, lone, ends = [], [], []
    for _ in range(rounds):
        with databases.empty() as url:
            asyncio.run(_prepare(url))
            with worker_beside(url, CONCURRENCY):
                lone += asyncio.run(lone_chains(url, laps))
                rates.append(asyncio.run(chain_rate(url, count)))
        with databases.empty() as url:
            ends += asyncio.run(race_ends(url, races))
    fans = [_fan_and_plain(databases, fan, is_fan_first=bool(at % 2)) for at in range(fan_rounds)]
    ratio = median(wide / plain for wide, plain in fans)
    return Measurement(
        scenario="flow",
        store=databases.store,
        n=count,
        throughput_per_s=round(median(rates), 1),
        **percentiles_ms(lone),
        settings={
            "chain": LENGTH,
            "callers": CALLERS,
            "worker_concurrency": CONCURRENCY,
            "laps": len(lone),
            "rounds": rounds,
            "durable": True,
        },
        extra={
            "rounds_per_s": [round(rate, 1) for rate in rates],
            "race": {
                "siblings": SIBLINGS,
                "last_cancelled_ms": {
                    "p50": round(percentile(ends, 50) * 1000, 1),
                    "max": round(max(ends) * 1000, 1),
                },
            },
            "fan_out": {
                "width": fan,
                "members_per_s": round(median(wide for wide, _ in fans), 1),
                "plain_cycles_per_s": round(median(plain for _, plain in fans), 1),
                "ratio_to_plain": round(ratio, 3),
                "ratios": sorted(round(wide / plain, 3) for wide, plain in fans),
            },
        },
        versions=versions(),
    )


def _fan_and_plain(databases: Databases, fan: int, *, is_fan_first: bool) -> tuple[float, float]:
    """One after the other, in turns the other way round: a machine's speed drifts."""
    wide = plain = 0.0
    for is_fan in (is_fan_first, not is_fan_first):
        with databases.empty() as url:
            if is_fan:
                wide = asyncio.run(fan_rate(url, fan))
            else:
                plain = asyncio.run(engine_rate(url, fan))[0]
    return wide, plain


async def _prepare(url: str) -> None:
    """Both processes find the schema there."""
    engine = open_engine(url)
    await engine.start(migrate=True)
    await engine.close()


def _chain(kind: str) -> tuple[list[FlowNode], list[FlowEdge]]:
    work = NewExecution(execution_kind=kind, input_payload=_PAYLOAD, payload_encoding="json")
    nodes = [FlowNode(name=f"step-{at}", execution=work) for at in range(LENGTH)]
    edges = [
        FlowEdge(upstream=before.name, downstream=after.name) for before, after in pairwise(nodes)
    ]
    return nodes, edges


async def _run_chain(engine: Engine, nodes: list[FlowNode], edges: list[FlowEdge]) -> None:
    made = await engine.submit_flow(nodes=nodes, edges=edges)
    done = await engine.wait_for_flow(flow_id=made.flow_id, wait_ms=_PATIENCE_MS)
    if done.public_flow_state is not FlowState.COMPLETED:
        raise MeasurementFailed(f"a chain ended {done.public_flow_state.value}")


async def lone_chains(url: str, laps: int) -> list[float]:
    """Seconds from the submit of a chain to its last completion, one at a time."""
    nodes, edges = _chain("bench")
    async with open_engine(url) as engine:
        await _run_chain(engine, nodes, edges)
        times = []
        for _ in range(laps):
            started = monotonic()
            await _run_chain(engine, nodes, edges)
            times.append(monotonic() - started)
    return times


async def chain_rate(url: str, n: int) -> float:
    """Chains per second with many callers, each of whom waits for its own."""
    nodes, edges = _chain("bench")
    async with open_engine(url) as engine:
        left = iter(range(n))

        async def caller() -> None:
            for _ in left:
                await _run_chain(engine, nodes, edges)

        before = await _completed(engine)
        started = monotonic()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        took = monotonic() - started
        check_count("steps completed", await _completed(engine) - before, n * LENGTH)
    return n / took


async def race_ends(url: str, races: int) -> list[float]:
    """Seconds from the winner's acknowledged completion to the end of the last loser."""
    racers = [FlowNode(name=f"racer-{at}", execution=new_execution()) for at in range(SIBLINGS)]
    join = Quorum(1, OnSatisfied.CANCEL_REMAINING)
    judge = FlowNode(name="judge", execution=new_execution(), join=join)
    edges = [FlowEdge(upstream=each.name, downstream="judge") for each in racers]
    times = []
    async with open_engine(url) as engine:
        for _ in range(races):
            made = await engine.submit_flow(nodes=[*racers, judge], edges=edges)
            claimed = await engine.claim(
                lanes=[LANE], worker_id=WORKER, worker_instance_id=WORKER, limit=1
            )
            await engine.complete(claimed[0].handle, result=RESULT)
            times.append(await _until_cancelled(engine, made))
            await engine.cancel_flow(flow_id=made.flow_id)
    return times


async def _until_cancelled(engine: Engine, made: object) -> float:
    started = monotonic()
    # Nothing tells of the last of many, hence the short pauses.
    while (await _members(engine, made)).get(PublicState.CANCELLED, 0) < SIBLINGS - 1:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    return monotonic() - started


async def fan_rate(url: str, fan: int) -> float:
    """Members per second of one → many → one, from the submit to the end of the flow."""
    leaves = [FlowNode(name=f"leaf-{at}", execution=new_execution()) for at in range(fan - 2)]
    first, last = (FlowNode(name=name, execution=new_execution()) for name in ("first", "last"))
    edges = [FlowEdge(upstream="first", downstream=each.name) for each in leaves]
    edges += [FlowEdge(upstream=each.name, downstream="last") for each in leaves]
    async with open_engine(url) as engine:
        started = monotonic()
        made = await engine.submit_flow(nodes=[first, *leaves, last], edges=edges)
        done = 0
        while done < fan:
            claimed = await engine.claim(
                lanes=[LANE],
                worker_id=WORKER,
                worker_instance_id=WORKER,
                limit=_BATCH,
                wait_ms=1_000,
            )
            await engine.complete_many(
                [Complete(handle=each.handle, result=RESULT) for each in claimed]
            )
            done += len(claimed)
        took = monotonic() - started
        ended = await engine.wait_for_flow(flow_id=made.flow_id, wait_ms=_PATIENCE_MS)
        check_count("members completed", ended.members.get(PublicState.COMPLETED, 0), fan)
    return fan / took


async def _members(engine: Engine, made: object) -> dict[PublicState, int]:
    if not isinstance(made, FlowSubmitted):
        raise MeasurementFailed("a flow was not new")
    return dict((await engine.project_flow_summary(flow_id=made.flow_id)).members)


async def _completed(engine: Engine) -> int:
    counts = await engine.count_executions()
    return sum(states.get("completed", 0) for states in counts.values())
