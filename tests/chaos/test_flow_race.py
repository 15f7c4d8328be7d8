"""Eight engines at once on the same few flows: they finish, fail, cancel, replay, and add to them.

Whoever needs what another holds waits its turn or comes back: no deadlock reaches a caller, and in
the end every counter is what the rows say. FF_FLOW_ROUNDS=5000 at night.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.assemble import open_engine
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.errors import FlowFabricError, RetryExhausted, StoreError
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import AllDone, AnySucceeded, CancellationPolicy, OnSatisfied, Quorum
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.results import Claimed, Created
from flowfabric.stores.base import StoreConflict
from flowfabric.stores.tables import FLOW_TASKS
from tests.chaos.processes import PATIENCE_S
from tests.property.budget import budget
from tests.property.flow_checks import check_ends, check_flows

pytestmark = [pytest.mark.chaos, pytest.mark.slow]

ENGINES = 8
ROUNDS = budget("FF_FLOW_ROUNDS", 400)  # of all engines together
FLOWS_AT_ONCE = 4
LAYER = 4
JOINS = (
    None,
    AllDone(),
    AnySucceeded(OnSatisfied.CANCEL_REMAINING),
    AnySucceeded(OnSatisfied.CANCEL_REMAINING, only_if_unshared=True),
    Quorum(2, OnSatisfied.LET_RUN),
    Quorum(2, OnSatisfied.CANCEL_REMAINING),
)
LEASE_MS = 60_000


class Rival:
    """One engine with a mind of its own."""

    def __init__(self, engine: Engine, number: int, flows: list[FlowSubmitted]) -> None:
        self.engine = engine
        self.name = f"rival-{number}"
        self.flows = flows  # everybody's
        self.rng = random.Random(number)
        self.seen: Counter[str] = Counter()

    async def run(self, rounds: int) -> None:
        acts: tuple[tuple[int, Callable[[], Awaitable[Any]]], ...] = (
            (10, self.work),
            (3, self.look_after),
            (3, self.grow),
            (2, self.replay),
            (2, self.cancel_member),
            (1, self.cancel_flow),
            (1, self.repeat_cascade),
        )
        weights = [weight for weight, _ in acts]
        for _ in range(rounds):
            ((_, act),) = self.rng.choices(acts, weights)
            try:
                await act()
            except StoreError:
                raise
            except (
                RetryExhausted
            ):  # nothing was written; a machine that is busy may need more tries
                self.seen["exhausted"] += 1
                continue
            except FlowFabricError as refusal:
                self.seen[type(refusal).__name__] += 1
            self.seen[act.__name__] += 1

    def some_flow(self) -> FlowSubmitted:
        return self.rng.choice(self.flows)

    def some_member(self, flow: FlowSubmitted | None = None) -> str:
        members = (flow or self.some_flow()).execution_ids
        return self.rng.choice(sorted(members.values()))

    async def work(self) -> None:
        """A few members end at once, each its own way."""
        claimed = await self.engine.claim(
            lanes=("default",),
            worker_id=self.name,
            worker_instance_id=self.name,
            limit=4,
            lease_ttl_ms=LEASE_MS,
        )
        answers = await asyncio.gather(
            *(self._end(each) for each in claimed), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, RetryExhausted | StoreError) or (
                isinstance(answer, BaseException) and not isinstance(answer, FlowFabricError)
            ):
                raise answer

    async def _end(self, each: Claimed) -> None:
        match self.rng.randrange(8):
            case 0 | 1:
                await self.engine.fail(
                    each.handle, reason="x", failure_class=FailureClass.PERMANENT
                )
            case 2:
                await self.engine.spawn_children(
                    each.handle, [NewExecution(execution_kind="child")] * 2
                )
                await self.engine.wait_children(each.handle)
            case _:
                await self.engine.complete(each.handle, result=b"1")

    async def look_after(self) -> None:
        await self.engine.move_due()

    async def grow(self) -> None:
        """A new member waits for one that is there, and one that is there may wait for it."""
        flow = self.some_flow()
        made = await self.engine.create_execution(execution_kind="late", colocate_with=flow.flow_id)
        assert isinstance(made, Created)
        key = made.execution_id
        await self.engine.add_execution_to_flow(flow_id=flow.flow_id, execution_id=key, reopen=True)
        ends = [(self.some_member(flow), key), (key, self.some_member(flow))]
        for upstream, downstream in self.rng.sample(ends, 2):
            await self.engine.add_dependency(
                flow_id=flow.flow_id,
                upstream_execution_id=upstream,
                downstream_execution_id=downstream,
            )

    async def replay(self) -> None:
        await self.engine.replay_execution(
            execution_id=self.some_member(), cascade=self.rng.random() < 0.7
        )

    async def cancel_member(self) -> None:
        await self.engine.cancel_execution(
            execution_id=self.some_member(), reason="x", source="operator_override"
        )

    async def cancel_flow(self) -> None:
        """Another takes its place."""
        at = self.rng.randrange(len(self.flows))
        gone, self.flows[at] = self.flows[at], await submit(self.engine, self.rng)
        policy = self.rng.choice(tuple(CancellationPolicy))
        await self.engine.cancel_flow(flow_id=gone.flow_id, policy=policy)

    async def repeat_cascade(self) -> None:
        await self.engine.cascade_completion(execution_id=self.some_member())


async def submit(engine: Engine, rng: random.Random) -> FlowSubmitted:
    """Three layers, each node waiting for some of the layer before."""
    nodes, edges = [], []
    for layer in range(3):
        for place in range(LAYER):
            upstreams = rng.sample(range(LAYER), 3) if layer else []
            name = f"{layer}.{place}"
            edges += [
                FlowEdge(upstream=f"{layer - 1}.{each}", downstream=name, passes_result=True)
                for each in upstreams
            ]
            join = rng.choice(JOINS) if upstreams else None
            deadline = rng.choice((None, None, 100, 600))
            policy: dict[str, Any] = {
                "max_replay_count": 100,
                "timeout_policy": {"execution_deadline_ms": deadline},
            }
            request = NewExecution(execution_kind="k", policy=policy)
            nodes.append(FlowNode(name=name, execution=request, join=join))
    made = await engine.submit_flow(nodes=nodes, edges=edges)
    assert isinstance(made, FlowSubmitted)
    return made


async def settle(engine: Engine) -> None:
    """Until nothing is owed: what was put off comes back soon."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await engine.move_due()
            if not (await engine.store.dump())[FLOW_TASKS.name]:
                return
            await asyncio.sleep(0.02)


