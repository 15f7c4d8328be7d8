"""What a worker is told to stop: the leases that it has lost, and itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.model.results import Claimed, DrainAsked, Marked, NotRegistered, Refreshed
from flowfabric.model.worker import HeldLease, Stop, StopsHeard, WorkerEventType
from tests.support.lab import TTL_MS, Lab, scenario

INSTANCE = "w1-1"
NOTHING = StopsHeard(stops=(), is_rung=False, is_draining=False)


def held(*claimed: Claimed) -> list[HeldLease]:
    return [
        HeldLease(execution_id=each.execution_id, lease_epoch=each.lease_epoch) for each in claimed
    ]


async def stops(lab: Lab, *claimed: Claimed, wait_ms: int = 0, **more: Any) -> StopsHeard:
    return await lab.engine.wait_for_stops(
        worker_instance_id=INSTANCE, held=held(*claimed), wait_ms=wait_ms, **more
    )


async def waiting(lab: Lab, *claimed: Claimed) -> asyncio.Task[StopsHeard]:
    """A wait that has begun."""
    task = asyncio.create_task(stops(lab, *claimed, wait_ms=60_000))
    topic = f"worker:{INSTANCE}"
    while not lab.direct.wakeups.is_awaited(topic):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    return task


async def cancel(lab: Lab, claimed: Claimed) -> str:
    await lab.cancel(claimed.execution_id)
    return "execution_not_active"


async def revoke(lab: Lab, claimed: Claimed) -> str:
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="test")
    return "lease_revoked"


async def expire(lab: Lab, claimed: Claimed) -> str:
    lab.clock.set(claimed.lease_expires_at)
    await lab.engine.mark_lease_expired_if_due(execution_id=claimed.execution_id)
    return "lease_expired"


async def take_over(lab: Lab, claimed: Claimed) -> str:
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="test")
    await lab.direct.tick()
    assert len(await lab.claims("w2")) == 1
    return "stale_lease"


@pytest.mark.parametrize("lose", [cancel, revoke, expire, take_over])
@scenario
async def test_a_wait_ends_when_a_lease_is_lost(
    lab: Lab, lose: Callable[[Lab, Claimed], Awaitable[str]]
) -> None:
    claimed = await lab.started()
    task = await waiting(lab, claimed)
    code = await lose(lab, claimed)
    heard = await asyncio.wait_for(task, 30)
    found = heard if heard.stops else await stops(lab, claimed)
    (stop,) = found.stops
    assert (stop.execution_id, stop.lease_epoch) == (claimed.execution_id, claimed.lease_epoch)
    again = await stops(lab, claimed)
    assert [each.code for each in again.stops] == [code]


@scenario
async def test_what_was_lost_before_is_told_at_once(lab: Lab) -> None:
    lost, kept = await lab.started(), await lab.started()
    await lab.cancel(lost.execution_id)
    heard = await stops(lab, lost, kept, wait_ms=60_000)
    code = "execution_not_active"
    stop = Stop(execution_id=lost.execution_id, lease_epoch=lost.lease_epoch, code=code)
    assert heard == StopsHeard(stops=(stop,), is_rung=False, is_draining=False)


@scenario
async def test_nothing_is_told_of_leases_in_force_and_of_others_work(lab: Lab) -> None:
    claimed = await lab.started()
    other = await lab.started("w2")
    await lab.cancel(other.execution_id)
    assert await stops(lab, claimed) == NOTHING
    assert await stops(lab) == NOTHING


@scenario
async def test_a_lease_that_came_later_makes_the_worker_ask_again(lab: Lab) -> None:
    task = await waiting(lab)
    claimed = await lab.started()
    await lab.cancel(claimed.execution_id)
    assert await asyncio.wait_for(task, 30) == StopsHeard(stops=(), is_rung=True, is_draining=False)
    assert len((await stops(lab, claimed)).stops) == 1


@scenario
async def test_what_a_worker_ends_itself_tells_it_nothing(lab: Lab) -> None:
    first, second, third = [await lab.started() for _ in range(3)]
    task = await waiting(lab)
    await lab.engine.complete(first.handle)
    await lab.engine.fail(second.handle, reason="x")
    await lab.engine.delay(third.handle, delay_until=lab.now)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    "given",
    [
        "x",
        ["x"],
        [HeldLease(execution_id="x", lease_epoch=1)],
        [HeldLease(execution_id="{fp:0}:01890000-0000-7000-8000-000000000001", lease_epoch=0)],
    ],
)
@scenario
async def test_leases_that_are_none_are_refused(lab: Lab, given: Any) -> None:
    async with lab.refuses(InvalidInput):
        await lab.engine.wait_for_stops(worker_instance_id=INSTANCE, held=given)


# --- draining --------------------------------------------------------------------------------


async def register(lab: Lab) -> Any:
    return await lab.engine.register_worker(
        worker_id="w1",
        worker_instance_id=INSTANCE,
        lanes=("default",),
        liveness_ttl_ms=TTL_MS,
        host="box",
        version="1.2",
        concurrency=8,
    )


@scenario
async def test_an_operator_drains_a_worker(lab: Lab) -> None:
    await register(lab)
    task = await waiting(lab)
    asked = await lab.engine.drain_worker(worker_instance_id=INSTANCE, reason="deploy")
    assert asked == DrainAsked()
    heard = await asyncio.wait_for(task, 30)
    assert heard == StopsHeard(stops=(), is_rung=True, is_draining=True)
    beat = await lab.engine.heartbeat_worker(worker_instance_id=INSTANCE, busy=3)
    assert beat == Refreshed(lab.now + TTL_MS, is_draining=True)
    assert (await register(lab)).is_draining  # it is the same worker
    async with lab.unchanged():
        await lab.engine.drain_worker(worker_instance_id=INSTANCE)
    (*_, event) = (await lab.dump())["worker_events"]
    assert (event.event_type, event.reason) == (WorkerEventType.DRAINING, "deploy")


@scenario
async def test_a_worker_that_is_not_there_is_not_drained(lab: Lab) -> None:
    await register(lab)
    async with lab.unchanged():
        gone = await lab.engine.drain_worker(worker_instance_id="w1-2")
        assert gone == NotRegistered()
    lab.clock.advance(TTL_MS)
    async with lab.unchanged():
        gone = await lab.engine.drain_worker(worker_instance_id=INSTANCE)
        assert gone == NotRegistered()
    assert not hasattr(await register(lab), "is_draining")  # another life of it


@scenario
async def test_a_worker_tells_of_itself(lab: Lab) -> None:
    await register(lab)
    await lab.engine.heartbeat_worker(worker_instance_id=INSTANCE, busy=3)
    (worker,) = (await lab.engine.list_workers()).items
    assert (worker.host, worker.version, worker.concurrency, worker.busy) == ("box", "1.2", 8, 3)


@scenario
async def test_a_worker_leaves(lab: Lab) -> None:
    await register(lab)
    assert await lab.engine.leave_worker(worker_instance_id=INSTANCE) == Marked(0)
    assert not (await lab.engine.list_workers()).items
    assert await lab.engine.leave_worker(worker_instance_id=INSTANCE) == NotRegistered()


@pytest.mark.parametrize(
    ("field", "value"),
    [("host", ""), ("version", "x" * 300), ("concurrency", -1), ("concurrency", 100_001)],
)
@scenario
async def test_a_worker_tells_nothing_strange(lab: Lab, field: str, value: Any) -> None:
    async with lab.refuses(InvalidInput, field):
        await lab.engine.register_worker(
            worker_id="w1",
            worker_instance_id=INSTANCE,
            lanes=("default",),
            liveness_ttl_ms=TTL_MS,
            **{field: value},
        )
