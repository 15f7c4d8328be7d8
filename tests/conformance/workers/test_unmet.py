"""Waiting work that no live worker can run: what it wants, without a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowfabric import limits
from flowfabric.model.worker import Unmet
from tests.support.lab import LANE, Lab, scenario

if TYPE_CHECKING:
    import pytest

LIVE: dict[str, Any] = {"worker_id": "w", "lanes": (LANE,), "liveness_ttl_ms": 30_000}


def needs(*capabilities: str) -> dict[str, Any]:
    return {"policy": {"routing_requirements": {"required_capabilities": list(capabilities)}}}


async def unmet(lab: Lab, **more: Any) -> list[Unmet]:
    return list((await lab.engine.list_unmet(**more)).items)


@scenario
async def test_work_that_no_live_worker_can_run_is_told_until_one_can(lab: Lab) -> None:
    first = await lab.create(**needs("eu", "gpu"))
    await lab.create(**needs("eu", "gpu"))
    (found,) = await unmet(lab)
    assert (found.execution_id, found.missing) == (first, ("eu", "gpu"))
    assert (found.lane_id, found.execution_kind) == (LANE, "work")
    await lab.engine.register_worker(**LIVE, worker_instance_id="a", capabilities=("eu",))
    (found,) = await unmet(lab)
    assert (found.required_capabilities, found.missing) == (("eu", "gpu"), ("gpu",))
    await lab.engine.register_worker(**LIVE, worker_instance_id="b", capabilities=("gpu",))
    (found,) = await unmet(lab)
    assert found.missing == ()  # each is offered, but by another worker
    both: Any = {"capabilities": ("eu", "gpu"), "kinds": ("work",)}
    await lab.engine.register_worker(**LIVE, worker_instance_id="c", **both)
    assert await unmet(lab) == []
    await lab.after(30_001)
    assert len(await unmet(lab)) == 1


@scenario
async def test_blocked_work_is_told_and_what_does_not_wait_is_not(lab: Lab) -> None:
    key = await lab.create(**needs("gpu"))
    await lab.engine.block_route(
        execution_id=key,
        lane_id=LANE,
        reason_code="waiting_for_capable_worker",
        reason_detail="no gpu",
    )
    (found,) = await unmet(lab)
    assert found.execution_id == key
    await lab.cancel(key)
    await lab.create("later", delay_until=lab.now + 60_000)
    assert await unmet(lab) == []
    assert await unmet(lab, namespace="other") == []


@scenario
async def test_a_page_looks_at_so_many_routes_and_the_next_goes_on(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNMET_LOOKS", 2)
    for number in range(5):
        key = await lab.create(f"kind-{number}")
        if number < 3:
            await lab.cancel(key)
    kinds: list[str] = []
    cursor: str | None = None
    for _ in range(3):
        page = await lab.engine.list_unmet(cursor=cursor)
        kinds += [each.execution_kind for each in page.items]
        cursor = page.next_cursor
    assert (kinds, cursor) == (["kind-3", "kind-4"], None)
