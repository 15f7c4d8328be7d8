"""Limits belong to a namespace or to all, and tell how often they were changed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flowfabric.errors import InvalidInput, LimitConflict, RevisionMismatch
from flowfabric.model.budget import BudgetAlreadySatisfied
from tests.support.lab import Lab, scenario

PAGES: Final[dict[str, Any]] = {
    "budget_id": "pages",
    "dimensions": ("a",),
    "hard_limits": (5,),
    "soft_limits": (0,),
}


@scenario
async def test_a_budget_is_changed_only_as_it_was_read(lab: Lab) -> None:
    engine = lab.engine
    await engine.create_budget(**PAGES)
    assert (await engine.get_budget_status(budget_id="pages")).revision == 0
    raised = await engine.update_budget(
        budget_id="pages", hard_limits={"a": 6}, expected_revision=0
    )
    assert raised.revision == 1
    async with lab.refuses(RevisionMismatch, "it is 1 by now, not 0"):
        await engine.update_budget(budget_id="pages", hard_limits={"a": 7}, expected_revision=0)
    assert (await engine.update_budget(budget_id="pages", hard_limits={"a": 8})).revision == 2
    status = await engine.get_budget_status(budget_id="pages")
    assert (status.revision, status.hard_limits) == (2, {"a": 8})


@scenario
async def test_a_quota_is_changed_only_as_it_was_read(lab: Lab) -> None:
    engine = lab.engine
    await engine.create_quota_policy(quota_policy_id="q", max_concurrent=1)
    first = await engine.update_quota_policy(
        quota_policy_id="q", max_concurrent=2, expected_revision=0
    )
    assert first.revision == 1
    async with lab.refuses(RevisionMismatch, "revision"):
        await engine.update_quota_policy(quota_policy_id="q", max_concurrent=3, expected_revision=0)
    assert (await engine.get_quota_status(quota_policy_id="q")).revision == 1


@scenario
async def test_the_same_limit_of_another_owner_is_a_conflict(lab: Lab) -> None:
    engine = lab.engine
    quota: dict[str, Any] = {"quota_policy_id": "q", "max_concurrent": 1}
    await engine.create_budget(**PAGES, namespace="a")
    await engine.create_quota_policy(**quota, namespace="a")
    again = await engine.create_budget(**PAGES, namespace="a")
    assert isinstance(again, BudgetAlreadySatisfied)
    for other in ("b", None):
        async with lab.refuses(LimitConflict, "another owner"):
            await engine.create_budget(**PAGES, namespace=other)
        async with lab.refuses(LimitConflict, "another owner"):
            await engine.create_quota_policy(**quota, namespace=other)
    assert (await engine.get_budget_status(budget_id="pages")).namespace == "a"
    policy = await engine.read_quota_policy_limits(quota_policy_id="q")
    assert policy is not None
    assert policy.namespace == "a"


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", 1 << 53])
@scenario
async def test_a_revision_is_a_number(lab: Lab, value: Any) -> None:
    await lab.engine.create_budget(**PAGES)
    async with lab.refuses(InvalidInput, "expected_revision"):
        await lab.engine.update_budget(budget_id="pages", expected_revision=value)
