"""Quota policies: created once, changed, listed, read; words and numbers that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, InvalidQuotaSpec, LimitConflict, NotFound
from flowfabric.model.quota import QuotaAlreadySatisfied, QuotaCreated, QuotaPolicy, QuotaUpdated
from tests.support.gates import QUOTA, counted, many, quota
from tests.support.lab import Lab, scenario

LIMITS: Any = {
    "window_seconds": 10,
    "max_requests_per_window": 3,
    "max_concurrent": 2,
    "jitter_ms": 500,
}


@scenario
async def test_a_policy_is_created_once_and_read_back(lab: Lab) -> None:
    create, read = lab.engine.create_quota_policy, lab.engine.read_quota_policy_limits
    assert await read(quota_policy_id=QUOTA) is None
    assert await create(quota_policy_id=QUOTA, **LIMITS) == QuotaCreated(QUOTA)
    async with lab.unchanged():
        again = await create(quota_policy_id=QUOTA, **LIMITS)
        assert isinstance(again, QuotaAlreadySatisfied)
    assert await read(quota_policy_id=QUOTA) == QuotaPolicy(QUOTA, 10, 3, 2, 500, lab.now, lab.now)


@pytest.mark.parametrize("field", LIMITS)
@scenario
async def test_other_limits_under_the_same_id_are_a_conflict(lab: Lab, field: str) -> None:
    """Never silently ignored."""
    await lab.engine.create_quota_policy(quota_policy_id=QUOTA, **LIMITS)
    async with lab.refuses(LimitConflict):
        await lab.engine.create_quota_policy(
            quota_policy_id=QUOTA, **{**LIMITS, field: LIMITS[field] + 1}
        )


@scenario
async def test_an_update_changes_what_it_names(lab: Lab) -> None:
    await lab.engine.create_quota_policy(quota_policy_id=QUOTA, **LIMITS)
    lab.clock.advance(5)
    update = lab.engine.update_quota_policy
    assert await update(quota_policy_id=QUOTA, max_concurrent=9) == QuotaUpdated(QUOTA, 1)
    policy = await lab.engine.read_quota_policy_limits(quota_policy_id=QUOTA)
    assert policy == QuotaPolicy(QUOTA, 10, 3, 9, 500, lab.now - 5, lab.now, 1)
    for field, value in LIMITS.items():
        await update(quota_policy_id=QUOTA, **{field: value + 7})
    policy = await lab.engine.read_quota_policy_limits(quota_policy_id=QUOTA)
    assert policy == QuotaPolicy(QUOTA, 17, 10, 9, 507, lab.now - 5, lab.now, 1 + len(LIMITS))


@scenario
async def test_an_unknown_policy_cannot_be_changed_or_shown(lab: Lab) -> None:
    async with lab.refuses(NotFound):
        await lab.engine.update_quota_policy(quota_policy_id=QUOTA, max_concurrent=1)
    async with lab.refuses(NotFound):
        await lab.engine.get_quota_status(quota_policy_id=QUOTA)


@scenario
async def test_policies_are_listed_by_name_in_pages(lab: Lab) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in reversed(names):
        await quota(lab, name, cap=1)
    whole = await lab.engine.list_quota_policies()
    assert [each.quota_policy_id for each in whole.items] == names
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor is not None:
        page = await lab.engine.list_quota_policies(cursor=cursor, limit=2)
        pages.append([each.quota_policy_id for each in page.items])
        cursor = page.next_cursor
    assert pages == [["a", "b"], ["c", "d"], ["e"]]


@counted
async def test_the_status_shows_what_each_key_uses(lab: Lab) -> None:
    await quota(lab, cap=2, rate=5)
    await many(lab, 3, concurrency_key="x")
    await many(lab, 1, concurrency_key="y")
    claimed = await lab.claims(limit=9)
    await lab.engine.complete(claimed[0].handle)
    status = await lab.engine.get_quota_status(quota_policy_id=QUOTA)
    assert status.policy.active_concurrency_cap == 2
    shown = [(each.dimension, each.active, each.in_window) for each in status.gates]
    assert shown == [("x", 1, 2), ("y", 1, 1)]


BAD: list[tuple[str, Any, type[Exception]]] = [
    ("window_seconds", 0, InvalidQuotaSpec),
    ("window_seconds", -1, InvalidInput),
    ("window_seconds", 1.5, InvalidInput),
    ("window_seconds", 10**9, InvalidInput),
    ("max_requests_per_window", -1, InvalidInput),
    ("max_requests_per_window", 2**63, InvalidInput),
    ("max_requests_per_window", "3", InvalidInput),
    ("max_concurrent", -1, InvalidInput),
    ("max_concurrent", True, InvalidInput),
    ("jitter_ms", -1, InvalidInput),
    ("jitter_ms", 10**9, InvalidInput),
]


@pytest.mark.parametrize(("field", "value", "error"), BAD)
@scenario
async def test_impossible_numbers_are_refused(
    lab: Lab, field: str, value: Any, error: type[Any]
) -> None:
    async with lab.refuses(error, field=field):
        await lab.engine.create_quota_policy(quota_policy_id="new", **{field: value})
    await quota(lab, cap=1)
    async with lab.refuses(error, field=field):
        await lab.engine.update_quota_policy(quota_policy_id=QUOTA, **{field: value})


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 300, None, 7])
@scenario
async def test_a_policy_needs_a_proper_name(lab: Lab, name: Any) -> None:
    engine = lab.engine
    for call in (
        engine.create_quota_policy,
        engine.update_quota_policy,
        engine.read_quota_policy_limits,
        engine.get_quota_status,
    ):
        async with lab.refuses(InvalidInput, field="quota_policy_id"):
            await call(quota_policy_id=name)
