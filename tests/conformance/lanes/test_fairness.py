"""Fairness: priority, age, weights of lanes, tenants side by side."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import InvalidInput
from flowfabric.model.results import LaneConfigured
from tests.support.gates import QUOTA, counted, many, quota
from tests.support.lab import Lab, scenario


async def fill(lab: Lab, count: int, **fields: Any) -> None:
    request = NewExecution(execution_kind="work", **fields)
    await lab.engine.create_executions([request] * count)


async def weigh(lab: Lab, **weights: int) -> None:
    for lane_id, weight in weights.items():
        await lab.engine.configure_lane(lane_id=lane_id, weight=weight)


async def drawn(
    lab: Lab, total: int, limit: int, by: str = "lane_id", **fields: Any
) -> Counter[str]:
    """How many of `total` claimed executions came from where."""
    counts: Counter[str] = Counter()
    for _ in range(total // limit):
        claimed = await lab.claims(limit=limit, **fields)
        assert len(claimed) == limit
        counts.update(getattr(each, by) for each in claimed)
    return counts


# --- priority and age --------------------------------------------------------------------------


@scenario
async def test_priority_goes_first_then_age(lab: Lab) -> None:
    old = await lab.create(priority=1)
    lab.clock.advance(60_000)
    young = await lab.create(priority=1)
    high = await lab.create(priority=2)
    lab.clock.advance(1_000_000)
    assert [each.execution_id for each in await lab.claims(limit=5)] == [high, old, young]


@scenario
async def test_age_outweighs_priority_where_the_lane_says_so(lab: Lab) -> None:
    """One step of priority weighs `aging_ms` of waiting."""
    await lab.engine.configure_lane(lane_id="default", aging_ms=1_000)
    low = await lab.create(priority=0)
    lab.clock.advance(2_999)
    high = await lab.create(priority=3)
    lab.clock.advance(2)
    late = await lab.create(priority=3)
    assert [each.execution_id for each in await lab.claims(limit=5)] == [high, low, late]


@scenario
async def test_no_stream_of_important_work_starves_the_rest(lab: Lab) -> None:
    await lab.engine.configure_lane(lane_id="default", aging_ms=100)
    low = await lab.create(priority=0)
    for turn in range(100):
        await lab.create(priority=50)
        claimed = await lab.claim()
        if claimed.execution_id == low:
            assert turn * 100 <= 50 * 100 + 100
            return
        lab.clock.advance(100)
    raise AssertionError("it never ran")


@scenario
async def test_the_order_of_two_that_age_never_changes(lab: Lab) -> None:
    await lab.engine.configure_lane(lane_id="default", aging_ms=1_000)
    await lab.create(priority=2)
    lab.clock.advance(1_500)
    await lab.create(priority=4)
    await lab.create(priority=3)
    scan = lab.engine.scan_eligible_executions
    before = await scan(lane_id="default")
    for _ in range(5):
        lab.clock.advance(10_000)
        assert await scan(lane_id="default") == before


@scenario
async def test_a_changed_priority_counts_with_the_age_it_has(lab: Lab) -> None:
    await lab.engine.configure_lane(lane_id="default", aging_ms=1_000)
    old = await lab.create(priority=0)
    lab.clock.advance(2_000)
    young = await lab.create(priority=3)
    await lab.engine.change_priority(execution_id=old, new_priority=2)  # 2 steps and 2 s of age
    assert (await lab.claim()).execution_id == old
    assert (await lab.claim()).execution_id == young


@scenario
async def test_aging_holds_for_what_is_created_afterwards(lab: Lab) -> None:
    before = await lab.create(priority=0)
    await lab.engine.configure_lane(lane_id="default", aging_ms=1)
    lab.clock.advance(60_000)
    high = await lab.create(priority=1)
    first, second = await lab.claims(limit=2)
    assert {first.execution_id, second.execution_id} == {before, high}
    assert (await lab.record(before)).aging_ms == 0
    assert (await lab.record(high)).aging_ms == 1


# --- weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 40])
@scenario
async def test_lanes_share_a_worker_by_weight(lab: Lab, limit: int) -> None:
    """Three to one, however the places are asked for and whatever the priorities."""
    await weigh(lab, heavy=3, light=1)
    await fill(lab, 60, lane_id="heavy")
    await fill(lab, 60, lane_id="light", priority=9)
    counts = await drawn(lab, 40, limit, lanes=("heavy", "light"))
    assert counts == {"heavy": 30, "light": 10}


@pytest.mark.parametrize("limit", [1, 3, 7])
@scenario
async def test_three_lanes_share_by_weight(lab: Lab, limit: int) -> None:
    await weigh(lab, a=5, b=3, c=2)
    for lane in "abc":
        await fill(lab, 120, lane_id=lane)
    counts = await drawn(lab, 105, limit, lanes=("a", "b", "c"))
    for lane, share in {"a": 52.5, "b": 31.5, "c": 21}.items():
        assert abs(counts[lane] - share) <= 1


@scenario
async def test_lanes_without_settings_share_equally(lab: Lab) -> None:
    await fill(lab, 30, lane_id="a", priority=9)
    await fill(lab, 30, lane_id="b")
    assert await drawn(lab, 20, 1, lanes=("a", "b")) == {"a": 10, "b": 10}


@pytest.mark.parametrize("limit", [1, 8])
@scenario
async def test_the_part_of_an_empty_lane_goes_to_the_others(lab: Lab, limit: int) -> None:
    """And it has nothing saved up, nor are the others in debt, when work comes."""
    await weigh(lab, empty=9, busy=1)
    await fill(lab, 1, lane_id="empty")
    await fill(lab, 200, lane_id="busy")
    counts = await drawn(lab, 80, limit, lanes=("empty", "busy"))
    assert counts == {"empty": 1, "busy": 79}
    await weigh(lab, empty=1)
    await fill(lab, 100, lane_id="empty")
    counts = await drawn(lab, 40, limit, lanes=("empty", "busy"))
    assert abs(counts["empty"] - 20) <= 1


@scenario
async def test_a_short_lane_gives_what_it_lacks_within_one_claim(lab: Lab) -> None:
    await fill(lab, 2, lane_id="short")
    await fill(lab, 20, lane_id="long")
    claimed = await lab.claims(lanes=("short", "long"), limit=10)
    assert Counter(each.lane_id for each in claimed) == {"short": 2, "long": 8}


@scenario
async def test_each_lane_still_gives_its_best(lab: Lab) -> None:
    for lane in ("a", "b"):
        await fill(lab, 5, lane_id=lane)
        await fill(lab, 1, lane_id=lane, priority=7)
    claimed = await lab.claims(lanes=("a", "b"), limit=2)
    assert [each.priority for each in claimed] == [7, 7]


@counted
async def test_denied_work_costs_its_lane_nothing(lab: Lab) -> None:
    """What limits keep back is not counted as the lane's part."""
    await quota(lab, cap=1)
    await many(lab, 40, lane_id="limited", priority=9)
    await fill(lab, 40, lane_id="limited")
    await fill(lab, 40, lane_id="plain")
    counts = await drawn(lab, 40, 4, lanes=("limited", "plain"))
    assert abs(counts["limited"] - 20) <= 1
    status = await lab.engine.get_quota_status(quota_policy_id=QUOTA)
    assert [row.active for row in status.gates] == [1]


