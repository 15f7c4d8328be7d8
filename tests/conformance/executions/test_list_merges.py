"""Listings of several states and routes are merged from pages of each: none is lost in between."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.model.execution import Execution
from flowfabric.model.state import BlockingReason
from flowfabric.stores.indexes import newest_first
from flowfabric.stores.listing import MERGED_MAX
from tests.support.lab import Lab, scenario

FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "waiting": {"states": ["waiting"]},
    "active": {"states": ["active"]},
    "waiting, delayed and failed": {"states": ["waiting", "delayed", "failed"]},
    "completed and waiting": {"states": ["completed", "waiting"]},
    "kind": {"execution_kind": "a"},
    "lane, of many routes": {"lane_id": "default"},
    "kind and state": {"execution_kind": "b", "states": ["waiting", "delayed"]},
    "kind and completed": {"execution_kind": "a", "states": ["completed"]},
    "tag and state": {"tag": ("team.name", "a"), "states": ["waiting", "completed"]},
}


async def fill(lab: Lab) -> None:
    """Executions of three routes in many states, a few to each instant."""
    for turn in range(4):
        for kind in ("a", "b", "c"):
            tags = {"team.name": kind}
            for _ in range(2):
                await lab.create(kind, tags=tags)
            await lab.create(kind, tags=tags, delay_until=lab.now + 1_000_000)
            held = await lab.create(kind, tags=tags)
            await lab.engine.block_execution_for_admission(
                execution_id=held, reason=BlockingReason.WAITING_FOR_CAPABLE_WORKER
            )
        claims = await lab.claims(limit=3)
        await lab.engine.complete(claims[0].handle)
        await lab.engine.fail(claims[1].handle, reason="x")
        lab.clock.advance(turn)  # the first two turns have the same instant


def expected(executions: list[Execution], wanted: dict[str, Any]) -> list[str]:
    """Judged one by one, without any index."""
    chosen = [
        each
        for each in executions
        if each.public_state.value in wanted.get("states", [each.public_state.value])
        and each.execution_kind == wanted.get("execution_kind", each.execution_kind)
        and ("tag" not in wanted or each.tags.get(wanted["tag"][0]) == wanted["tag"][1])
    ]
    return [each.execution_id for each in sorted(chosen, key=newest_first, reverse=True)]


@pytest.mark.parametrize("limit", [1, 4, 1000])
@pytest.mark.parametrize("name", FILTERS)
@scenario
async def test_pages_show_each_execution_once_newest_first(lab: Lab, name: str, limit: int) -> None:
    await fill(lab)
    wanted, found, cursor = FILTERS[name], [], None
    while True:
        page = await lab.engine.list_executions(**wanted, limit=limit, cursor=cursor)
        found += [each.execution_id for each in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert found
    assert found == expected((await lab.dump())["executions"], wanted)


@scenario
async def test_a_listing_of_more_routes_than_are_merged_shows_all(lab: Lab) -> None:
    made = [await lab.create(f"k{number}") for number in range(MERGED_MAX + 1)]
    page = await lab.engine.list_executions(lane_id="default", limit=1000)
    assert sorted(each.execution_id for each in page.items) == sorted(made)
