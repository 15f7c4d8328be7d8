"""The worker registry."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, LeaseRevoked
from flowfabric.model.results import Marked, NotRegistered, Refreshed, Registered
from flowfabric.model.state import PublicState
from flowfabric.stores.indexes import due_search
from flowfabric.stores.tables import WORKERS, Key
from tests.support.lab import Lab, scenario

TTL = 1000


async def register(
    lab: Lab, worker: str = "w1", instance: str = "i1", **fields: Any
) -> Registered | Refreshed:
    fields = {"lanes": ("default",), "liveness_ttl_ms": TTL, **fields}
    return await lab.engine.register_worker(worker_id=worker, worker_instance_id=instance, **fields)


async def live(lab: Lab, **fields: Any) -> list[str]:
    page = await lab.engine.list_workers(**fields)
    return [worker.worker_instance_id for worker in page.items]


@scenario
async def test_register_refresh_heartbeat_lapse_and_register_again(lab: Lab) -> None:
    """One expiry rule, exact to the millisecond."""
    engine = lab.engine
    assert await register(lab) == Registered(lab.now + TTL)
    lab.clock.advance(TTL - 1)
    assert await register(lab) == Refreshed(lab.now + TTL)
    lab.clock.advance(TTL - 1)
    beat = await engine.heartbeat_worker(worker_instance_id="i1")
    assert beat == Refreshed(lab.now + TTL)
    assert await live(lab) == ["i1"]
    lab.clock.advance(TTL)
    assert await live(lab) == []
    async with lab.unchanged():
        assert await engine.heartbeat_worker(worker_instance_id="i1") == NotRegistered()
    assert await register(lab) == Registered(lab.now + TTL)


@scenario
async def test_a_heartbeat_moves_the_instant_at_which_a_worker_is_found(lab: Lab) -> None:
    """It is derived from the heartbeat and stored beside it: a sweep looks for nothing else."""

    async def found(until: int) -> list[Key]:
        search = due_search(WORKERS, until, 9)
        return await lab.direct.store.read(lambda reader: reader.search_keys(search))

    await register(lab)
    lab.clock.advance(TTL - 1)
    await lab.engine.heartbeat_worker(worker_instance_id="i1")
    assert await found(lab.now + TTL - 1) == []
    assert await found(lab.now + TTL) == [("default", "i1")]


@scenario
async def test_an_unknown_worker_is_not_registered(lab: Lab) -> None:
    async with lab.unchanged():
        answer = await lab.engine.heartbeat_worker(worker_instance_id="nobody")
        assert answer == NotRegistered()
        marked = await lab.engine.mark_worker_dead(worker_instance_id="nobody", reason="x")
        assert marked == NotRegistered()


@scenario
async def test_lanes_and_capabilities_of_a_worker_are_kept_as_lists(lab: Lab) -> None:
    """A lane name may contain the comma."""
    await register(lab, lanes=("b", "a,c", "b"), capabilities=("gpu", "cpu"), kinds=["k2", "k1"])
    (worker,) = (await lab.engine.list_workers()).items
    assert worker.lanes == ("a,c", "b")
    assert worker.capabilities == ("cpu", "gpu")
    assert worker.kinds == ("k1", "k2")


@scenario
async def test_an_instance_changes_its_pool_only_after_it_lapsed(lab: Lab) -> None:
    await register(lab, "w1")
    async with lab.refuses(InvalidInput, field="worker_id"):
        await register(lab, "w2")
    lab.clock.advance(TTL)
    assert isinstance(await register(lab, "w2"), Registered)


@scenario
async def test_heartbeats_append_nothing(lab: Lab) -> None:
    """Only transitions are audited."""
    await register(lab)
    for _ in range(5):
        lab.clock.advance(10)
        await lab.engine.heartbeat_worker(worker_instance_id="i1")
    events = (await lab.dump())["worker_events"]
    assert [event.event_type for event in events] == ["registered"]
    (worker,) = (await lab.engine.list_workers()).items
    assert worker.last_heartbeat_at == lab.now
    assert worker.registered_at == lab.now - 50


@scenario
async def test_a_worker_marked_dead_is_gone_with_its_reason_on_record(lab: Lab) -> None:
    await register(lab)
    answer = await lab.engine.mark_worker_dead(worker_instance_id="i1", reason="host lost")
    assert answer == Marked(0)
    assert await live(lab) == []
    last = (await lab.dump())["worker_events"][-1]
    assert (last.event_type, last.reason) == ("marked_dead", "host lost")


@scenario
async def test_marking_dead_may_take_the_leases_too(lab: Lab) -> None:
    """Only this worker's, only this tenant's."""
    mine = [await lab.create() for _ in range(2)]
    claimed = await lab.claims("w1", worker_instance_id="i1", limit=2)
    other = await lab.started("w2")
    await register(lab)
    answer = await lab.engine.mark_worker_dead(
        worker_instance_id="i1", reason="host lost", revoke_leases=True
    )
    assert answer == Marked(2)
    async with lab.refuses(LeaseRevoked):
        await lab.engine.complete(claimed[0].handle)
    await lab.engine.renew(other.handle)
    await lab.engine.tick()
    assert [await lab.state(each) for each in mine] == [PublicState.WAITING] * 2


@scenario
async def test_without_being_asked_leases_are_left_alone(lab: Lab) -> None:
    claimed = await lab.started(
        "w1",
    )
    await register(lab, instance="w1-1")
    await lab.engine.mark_worker_dead(worker_instance_id="w1-1", reason="x")
    await lab.engine.renew(claimed.handle)


@scenario
async def test_workers_are_listed_by_namespace_and_paged(lab: Lab) -> None:
    """Across namespaces as well."""
    for namespace in ("b", "a"):
        for number in range(3):
            await register(lab, instance=f"{namespace}{number}", namespace=namespace)
    assert await live(lab) == ["a0", "a1", "a2", "b0", "b1", "b2"]
    assert await live(lab, namespace="b") == ["b0", "b1", "b2"]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await lab.engine.list_workers(cursor=cursor, limit=2)
        seen += [worker.worker_instance_id for worker in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == ["a0", "a1", "a2", "b0", "b1", "b2"]


@scenario
async def test_the_same_instance_name_in_two_tenants_is_two_workers(lab: Lab) -> None:
    await register(lab, "w1", namespace="a")
    await register(lab, "w2", namespace="b")
    await lab.engine.mark_worker_dead(worker_instance_id="i1", reason="", namespace="a")
    assert await live(lab, namespace="b") == ["i1"]


@scenario
async def test_lapsed_workers_are_swept(lab: Lab) -> None:
    await register(lab)
    await lab.after(TTL)
    dump = await lab.dump()
    assert dump["ff_worker_registry"] == []
    assert dump["worker_events"][-1].event_type == "ttl_swept"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"liveness_ttl_ms": 0}, "liveness_ttl_ms"),
        ({"liveness_ttl_ms": 999}, "liveness_ttl_ms"),
        ({"liveness_ttl_ms": -1}, "liveness_ttl_ms"),
        ({"liveness_ttl_ms": 3_600_001}, "liveness_ttl_ms"),
        ({"lanes": ()}, "lanes"),
        ({"lanes": "default"}, "lanes"),
        ({"worker": ""}, "worker_id"),
        ({"instance": "a\nb"}, "worker_instance_id"),
        ({"instance": "x" * 257}, "worker_instance_id"),
        ({"kinds": [""]}, "kinds"),
        ({"namespace": ""}, "namespace"),
    ],
    ids=str,
)
@scenario
async def test_a_malformed_registration_is_refused(
    lab: Lab, fields: dict[str, Any], field: str
) -> None:
    async with lab.refuses(InvalidInput, field=field):
        await register(lab, **fields)


@pytest.mark.parametrize("reason", ["x" * 257, "a\nb", "\x07", 5])
@scenario
async def test_a_malformed_reason_for_death_is_refused(lab: Lab, reason: str) -> None:
    """Section 8: at most 256 bytes, no control characters."""
    await register(lab)
    async with lab.refuses(InvalidInput, field="reason"):
        await lab.engine.mark_worker_dead(worker_instance_id="i1", reason=reason)


@scenario
async def test_whether_leases_are_revoked_is_true_or_false(lab: Lab) -> None:
    """A word such as "no" would count as yes, and take work away."""
    with pytest.raises(InvalidInput, match="revoke_leases"):
        await lab.direct.mark_worker_dead(
            worker_instance_id="i1",
            reason="host lost",
            revoke_leases="no",  # type: ignore[arg-type]
        )
