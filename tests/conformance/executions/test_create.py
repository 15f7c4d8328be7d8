"""Creating executions: what is recorded, when it may be claimed."""

from __future__ import annotations

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidTagKey
from flowfabric.ids import partition_of
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements, TimeoutPolicy
from flowfabric.model.results import Created
from flowfabric.model.state import AttemptState, BlockingReason, LifecyclePhase, PublicState
from tests.support.lab import Lab, scenario


@scenario
async def test_new_work_is_runnable_and_claimable_at_once(lab: Lab) -> None:
    """Nothing waits to be promoted by hand."""
    execution_id = await lab.create(priority=7, tags={"team.name": "a"}, creator_identity="ann")
    snapshot = await lab.describe(execution_id)
    assert snapshot.public_state is PublicState.WAITING
    assert snapshot.state.lifecycle_phase is LifecyclePhase.RUNNABLE
    assert snapshot.state.attempt_state is AttemptState.PENDING_FIRST_ATTEMPT
    assert snapshot.blocking_reason is BlockingReason.WAITING_FOR_WORKER
    assert (snapshot.priority, snapshot.tags) == (7, {"team.name": "a"})
    assert snapshot.created_at == snapshot.eligible_at == lab.now
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_a_past_delay_is_claimable_at_once(lab: Lab) -> None:
    for delay_until in (0, lab.now - 1, lab.now):
        execution_id = await lab.create(delay_until=delay_until)
        assert await lab.state(execution_id) is PublicState.WAITING
        assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_a_future_delay_is_claimable_exactly_from_its_instant(lab: Lab) -> None:
    execution_id = await lab.create(delay_until=lab.now + 1000)
    snapshot = await lab.describe(execution_id)
    assert snapshot.public_state is PublicState.DELAYED
    assert snapshot.eligible_at == lab.now + 1000
    await lab.after(999)
    assert await lab.claims() == []
    await lab.after(1)
    assert (await lab.claim()).execution_id == execution_id


@scenario
async def test_the_policys_fields_are_honoured_where_the_call_names_none(lab: Lab) -> None:
    """Priority, delay and deadline of the policy."""
    policy = ExecutionPolicy(
        priority=42,
        delay_until=lab.now + 500,
        timeout_policy=TimeoutPolicy(execution_deadline_ms=9000),
        routing_requirements=RoutingRequirements(required_capabilities=("gpu",)),
    )
    snapshot = await lab.describe(await lab.create(policy=policy))
    assert snapshot.priority == 42
    assert snapshot.eligible_at == lab.now + 500
    assert snapshot.deadline_at == lab.now + 9000
    assert snapshot.required_capabilities == ("gpu",)
    named = await lab.describe(await lab.create(policy=policy, priority=1, delay_until=lab.now + 1))
    assert (named.priority, named.eligible_at) == (1, lab.now + 1)


@scenario
async def test_a_policy_may_be_given_as_plain_data(lab: Lab) -> None:
    plain = {
        "retry_policy": {"max_retries": 2, "backoff": {"type": "fixed", "delay_ms": 5}},
        "timeout_policy": {"attempt_timeout_ms": 1000},
    }
    claimed = await lab.started(policy=plain)
    assert claimed.lease_expires_at == lab.now + 1000


@scenario
async def test_a_deadline_in_the_past_is_accepted_and_fires_at_the_next_look(lab: Lab) -> None:
    execution_id = await lab.create(execution_deadline_at=lab.now - 1)
    assert await lab.claims() == []
    await lab.engine.tick()
    assert await lab.state(execution_id) is PublicState.EXPIRED


@scenario
async def test_ids_are_minted_in_the_one_spelling_with_their_own_partition(lab: Lab) -> None:
    """The UUID decides the partition, whatever the lane."""
    ids = [await lab.create(lane_id="one") for _ in range(20)]
    partitions = set()
    for execution_id in ids:
        prefix, _, uuid = execution_id.partition("}:")
        number = int(prefix.removeprefix("{fp:"))
        assert number == partition_of(uuid)
        partitions.add(number)
    assert len(partitions) > 1
    assert sorted(ids, key=lambda key: key[-36:]) == ids
    claimed = await lab.claims(lanes=("one",), limit=20)
    assert [each.execution_id for each in claimed] == ids


@pytest.mark.parametrize("key", ["team", "Team.name", "team.", ".name", "te am.x", "1t.x", ""])
@scenario
async def test_a_malformed_tag_key_is_refused_at_creation(lab: Lab, key: str) -> None:
    async with lab.refuses(InvalidTagKey, field="tags"):
        await lab.create(tags={key: "x"})


@scenario
async def test_the_claim_carries_everything_the_worker_needs(lab: Lab) -> None:
    await lab.create(
        "brief",
        input_payload=b"\x00\xff",
        payload_encoding="json",
        tags={"a.b": "c"},
        idempotency_key="once",
        priority=3,
        execution_deadline_at=lab.now + 99_000,
    )
    claimed = await lab.claim()
    assert (claimed.execution_kind, claimed.lane_id, claimed.namespace) == (
        "brief",
        "default",
        "default",
    )
    assert (claimed.payload, claimed.payload_encoding) == (b"\x00\xff", "json")
    assert (claimed.tags, claimed.idempotency_key, claimed.priority) == ({"a.b": "c"}, "once", 3)
    assert claimed.deadline_at == lab.now + 99_000


@scenario
async def test_the_context_holds_the_input(lab: Lab) -> None:
    execution_id = await lab.create("brief", input_payload=b"in", tags={"a.b": "c"})
    context = await lab.engine.read_execution_context(execution_id=execution_id)
    assert (context.input_payload, context.execution_kind, context.tags) == (
        b"in",
        "brief",
        {"a.b": "c"},
    )


@scenario
async def test_thousands_are_created_in_one_call(lab: Lab) -> None:
    requests = [NewExecution(execution_kind="work", priority=n % 7) for n in range(2000)]
    created = await lab.engine.create_executions(requests)
    assert all(isinstance(each, Created) for each in created)
    counts = await lab.engine.count_executions()
    assert counts == {"default": {"waiting": 2000}}
    claimed = await lab.claims(limit=1000)
    assert len(claimed) == 1000
    assert [each.priority for each in claimed] == sorted(
        (each.priority for each in claimed), reverse=True
    )