# --- tenants -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 4])
@scenario
async def test_a_tenant_with_a_thousand_queued_starves_no_other(lab: Lab, limit: int) -> None:
    await fill(lab, 1000, namespace="loud", priority=9)
    lab.clock.advance(1000)
    await fill(lab, 6, namespace="quiet")
    counts = await drawn(lab, 12, limit, by="namespace", namespaces=("loud", "quiet"))
    assert counts == {"loud": 6, "quiet": 6}
    assert len(await lab.claims(limit=50, namespaces=("loud", "quiet"))) == 50


@pytest.mark.parametrize("limit", [1, 3, 8])
@scenario
async def test_tenants_share_a_lane_by_weight(lab: Lab, limit: int) -> None:
    """Three to one, and one that is not named counts as one; another lane knows nothing of it."""
    await lab.engine.configure_lane(lane_id="default", tenant_weights={"big": 3, "small": 1})
    spaces = ("big", "other", "small")
    for tenant in spaces:
        await fill(lab, 60, namespace=tenant)
        await fill(lab, 60, namespace=tenant, lane_id="alike")
    counts = await drawn(lab, 48, limit, by="namespace", namespaces=spaces)
    for tenant, share in {"big": 28.8, "other": 9.6, "small": 9.6}.items():
        assert abs(counts[tenant] - share) <= 1
    counts = await drawn(lab, 48, limit, by="namespace", lanes=("alike",), namespaces=spaces)
    for tenant in spaces:
        assert abs(counts[tenant] - 16) <= 1


