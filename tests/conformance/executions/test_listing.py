"""Listings and counts: everything is found, in one order, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, InvalidTagKey
from flowfabric.ids import partition_of
from tests.support.lab import TTL_MS, Lab, scenario


async def ids_of(lab: Lab, **filters: Any) -> list[str]:
    page = await lab.engine.list_executions(**filters)
    return [snapshot.execution_id for snapshot in page.items]


async def walk(lab: Lab, limit: int, **filters: Any) -> list[str]:
    """Every page, until no cursor comes back."""
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(100):
        page = await lab.engine.list_executions(cursor=cursor, limit=limit, **filters)
        assert len(page.items) <= limit
        seen += [snapshot.execution_id for snapshot in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return seen
    raise AssertionError("the cursor never ends")


@scenario
async def test_everything_is_listed_newest_first(lab: Lab) -> None:
    ids = []
    for number in range(7):
        ids.append(await lab.create(lane_id=f"l{number % 2}", namespace=f"n{number % 3}"))
        lab.clock.advance(number % 2)
    assert await ids_of(lab) == ids[::-1]
    for limit in (1, 2, 3, 7, 8):
        assert await walk(lab, limit) == ids[::-1]


@scenario
async def test_a_walk_neither_skips_nor_repeats_while_work_goes_on(lab: Lab) -> None:
    """An opaque cursor that carries the sort key; ties are not skipped."""
    ids = [await lab.create() for _ in range(9)]
    first = await lab.engine.list_executions(limit=4)
    assert first.next_cursor is not None
    for snapshot in first.items[-2:]:
        await lab.cancel(snapshot.execution_id)
    await lab.create()
    rest = await lab.engine.list_executions(limit=100, cursor=first.next_cursor)
    seen = [each.execution_id for each in (*first.items, *rest.items)]
    assert seen == ids[::-1]


@scenario
async def test_every_filter_narrows(lab: Lab) -> None:
    start = lab.now
    old = await lab.create("report", lane_id="a", namespace="x", tags={"team.name": "red"})
    lab.clock.advance(1000)
    running = (await lab.started(lane_id="b", tags={"team.name": "blue"})).execution_id
    failed = await lab.started(lane_id="c")
    await lab.engine.fail(failed.handle, reason="Disk FULL on node seven")
    new = await lab.create("report", lane_id="a", tags={"team.name": "red"})
    ids = {"old": old, "running": running, "failed": failed.execution_id, "new": new}
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"states": ("waiting",)}, ["new", "old"]),
        ({"states": ("active", "failed")}, ["failed", "running"]),
        ({"lane_id": "a"}, ["new", "old"]),
        ({"namespace": "x"}, ["old"]),
        ({"execution_kind": "report"}, ["new", "old"]),
        ({"tag": ("team.name", "red")}, ["new", "old"]),
        ({"tag": ("team.name", "green")}, []),
        ({"created_after": start + 1000}, ["new", "failed", "running"]),
        ({"created_before": start + 1000}, ["old"]),
        ({"text": "disk full"}, ["failed"]),
        ({"text": "team.name=blue"}, ["running"]),
        ({"text": "report"}, ["new", "old"]),
        ({"lane_id": "a", "namespace": "x", "states": ("waiting",)}, ["old"]),
        ({"lane_id": "nowhere"}, []),
    ]
    for filters, names in cases:
        assert await ids_of(lab, **filters) == [ids[name] for name in names], filters
        assert await walk(lab, 1, **filters) == [ids[name] for name in names], filters


@scenario
async def test_a_partition_can_be_listed(lab: Lab) -> None:
    ids = [await lab.create() for _ in range(30)]
    number = partition_of(ids[0][-36:])
    assert ids[0] in await ids_of(lab, partition=number)
    assert await ids_of(lab, partition=number) == [
        each for each in ids[::-1] if partition_of(each[-36:]) == number
    ]


@scenario
async def test_a_changed_tag_is_found_under_its_new_value_only(lab: Lab) -> None:
    """Invariant I8."""
    execution_id = await lab.create(tags={"a.b": "old"})
    await lab.engine.set_execution_tag(execution_id=execution_id, key="a.b", value="new")
    await lab.engine.set_execution_tag(execution_id=execution_id, key="c.d", value="more")
    assert await ids_of(lab, tag=("a.b", "old")) == []
    assert await ids_of(lab, tag=("a.b", "new")) == [execution_id]
    assert await ids_of(lab, tag=("c.d", "more")) == [execution_id]
    tag = await lab.engine.get_execution_tag(execution_id=execution_id, key="a.b")
    assert tag == "new"


@scenario
async def test_counts_are_exact_per_lane_and_state(lab: Lab) -> None:
    """I7: created = live + ended."""
    await lab.create(lane_id="a")
    await lab.create(lane_id="a", delay_until=lab.now + 5)
    await lab.completed(lane_id="b")
    await lab.started(lane_id="b")
    await lab.create(lane_id="b", namespace="other")
    assert await lab.engine.count_executions() == {
        "a": {"waiting": 1, "delayed": 1},
        "b": {"completed": 1, "active": 1, "waiting": 1},
    }
    assert await lab.engine.count_executions(namespace="other") == {"b": {"waiting": 1}}


@pytest.mark.parametrize(
    ("filters", "field"),
    [
        ({"states": ("sleeping",)}, "states"),
        ({"limit": -1}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"partition": 256}, "partition"),
        ({"partition": -1}, "partition"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"created_before": -5}, "created_before"),
        ({"text": "a\x00b"}, "text"),
        ({"lane_id": ""}, "lane_id"),
    ],
    ids=str,
)
@scenario
async def test_a_wrong_filter_is_named(lab: Lab, filters: dict[str, Any], field: str) -> None:
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.list_executions(**filters)


@scenario
async def test_a_wrong_tag_filter_is_named(lab: Lab) -> None:
    async with lab.refuses(InvalidTagKey, field="tag"):
        await lab.engine.list_executions(tag=("no dot", "x"))


@pytest.mark.parametrize("text", ["%", "_", "'; DROP TABLE ff_exec_core; --", "\\", '"', "ü%"])
@scenario
async def test_a_search_text_means_itself(lab: Lab, text: str) -> None:
    """Values are bound, never spliced."""
    odd = await lab.create(tags={"odd.value": f"x{text}y"})
    await lab.create(tags={"odd.value": "plain"})
    assert await ids_of(lab, text=text) == [odd]
    assert await ids_of(lab, tag=("odd.value", f"x{text}y")) == [odd]


# --- expired leases ----------------------------------------------------------------------------


@scenario
async def test_lapsed_leases_are_listed_completely_over_every_partition(lab: Lab) -> None:
    """By (expiry, id), ties included, all partitions, by tenant."""
    await lab.configure(namespace="ours")
    for _ in range(40):
        await lab.create()
    claimed = await lab.claims(limit=30)
    lab.clock.advance(10)
    claimed += await lab.claims(limit=5, namespace="ours")
    await lab.create(namespace="theirs")
    theirs = await lab.claim(namespace="theirs")
    await lab.engine.complete(claimed[0].handle)
    expected = {each.execution_id for each in claimed[1:]}
    assert (await lab.engine.list_expired_leases()).items == ()
    lab.clock.advance(TTL_MS)
    seen: list[tuple[int, str]] = []
    cursor: str | None = None
    while True:
        page = await lab.engine.list_expired_leases(cursor=cursor, limit=7, namespace="ours")
        seen += [(entry.expires_at_ms, entry.execution_id) for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [execution_id for _, execution_id in seen] == [
        each for _, each in sorted(seen, key=lambda pair: (pair[0], pair[1][-36:]))
    ]
    assert {execution_id for _, execution_id in seen} == expected
    assert len(seen) == len(expected)
    (entry,) = (await lab.engine.list_expired_leases(namespace="theirs")).items
    assert (entry.execution_id, entry.lease_epoch) == (theirs.execution_id, theirs.lease_epoch)
    assert (entry.worker_id, entry.attempt_index) == ("w1", 0)


@scenario
async def test_a_page_of_lapsed_leases_is_filled_by_its_own_tenant(lab: Lab) -> None:
    """Issue 10 C: filtered before it is limited, whatever stands in front of the tenant's own."""
    for tenant in ("theirs", "ours", "theirs", "ours"):
        for _ in range(3):
            await lab.create(namespace=tenant)
        await lab.claims(limit=3, namespace=tenant)
        lab.clock.advance(1)
    lab.clock.advance(TTL_MS)
    ours: list[str] = []
    cursor: str | None = None
    sizes = []
    while True:
        page = await lab.engine.list_expired_leases(cursor=cursor, limit=2, namespace="ours")
        sizes.append(len(page.items))
        ours += [entry.execution_id for entry in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sizes == [2, 2, 2]
    assert len(set(ours)) == 6
    assert (await lab.engine.list_expired_leases(namespace="nobody")).items == ()


@scenario
async def test_a_lease_counts_as_lapsed_from_its_last_instant(lab: Lab) -> None:
    """I3: `as_of` looks at another instant than now."""
    claimed = await lab.started()
    end = claimed.lease_expires_at
    for as_of, number in ((end - 1, 0), (end, 1), (end + 1, 1)):
        page = await lab.engine.list_expired_leases(as_of=as_of)
        assert len(page.items) == number
