"""Idempotent create: one execution per namespace and key, for as long as the policy says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import IdempotencyConflict
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Created, CreateResult, Duplicate
from tests.support.lab import Lab, scenario


async def create(lab: Lab, key: str = "k", **fields: Any) -> CreateResult:
    fields = {"execution_kind": "work", "input_payload": b"in", **fields}
    return await lab.engine.create_execution(idempotency_key=key, **fields)


@scenario
async def test_the_same_request_under_the_same_key_is_one_execution(lab: Lab) -> None:
    """Invariant I6."""
    first = await create(lab)
    assert isinstance(first, Created)
    async with lab.unchanged():
        assert await create(lab) == Duplicate(first.execution_id)
    claimed = await lab.claim()
    await lab.engine.complete(claimed.handle)
    async with lab.unchanged():
        assert await create(lab) == Duplicate(first.execution_id)


@pytest.mark.parametrize(
    "other",
    [
        {"input_payload": b"other"},
        {"execution_kind": "other"},
        {"lane_id": "other"},
        {"priority": 9},
        {"tags": {"a.b": "c"}},
        {"creator_identity": "ann"},
        {"payload_encoding": "json"},
        {"policy": ExecutionPolicy(max_replay_count=1)},
    ],
    ids=str,
)
@scenario
async def test_other_content_under_the_same_key_is_a_conflict(
    lab: Lab, other: dict[str, Any]
) -> None:
    first = await create(lab)
    await lab.create(lane_id="other")  # so that the lane is known before
    async with lab.unchanged():
        with pytest.raises(IdempotencyConflict, match="'k'") as conflict:
            await create(lab, **other)
    assert conflict.value.fields["execution_id"] == first.execution_id


@scenario
async def test_another_instant_is_the_same_content(lab: Lab) -> None:
    """A delay of ten seconds names another instant at every call."""
    first = await create(lab, delay_until=lab.now + 10)
    again = await create(lab, delay_until=lab.now + 20, execution_deadline_at=lab.now + 99)
    assert again == Duplicate(first.execution_id)


@scenario
async def test_the_key_is_free_exactly_when_its_window_ends(lab: Lab) -> None:
    """dedup_window_ms is honoured, swept or not."""
    policy = ExecutionPolicy(dedup_window_ms=1000)
    first = await create(lab, policy=policy)
    lab.clock.advance(999)
    assert await create(lab, policy=policy) == Duplicate(first.execution_id)
    lab.clock.advance(1)
    second = await create(lab, policy=policy)
    assert isinstance(second, Created)
    assert second.execution_id != first.execution_id
    assert await create(lab, policy=policy) == Duplicate(second.execution_id)
    await lab.after(1000)
    assert (await lab.dump())["ff_idempotency"] == []


@scenario
async def test_keys_of_two_tenants_do_not_meet(lab: Lab) -> None:
    first = await create(lab, namespace="a")
    second = await create(lab, namespace="b", input_payload=b"other")
    assert isinstance(second, Created)
    assert second.execution_id != first.execution_id


@scenario
async def test_rivals_with_one_key_create_one_execution(lab: Lab) -> None:
    """Two concurrent submits must collide, whatever batch they travel in."""
    answers = await asyncio.gather(*(create(lab) for _ in range(30)))
    created = [answer for answer in answers if isinstance(answer, Created)]
    assert len(created) == 1
    assert {answer.execution_id for answer in answers} == {created[0].execution_id}
    assert await lab.engine.count_executions() == {"default": {"waiting": 1}}


def test_rivals_in_two_engines_with_one_key_create_one_execution(durable_lab: Lab) -> None:
    """I16: an absent row cannot be locked, so rivals must collide at the insert."""

    async def race() -> None:
        other = Lab(durable_lab.url)
        await other.engine.start(migrate=False)
        try:
            for number in range(10):
                calls = [create(lab, f"k{number}") for lab in (durable_lab, other) for _ in "ab"]
                answers = await asyncio.gather(*calls)
                assert sum(isinstance(answer, Created) for answer in answers) == 1
                assert len({answer.execution_id for answer in answers}) == 1
        finally:
            await other.engine.close()

    durable_lab.run(race())


@scenario
async def test_a_key_may_repeat_inside_one_list(lab: Lab) -> None:
    """Invariant I15."""
    request = NewExecution(execution_kind="work", idempotency_key="k")
    first, second = await lab.engine.create_executions([request, request])
    assert isinstance(first, Created)
    assert second == Duplicate(first.execution_id)


@scenario
async def test_without_a_key_every_call_is_new(lab: Lab) -> None:
    first = await lab.engine.create_execution(execution_kind="work")
    second = await lab.engine.create_execution(execution_kind="work", idempotency_key="")
    third = await lab.engine.create_execution(execution_kind="work", idempotency_key="")
    assert len({each.execution_id for each in (first, second, third)}) == 3


@scenario
async def test_the_key_outlives_its_execution(lab: Lab) -> None:
    """The window counts, not the retention."""
    policy = ExecutionPolicy(retention_ttl_ms=10)
    first = await create(lab, policy=policy)
    await lab.engine.complete((await lab.claim()).handle)
    await lab.after(10)
    assert await lab.engine.describe_execution(execution_id=first.execution_id) is None
    assert await create(lab, policy=policy) == Duplicate(first.execution_id)