@scenario
async def test_weights_of_tenants_change_one_by_one(lab: Lab) -> None:
    configure = lab.engine.configure_lane
    assert (await configure(lane_id="x", tenant_weights={"b": 2, "a": 5})).tenant_weights == {
        "a": 5,
        "b": 2,
    }
    assert (await configure(lane_id="x", weight=2)).tenant_weights == {"a": 5, "b": 2}
    answer = await configure(lane_id="x", tenant_weights={"a": 1, "c": 9})
    assert (answer.weight, answer.tenant_weights) == (2, {"b": 2, "c": 9})
    (lane,) = (await lab.engine.list_lanes()).items
    assert lane.tenant_weights == {"b": 2, "c": 9}
    events = await lab.operator_events("x")
    assert [each.details.get("tenant_weights") for each in events] == [
        {"a": 5, "b": 2},
        None,
        {"a": 1, "c": 9},
    ]
    many = {f"t{number}": 2 for number in range(999)}
    async with lab.refuses(InvalidInput, field="tenant_weights"):
        await configure(lane_id="x", tenant_weights=many)


@scenario
async def test_tenants_share_their_lanes_part(lab: Lab) -> None:
    """A lane with more tenants gets no larger part of the worker."""
    for tenant in ("t1", "t2", "t3"):
        await fill(lab, 40, lane_id="crowded", namespace=tenant)
    await fill(lab, 40, lane_id="single", namespace="t1")
    spaces = ("t1", "t2", "t3")
    counts: Counter[tuple[str, str]] = Counter()
    for _ in range(60):
        claimed = await lab.claim(lanes=("crowded", "single"), namespaces=spaces)
        counts[claimed.lane_id, claimed.namespace] += 1
    assert counts["single", "t1"] == 30
    for tenant in spaces:
        assert abs(counts["crowded", tenant] - 10) <= 1


@scenario
async def test_the_unused_share_of_a_tenant_stays_on_its_lane(lab: Lab) -> None:
    await fill(lab, 1, lane_id="a", namespace="idle")
    await fill(lab, 60, lane_id="a", namespace="busy")
    await fill(lab, 60, lane_id="b", namespace="busy")
    fields: dict[str, Any] = {"lanes": ("a", "b"), "namespaces": ("idle", "busy")}
    for limit in (1, 4):
        counts = await drawn(lab, 40, limit, **fields)
        assert abs(counts["a"] - 20) <= 1


@scenario
async def test_a_worker_sees_only_the_tenants_it_serves(lab: Lab) -> None:
    await fill(lab, 5, namespace="mine")
    await fill(lab, 5, namespace="theirs", priority=9)
    claimed = await lab.claims(limit=10, namespaces=("mine",))
    assert {each.namespace for each in claimed} == {"mine"}
    assert len(claimed) == 5


@pytest.mark.parametrize("namespaces", [(), "mine", ("",), ("a\n",), (7,)])
@scenario
async def test_bad_namespaces_are_refused(lab: Lab, namespaces: Any) -> None:
    async with lab.refuses(InvalidInput, field="namespace"):
        await lab.claims(namespaces=namespaces)


@scenario
async def test_one_tenant_or_several_but_not_both(lab: Lab) -> None:
    async with lab.refuses(InvalidInput, field="namespaces"):
        await lab.claims(namespace="a", namespaces=("b",))


# --- configure_lane ----------------------------------------------------------------------------


@scenario
async def test_a_lane_is_configured_piece_by_piece(lab: Lab) -> None:
    configure = lab.engine.configure_lane
    answer = await configure(lane_id="x", weight=3)
    assert isinstance(answer, LaneConfigured)
    assert (answer.weight, answer.aging_ms) == (3, 0)
    answer = await configure(lane_id="x", aging_ms=500)
    assert (answer.weight, answer.aging_ms) == (3, 500)
    await lab.engine.pause_lane(lane_id="x")
    await lab.engine.resume_lane(lane_id="x")
    answer = await configure(lane_id="x")
    assert (answer.weight, answer.aging_ms) == (3, 500)
    events = await lab.operator_events("x")
    assert [event.event_type for event in events] == ["lane_changed"] * 5


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight", 0),
        ("weight", -1),
        ("weight", 1001),
        ("weight", 1.5),
        ("weight", "2"),
        ("weight", True),
        ("aging_ms", -1),
        ("aging_ms", 2**50),
        ("aging_ms", 0.5),
        ("lane_id", ""),
        ("lane_id", "x" * 65),
        ("lane_id", "a\tb"),
        ("budget_ids", "b"),
        ("budget_ids", (1,)),
        ("quota_policy_id", "a\nb"),
        ("tenant_weights", ["a"]),
        ("tenant_weights", {"": 2}),
        ("tenant_weights", {1: 2}),
        ("tenant_weights", {f"t{n}": 2 for n in range(1001)}),
    ],
)
@scenario
async def test_a_bad_configuration_changes_nothing(lab: Lab, field: str, value: Any) -> None:
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.configure_lane(**{"lane_id": "x", field: value})
