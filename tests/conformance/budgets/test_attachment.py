"""Attachment: how budgets and quotas come to apply to an execution."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    BudgetScopeMismatch,
    IdempotencyConflict,
    InvalidInput,
    NotFound,
)
from flowfabric.model.bounds import Bounds
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Duplicate
from flowfabric.model.state import PublicState
from flowfabric.stores.tables import ATTACHMENTS
from tests.support.gates import BUDGET, QUOTA, budget, counted, many, quota, spend
from tests.support.lab import Lab, scenario


async def bounds(lab: Lab, execution_id: str) -> Bounds:
    return (await lab.record(execution_id)).bounds


async def attached(lab: Lab, budget_id: str = BUDGET) -> set[str]:
    rows = (await lab.dump())[ATTACHMENTS.name]
    return {row.execution_id for row in rows if row.budget_id == budget_id}


@scenario
async def test_bounds_of_the_call_are_kept_and_shown(lab: Lab) -> None:
    await budget(lab, "b1")
    await budget(lab, "b2")
    await quota(lab, cap=1)
    execution_id = await lab.create(
        budget_ids=("b2", "b1", "b2"), quota_policy_id=QUOTA, concurrency_key="customer-7"
    )
    expected = Bounds(budget_ids=("b1", "b2"), quota_policy_id=QUOTA, concurrency_key="customer-7")
    assert await bounds(lab, execution_id) == expected
    assert (await lab.describe(execution_id)).bounds == expected
    assert await attached(lab, "b1") == await attached(lab, "b2") == {execution_id}


@scenario
async def test_budgets_of_the_policy_are_attached(lab: Lab) -> None:
    """`policy.budget_ids` takes effect."""
    await budget(lab, "b1")
    await budget(lab, "b2")
    policy = ExecutionPolicy(budget_ids=("b1",))
    execution_id = await lab.create(policy=policy, budget_ids=("b2",))
    assert (await bounds(lab, execution_id)).budget_ids == ("b1", "b2")
    alone = await lab.create(policy=policy)
    await spend(lab, 10, "b1")
    assert await lab.claims(limit=5) == []
    assert await lab.state(alone) is PublicState.RATE_LIMITED


@scenario
async def test_a_lane_gives_defaults_to_what_is_created_there_afterwards(lab: Lab) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    await quota(lab, "own", cap=1)
    before = await lab.create(lane_id="jobs")
    await lab.engine.configure_lane(lane_id="jobs", budget_ids=(BUDGET,), quota_policy_id=QUOTA)
    after = await lab.create(lane_id="jobs")
    elsewhere = await lab.create(lane_id="other")
    own = await lab.create(lane_id="jobs", quota_policy_id="own", concurrency_key="k")
    keyed = await lab.create(lane_id="jobs", concurrency_key="k")
    assert await bounds(lab, before) == await bounds(lab, elsewhere) == Bounds()
    assert await bounds(lab, after) == Bounds(budget_ids=(BUDGET,), quota_policy_id=QUOTA)
    assert (await bounds(lab, own)).gate == ("own", "k")
    assert (await bounds(lab, own)).budget_ids == (BUDGET,)
    assert (await bounds(lab, keyed)).gate == (QUOTA, "k")


@scenario
async def test_a_lanes_defaults_change_one_by_one_and_can_be_taken_away(lab: Lab) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    configure = lab.engine.configure_lane
    await configure(lane_id="jobs", budget_ids=(BUDGET,), quota_policy_id=QUOTA)
    assert (await configure(lane_id="jobs", weight=3)).bounds == Bounds(
        budget_ids=(BUDGET,), quota_policy_id=QUOTA
    )
    answer = await configure(lane_id="jobs", budget_ids=())
    assert (answer.weight, answer.bounds) == (3, Bounds(quota_policy_id=QUOTA))
    assert (await configure(lane_id="jobs", quota_policy_id="")).bounds == Bounds()
    assert await bounds(lab, await lab.create(lane_id="jobs")) == Bounds()


@scenario
async def test_a_budget_of_a_lane_or_a_namespace_applies_there(lab: Lab) -> None:
    await budget(lab, "lane-b", scope_type="lane", scope_id="jobs")
    await budget(lab, "space-b", scope_type="namespace", scope_id="tenant")
    both = await lab.create(lane_id="jobs", namespace="tenant")
    lane = await lab.create(lane_id="jobs")
    space = await lab.create(namespace="tenant")
    neither = await lab.create()
    assert (await bounds(lab, both)).budget_ids == ("lane-b", "space-b")
    assert (await bounds(lab, lane)).budget_ids == ("lane-b",)
    assert (await bounds(lab, space)).budget_ids == ("space-b",)
    assert await bounds(lab, neither) == Bounds()


@scenario
async def test_a_budget_of_an_execution_applies_to_it_alone(lab: Lab) -> None:
    first, second = await lab.create(), await lab.create()
    await budget(lab, scope_type="execution", scope_id=first)
    assert (await bounds(lab, first)).budget_ids == (BUDGET,)
    assert await bounds(lab, second) == Bounds()
    await spend(lab, 10)
    assert [each.execution_id for each in await lab.claims(limit=5)] == [second]
    assert await lab.state(first) is PublicState.RATE_LIMITED


@scenario
async def test_a_budget_is_not_attached_outside_its_scope(lab: Lab) -> None:
    await budget(lab, "lane-b", scope_type="lane", scope_id="jobs")
    await budget(lab, "space-b", scope_type="namespace", scope_id="tenant")
    for name in ("lane-b", "space-b"):
        async with lab.refuses(BudgetScopeMismatch, field="budget_ids"):
            await lab.create(budget_ids=(name,))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"budget_ids": ("ghost",)}, "budget_ids"),
        ({"budget_ids": (BUDGET, "ghost")}, "budget_ids"),
        ({"policy": ExecutionPolicy(budget_ids=("ghost",))}, "budget_ids"),
        ({"quota_policy_id": "ghost"}, "quota_policy_id"),
    ],
)
@scenario
async def test_what_is_attached_must_exist(lab: Lab, fields: dict[str, Any], field: str) -> None:
    """Refused at the door, nothing recorded; and every one of a bulk with it."""
    await budget(lab)
    async with lab.refuses(NotFound, field=field):
        await lab.create(**fields)
    async with lab.refuses(NotFound, field=field):
        await many(lab, 3, **{"quota_policy_id": None, **fields})


@scenario
async def test_a_budget_that_only_collects_usage_is_not_attached(lab: Lab) -> None:
    await spend(lab, 5)
    async with lab.refuses(NotFound, field="budget_ids"):
        await lab.create(budget_ids=(BUDGET,))


@scenario
async def test_a_lanes_defaults_must_exist(lab: Lab) -> None:
    async with lab.refuses(NotFound, field="budget_ids"):
        await lab.engine.configure_lane(lane_id="jobs", budget_ids=("ghost",))
    async with lab.refuses(NotFound, field="quota_policy_id"):
        await lab.engine.configure_lane(lane_id="jobs", quota_policy_id="ghost")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"concurrency_key": "k"}, "concurrency_key"),
        ({"concurrency_key": ""}, "concurrency_key"),
        ({"concurrency_key": "a\nb", "quota_policy_id": QUOTA}, "concurrency_key"),
        ({"concurrency_key": "x" * 300, "quota_policy_id": QUOTA}, "concurrency_key"),
        ({"budget_ids": BUDGET}, "budget_ids"),
        ({"budget_ids": (7,)}, "budget_ids"),
        ({"budget_ids": ("",)}, "budget_ids"),
        ({"budget_ids": tuple(f"b{n}" for n in range(33))}, "budget_ids"),
        ({"quota_policy_id": ""}, "quota_policy_id"),
        ({"quota_policy_id": 7}, "quota_policy_id"),
    ],
)
@scenario
async def test_malformed_bounds_are_refused(lab: Lab, fields: dict[str, Any], field: str) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    await lab.create()  # its lane is known
    async with lab.refuses(InvalidInput, field=field):
        await lab.create(**fields)


@scenario
async def test_the_same_key_with_other_bounds_is_a_conflict(lab: Lab) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    first: dict[str, Any] = {
        "idempotency_key": "once",
        "budget_ids": (BUDGET,),
        "quota_policy_id": QUOTA,
        "concurrency_key": "a",
    }
    execution_id = await lab.create(**first)
    again = await lab.engine.create_execution(execution_kind="work", **first)
    assert again == Duplicate(execution_id)
    for change in (
        {"budget_ids": ()},
        {"concurrency_key": "b"},
        {"concurrency_key": None, "quota_policy_id": None},
    ):
        async with lab.refuses(IdempotencyConflict):
            await lab.engine.create_execution(execution_kind="work", **{**first, **change})


@scenario
async def test_a_lane_default_changes_nothing_about_a_repeated_create(lab: Lab) -> None:
    await quota(lab, cap=1)
    execution_id = await lab.create(idempotency_key="once")
    await lab.engine.configure_lane(lane_id="default", quota_policy_id=QUOTA)
    again = await lab.engine.create_execution(execution_kind="work", idempotency_key="once")
    assert again == Duplicate(execution_id)
    assert await bounds(lab, execution_id) == Bounds()


@counted
async def test_an_end_detaches_and_a_replay_attaches_again(lab: Lab) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    done = await lab.completed(budget_ids=(BUDGET,), quota_policy_id=QUOTA, concurrency_key="k")
    kept = await bounds(lab, done)
    assert await attached(lab) == set()
    await lab.engine.replay_execution(execution_id=done)
    assert await attached(lab) == {done}
    assert await bounds(lab, done) == kept
    await spend(lab, 10)
    assert await lab.claims() == []
    assert await lab.state(done) is PublicState.RATE_LIMITED


@scenario
async def test_bounds_survive_every_store_and_transition(lab: Lab) -> None:
    await budget(lab)
    await quota(lab, cap=1)
    claimed = await lab.started(budget_ids=(BUDGET,), quota_policy_id=QUOTA, concurrency_key="ü")
    expected = Bounds(budget_ids=(BUDGET,), quota_policy_id=QUOTA, concurrency_key="ü")
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 5)
    await lab.after(5)
    assert await bounds(lab, claimed.execution_id) == expected
    again = await lab.claim()
    await lab.engine.complete(again.handle)
    assert await bounds(lab, claimed.execution_id) == expected