def listen(engine: Engine, collisions: list[str]) -> None:
    """Note why transactions are tried again."""
    original = engine.store.transact

    async def transact(work: Any) -> Any:
        try:
            return await original(work)
        except StoreConflict as collision:
            collisions.append(str(collision))
            raise

    engine.store.transact = transact  # type: ignore[method-assign]


async def race(url: str) -> None:
    async with AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(
                open_engine(url, config=EngineConfig(loops=False, pool_size=3))
            )
            for _ in range(ENGINES)
        ]
        collisions: list[str] = []
        for each in engines:
            listen(each, collisions)
        rng = random.Random(0)
        flows = [await submit(engines[0], rng) for _ in range(FLOWS_AT_ONCE)]
        rivals = [Rival(engine, number, flows) for number, engine in enumerate(engines)]
        await asyncio.gather(*(rival.run(ROUNDS // ENGINES) for rival in rivals))

        deadlocks = [each for each in collisions if "deadlock" in each.lower()]
        assert not deadlocks, f"there is one order of locks: {deadlocks}"

        engine = engines[0]
        await settle(engine)
        dump = await engine.store.dump()
        now = max(each.last_mutation_at for each in dump["executions"])
        check_flows(dump, now)
        check_ends(dump)
        check_attempts(dump)
        assert (await engine.doctor()).problems == ()
        seen = sum((rival.seen for rival in rivals), Counter())
        for act in ("work", "grow", "replay", "cancel_flow", "cancel_member", "look_after"):
            assert seen[act] > 0, seen
        assert seen["exhausted"] <= ROUNDS // 50, seen
        for flow in (await engine.list_flows(status="active", limit=1_000)).items:
            await engine.cancel_flow(flow_id=flow.flow_id)
        await settle(engine)
        dump = await engine.store.dump()
        check_flows(dump, max(each.last_mutation_at for each in dump["executions"]))
        assert (await engine.doctor()).problems == ()


def check_attempts(dump: dict[str, list[Any]]) -> None:
    """Nothing ended twice, whoever raced."""
    outcomes = Counter((each.execution_id, each.attempt_index) for each in dump["attempts"])
    assert not [key for key, times in outcomes.items() if times > 1]


def test_rivals_on_the_same_flows(postgres_url: str) -> None:
    asyncio.run(race(postgres_url))
