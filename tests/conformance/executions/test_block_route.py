"""Work that no worker can run is blocked on its route until a worker registers that can."""

from __future__ import annotations

from typing import Any

from flowfabric.errors import ExecutionNotActive, InvalidBlockingReason, InvalidInput, NotFound
from flowfabric.ids import new_execution_id
from flowfabric.model.event import OperatorEventType
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.results import Blocked, Rejected
from flowfabric.model.state import BlockingReason, EligibilityState
from tests.support.lab import LANE, Lab, scenario

NO_GPU = ExecutionPolicy(
    routing_requirements=RoutingRequirements(required_capabilities=("cuda", "gpu"))
)
REASON = BlockingReason.WAITING_FOR_CAPABLE_WORKER


async def register(lab: Lab, worker: str = "w1", **fields: Any) -> None:
    fields = {"lanes": (LANE,), "worker_instance_id": f"{worker}-1", **fields}
    await lab.engine.register_worker(worker_id=worker, liveness_ttl_ms=60_000, **fields)


async def blocked(lab: Lab, **fields: Any) -> str:
    key = await lab.create(policy=NO_GPU, **fields)
    reply = await lab.engine.block_route(execution_id=key, reason_detail="no gpu")
    assert reply == Blocked(key, REASON)
    return key


async def eligibility(lab: Lab, key: str) -> EligibilityState:
    return (await lab.record(key)).state.eligibility_state


@scenario
async def test_blocked_work_is_not_claimed_and_says_why(lab: Lab) -> None:
    key = await blocked(lab)
    assert await eligibility(lab, key) is EligibilityState.BLOCKED_BY_ROUTE
    assert await lab.claims(capabilities=("cuda", "gpu")) == []
    answer = await lab.engine.explain(execution_id=key)
    assert answer.waiting_for == REASON.value
    assert answer.summary == "its route is blocked: no gpu"
    assert answer.hints == (
        "start a worker on lane default that handles work: --capability cuda --capability gpu",
        "it goes on when such a worker registers",
    )
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_only_one_worker_that_can_do_all_of_it_ends_the_wait(lab: Lab) -> None:
    key = await blocked(lab)
    elsewhere = await blocked(lab, lane_id="other")
    await register(lab, "w1", capabilities=("cuda",))
    await register(lab, "w2", capabilities=("gpu",))
    await register(lab, "w3", capabilities=("cuda", "gpu"), namespace="another")
    await register(lab, "w4", capabilities=("cuda", "gpu"), kinds=("brief",))
    assert await eligibility(lab, key) is EligibilityState.BLOCKED_BY_ROUTE
    await register(lab, "w5", capabilities=("x", "gpu", "cuda"))
    assert await eligibility(lab, key) is EligibilityState.ELIGIBLE_NOW
    assert await eligibility(lab, elsewhere) is EligibilityState.BLOCKED_BY_ROUTE
    claimed = await lab.claim("w5", capabilities=("gpu", "cuda"))
    assert claimed.execution_id == key


@scenario
async def test_a_registration_calls_up_all_however_many(lab: Lab, monkeypatch: Any) -> None:
    monkeypatch.setattr("flowfabric.limits.DUE_BATCH", 2)
    keys = [await blocked(lab) for _ in range(5)]
    await register(lab, capabilities=("cuda", "gpu"))
    assert {await eligibility(lab, key) for key in keys} == {EligibilityState.ELIGIBLE_NOW}


@scenario
async def test_an_operator_may_lift_the_block(lab: Lab) -> None:
    key = await blocked(lab)
    await lab.engine.unblock_execution(execution_id=key, expected_reason=REASON)
    assert await eligibility(lab, key) is EligibilityState.ELIGIBLE_NOW
    told = [event.event_type for event in await lab.operator_events(key)]
    assert told == [OperatorEventType.BLOCKED, OperatorEventType.UNBLOCKED]


@scenario
async def test_a_repeated_block_changes_nothing(lab: Lab) -> None:
    key = await blocked(lab)
    async with lab.unchanged():
        again = await lab.engine.block_route(execution_id=key, reason_detail="other words")
    assert again == Blocked(key, REASON)


@scenario
async def test_what_cannot_be_blocked_is_left_alone(lab: Lab) -> None:
    """A rejection is a reply: a scheduler asks about work that moves on meanwhile."""
    running = (await lab.started()).execution_id
    waiting = await lab.create()
    async with lab.unchanged():
        for fields in ({"execution_id": running}, {"execution_id": waiting, "lane_id": "other"}):
            assert isinstance(await lab.engine.block_route(**fields), Rejected)
    await register(lab)
    async with lab.unchanged():
        told = await lab.engine.block_route(execution_id=waiting)
        assert told == Rejected("worker w1-1 can run it")
    lab.clock.advance(60_000)
    assert isinstance(await lab.engine.block_route(execution_id=waiting, lane_id=LANE), Blocked)


@scenario
async def test_a_worker_that_registers_during_the_block_is_seen(lab: Lab, monkeypatch: Any) -> None:
    """The block looks for workers again after it has committed."""
    key, engine = await lab.create(), lab.direct
    looks = iter([None, "w1-1"])

    async def look(*_: Any) -> str | None:
        return next(looks)

    monkeypatch.setattr("flowfabric.engine.operations.control._able_worker", look)
    told = await engine.block_route(execution_id=key)
    assert told == Rejected("worker w1-1 can run it")
    assert await eligibility(lab, key) is EligibilityState.ELIGIBLE_NOW


@scenario
async def test_bad_input_is_refused(lab: Lab) -> None:
    ended = await lab.completed()
    key = await lab.create()
    block = lab.engine.block_route
    async with lab.refuses(InvalidBlockingReason, "reason_code"):
        await block(execution_id=key, reason_code=BlockingReason.WAITING_FOR_QUOTA)
    async with lab.refuses(InvalidBlockingReason, "reason_code"):
        await block(execution_id=key, reason_code="tired")
    async with lab.refuses(InvalidInput, "lane_id"):
        await block(execution_id=key, lane_id="")
    async with lab.refuses(InvalidInput, "execution_id"):
        await block(execution_id="nonsense")
    async with lab.refuses(NotFound):
        await block(execution_id=new_execution_id(lab.engine.store.partitions))
    async with lab.refuses(ExecutionNotActive):
        await block(execution_id=ended)
