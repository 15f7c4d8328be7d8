"""Equal claims that share a batch share one search, and get what each would have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest  # noqa: TC002 - annotations of fixtures

from flowfabric.kernel.command import Command
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import Claim
from flowfabric.kernel.execution.operate import ChangePriority, Release
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.place.lanes import SwitchLane
from flowfabric.model.results import Claimed
from flowfabric.model.route import LaneState, Route
from tests.support.gates import QUOTA, quota
from tests.support.lab import LANE, Lab, scenario

OFFER = Offer(("default",), (LANE,))


def a_claim(lab: Lab, limit: int = 1, offer: Offer = OFFER) -> Claim:
    return Claim(
        offer=offer,
        worker_id="w1",
        worker_instance_id="w1-1",
        lease_ttl_ms=30_000,
        limit=limit,
        backend=lab.direct.backend_label(),
    )


async def together(lab: Lab, *commands: Command[object]) -> list[list[str]]:
    """Which executions each claim of one batch gets."""
    replies = await lab.direct.execute_together(commands)
    return [ids_of(reply) for reply in replies if isinstance(reply, list)]


def ids_of(claimed: Sequence[Claimed]) -> list[str]:
    return [each.execution_id for each in claimed]


async def watched(lab: Lab, patch: pytest.MonkeyPatch) -> list[int]:
    """How many executions each search for ready ones asks for, from now on."""
    asked: list[int] = []

    async def kind_of(tx: Any) -> Any:
        return type(tx)

    kind = await lab.direct.store.transact(kind_of)
    ready = kind.ready

    async def noted(self: Any, routes: Sequence[Route], limit: int, *more: Any) -> Any:
        asked.append(limit)
        return await ready(self, routes, limit, *more)

    patch.setattr(kind, "ready", noted)
    return asked


def assert_once(asked: list[int], number: int) -> None:
    """One search; PostgreSQL looks first without locks, and again with them where it must."""
    assert asked in ([number], [number, number])


@scenario
async def test_equal_claims_of_a_batch_search_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await lab.create() for _ in range(5)]
    asked = await watched(lab, monkeypatch)
    got = await together(lab, *(a_claim(lab, limit) for limit in (1, 2, 1)))
    assert got == [made[:1], made[1:3], made[3:4]]
    assert_once(asked, 4)


@scenario
async def test_claims_behind_the_last_work_do_not_search_for_more(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [await lab.create() for _ in range(2)]
    asked = await watched(lab, monkeypatch)
    assert await together(lab, *(a_claim(lab) for _ in range(4))) == [made[:1], made[1:], [], []]
    assert_once(asked, 4)


@scenario
async def test_a_claim_alone_asks_for_its_own_number(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.create()
    asked = await watched(lab, monkeypatch)
    await together(lab, a_claim(lab, 3))
    assert asked == [3]


@scenario
async def test_work_that_gets_ready_in_between_is_found(lab: Lab) -> None:
    first, second, urgent = [await lab.create() for _ in range(3)]
    await lab.engine.hold_execution(execution_id=urgent, reason="look")
    await lab.engine.change_priority(execution_id=urgent, new_priority=9)
    released = Release(execution_id=urgent)
    got = await together(lab, a_claim(lab), released, a_claim(lab), a_claim(lab))
    assert got == [[first], [urgent], [second]]


@scenario
async def test_a_priority_that_rises_in_between_counts(lab: Lab) -> None:
    first, second, third = [await lab.create() for _ in range(3)]
    raised = ChangePriority(execution_id=third, new_priority=8)
    got = await together(lab, a_claim(lab), raised, a_claim(lab), a_claim(lab))
    assert got == [[first], [third], [second]]


@scenario
async def test_a_candidate_that_is_cancelled_in_between_is_not_handed_out(lab: Lab) -> None:
    first, second, third = [await lab.create() for _ in range(3)]
    stop = Cancel(execution_id=second, reason="enough", source="operator_override")
    got = await together(lab, a_claim(lab), stop, a_claim(lab), a_claim(lab))
    assert got == [[first], [third], []]


@scenario
async def test_a_lane_that_is_paused_in_between_hands_out_nothing(lab: Lab) -> None:
    first, _ = [await lab.create() for _ in range(2)]
    pause = SwitchLane(lane_id=LANE, lane_state=LaneState.PAUSED, reason="")
    assert await together(lab, a_claim(lab), pause, a_claim(lab)) == [[first], []]


@scenario
async def test_another_offer_in_between_takes_what_is_best_for_it(lab: Lab) -> None:
    first, second, third = [await lab.create() for _ in range(3)]
    kinds = Offer(("default",), (LANE,), (), ("work",))
    got = await together(lab, a_claim(lab), a_claim(lab, 1, kinds), a_claim(lab))
    assert got == [[first], [second], [third]]


@scenario
async def test_limits_hold_for_claims_that_share_a_batch(lab: Lab) -> None:
    await quota(lab, cap=2)
    bounded = [await lab.create(quota_policy_id=QUOTA) for _ in range(3)]
    free = await lab.create()
    got = await together(lab, *(a_claim(lab) for _ in range(4)))
    assert sorted(key for keys in got for key in keys) == sorted([*bounded[:2], free])


@scenario
async def test_two_lanes_share_a_worker_as_before(lab: Lab) -> None:
    ids = {lane: [await lab.create(lane_id=lane) for _ in range(3)] for lane in (LANE, "other")}
    offer = Offer(("default",), (LANE, "other"))
    got = await together(lab, *(a_claim(lab, 1, offer) for _ in range(6)))
    claimed = [key for keys in got for key in keys]
    assert sorted(claimed) == sorted([*ids[LANE], *ids["other"]])
    assert {claimed[0], claimed[1]} == {ids[LANE][0], ids["other"][0]}  # turn by turn
