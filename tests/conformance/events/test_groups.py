"""Consumer groups: each event is handled at least once, those about one execution in order."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric import limits
from flowfabric.engine.due_work import sweep
from flowfabric.errors import (
    CursorExpired,
    DeliveryExpired,
    FlowFabricError,
    InvalidCursor,
    InvalidInput,
    NotFound,
)
from flowfabric.model.feed import EventFilter
from flowfabric.model.group import ConsumerGroup, Delivery
from tests.support.lab import Lab, scenario

REDELIVER_MS = 30_000


async def group(lab: Lab, **request: Any) -> None:
    request = {"group_id": "g", "kinds": ("completion",), "after": None, **request}
    await lab.engine.create_consumer_group(**request)


async def read(lab: Lab, consumer: str = "a", **request: Any) -> Delivery:
    request = {"group_id": "g", "consumer": consumer, "wait_ms": 0, **request}
    return await lab.engine.read_group(**request)


async def ack(lab: Lab, taken: Delivery, consumer: str = "a", **request: Any) -> Any:
    return await lab.engine.ack_group(
        group_id="g", consumer=consumer, delivery=taken.delivery, **request
    )


async def shown(lab: Lab) -> ConsumerGroup:
    (found,) = (await lab.engine.list_consumer_groups()).items
    return found


def subjects(taken: Delivery) -> list[str]:
    return [event.subject for event in taken.events]


@scenario
async def test_a_group_hands_out_each_event_once(lab: Lab) -> None:
    await group(lab)
    done = [await lab.completed() for _ in range(5)]
    first, second = await read(lab, "a", limit=2), await read(lab, "b", limit=10)
    assert subjects(first) == done[:2]
    assert subjects(second) == done[2:]
    assert (first.tries, second.tries) == (1, 1)
    assert await read(lab, "c") == Delivery("g")
    assert (await ack(lab, first)).outstanding == 1
    assert (await ack(lab, second, "b")).outstanding == 0
    assert await read(lab, "a") == Delivery("g")


@scenario
async def test_what_is_not_acknowledged_in_time_is_handed_out_again(lab: Lab) -> None:
    await group(lab)
    done = [await lab.completed() for _ in range(3)]
    lost = await read(lab, "a")
    await lab.after(REDELIVER_MS - 1)
    assert await read(lab, "b") == Delivery("g")
    await lab.after(1)
    again = await read(lab, "b")
    assert subjects(again) == subjects(lost) == done
    assert [event.cursor for event in again.events] == [event.cursor for event in lost.events]
    assert again.tries == 2
    with pytest.raises(DeliveryExpired):
        await ack(lab, lost, "a")
    assert (await ack(lab, again, "b")).outstanding == 0
    with pytest.raises(DeliveryExpired):
        await ack(lab, again, "b")


@scenario
async def test_a_consumer_that_says_it_goes_on_keeps_its_delivery(lab: Lab) -> None:
    await group(lab)
    await lab.completed()
    taken = await read(lab, "a")
    for _ in range(3):
        await lab.after(REDELIVER_MS - 1)
        await ack(lab, taken, up_to="")
        assert await read(lab, "b") == Delivery("g")
    assert (await ack(lab, taken)).outstanding == 0


@scenario
async def test_what_was_handled_is_not_handed_out_again(lab: Lab) -> None:
    await group(lab)
    done = [await lab.completed() for _ in range(4)]
    taken = await read(lab, "a")
    kept = await ack(lab, taken, up_to=taken.events[1].cursor)
    assert kept.outstanding == 1
    assert kept.redeliver_at == taken.redeliver_at
    await lab.after(REDELIVER_MS)
    rest = await read(lab, "b")
    assert subjects(rest) == done[2:]
    assert (await ack(lab, rest, "b", up_to=rest.events[-1].cursor)).outstanding == 0


@scenario
async def test_events_of_one_execution_wait_for_the_earlier_ones(lab: Lab) -> None:
    await group(lab, kinds=("lease", "completion"))
    claimed = await lab.started()
    other = await lab.completed(lane_id="other")
    first = await read(lab, "a", limit=1)
    assert subjects(first) == [claimed.execution_id]
    second = await read(lab, "b", limit=10)
    assert subjects(second) == [other, other]
    await lab.after(1)
    await lab.engine.complete(claimed.handle)
    assert await read(lab, "c") == Delivery("g")  # its lease is not acknowledged
    await ack(lab, first, "a")
    last = await read(lab, "c")
    assert [(event.kind.value, event.subject) for event in last.events] == [
        ("completion", claimed.execution_id)
    ]


@scenario
async def test_the_position_never_passes_what_is_not_acknowledged(lab: Lab) -> None:
    await group(lab)
    done = [await lab.completed() for _ in range(3)]
    first, second = await read(lab, "a", limit=1), await read(lab, "b", limit=2)
    await ack(lab, second, "b")
    behind = await lab.engine.read_events(kinds=("completion",), after=(await shown(lab)).position)
    assert [event.subject for event in behind.events] == done
    await ack(lab, first, "a")
    behind = await lab.engine.read_events(kinds=("completion",), after=(await shown(lab)).position)
    assert behind.events == ()


@scenario
async def test_a_group_reads_only_what_its_filter_lets_pass(lab: Lab) -> None:
    await group(lab, filter=EventFilter(lane_id="mail"))
    await lab.completed()
    wanted = await lab.completed(lane_id="mail")
    assert subjects(await read(lab)) == [wanted]


@scenario
async def test_a_group_without_events_does_not_fall_behind(lab: Lab) -> None:
    """Events that its filter leaves out may go."""
    await group(lab, filter=EventFilter(lane_id="mail"))
    for _ in range(3):
        await lab.completed()
        await lab.after(limits.GROUP_MOVE_MS)
        assert await read(lab) == Delivery("g")
    await lab.after(lab.config.event_retention_ms + 1)
    await lab.completed(lane_id="other")
    await sweep(lab.direct, 1000)
    assert await read(lab) == Delivery("g")


@scenario
async def test_a_group_that_fell_behind_learns_what_it_lost(lab: Lab) -> None:
    await group(lab)
    for _ in range(3):
        await lab.completed()
    lost_at = lab.now
    await lab.after(lab.config.event_retention_ms + 1)
    await lab.completed()
    await sweep(lab.direct, 1000)
    with pytest.raises(CursorExpired) as caught:
        await read(lab)
    assert caught.value.fields["lost_until"] >= lost_at
    assert (await shown(lab)).lost_until == caught.value.fields["lost_until"]
    await group(lab, reset=True)
    assert len((await read(lab)).events) == 1


@scenario
async def test_a_new_filter_applies_from_the_position_on(lab: Lab) -> None:
    await group(lab)
    first, mail = await lab.completed(), await lab.completed(lane_id="mail")
    taken = await read(lab)
    assert subjects(taken) == [first, mail]
    await group(lab, filter=EventFilter(lane_id="mail"))
    with pytest.raises(DeliveryExpired):
        await ack(lab, taken)
    assert subjects(await read(lab)) == [mail]


@scenario
async def test_the_same_group_again_changes_nothing(lab: Lab) -> None:
    await group(lab)
    await lab.completed()
    taken = await read(lab)
    made = await lab.engine.create_consumer_group(group_id="g", kinds=("completion",))
    assert not made.is_new
    await ack(lab, taken)
    audit = await lab.engine.read_events(kinds=("operator",))
    assert [event.event_type for event in audit.events] == ["group_created"]


@scenario
async def test_kinds_that_are_added_begin_now(lab: Lab) -> None:
    await group(lab)
    done = await lab.completed()
    await group(lab, kinds=("lease", "completion"))
    assert [(e.kind.value, e.subject) for e in (await read(lab)).events] == [("completion", done)]


@scenario
async def test_a_deleted_group_is_gone_and_begins_anew(lab: Lab) -> None:
    await group(lab)
    await lab.completed()
    taken = await read(lab)
    await lab.engine.delete_consumer_group(group_id="g", actor="ann")
    for call in (read(lab), ack(lab, taken), lab.engine.delete_consumer_group(group_id="g")):
        with pytest.raises(NotFound):
            await call
    assert (await lab.engine.list_consumer_groups()).items == ()
    await group(lab)
    assert len((await read(lab)).events) == 1


@scenario
async def test_a_listing_says_how_far_each_group_lags(lab: Lab) -> None:
    await group(lab, group_id="a")
    await group(lab, redeliver_ms=5_000)
    assert [each.lag_ms for each in (await lab.engine.list_consumer_groups()).items] == [0, 0]
    await lab.completed()
    taken = await read(lab)
    await lab.after(4_000)
    found = (await lab.engine.list_consumer_groups()).items
    assert [(each.group_id, each.lag_ms, each.outstanding) for each in found] == [
        ("a", 4_000, 0),
        ("g", 4_000, 1),
    ]
    await ack(lab, taken, dropped=1)
    page = await lab.engine.list_consumer_groups(limit=1)
    page = await lab.engine.list_consumer_groups(cursor=page.next_cursor)
    assert [(each.group_id, each.lag_ms, each.dropped) for each in page.items] == [("g", 0, 1)]


@scenario
async def test_a_group_hands_out_no_more_than_its_bound(lab: Lab) -> None:
    await group(lab)
    for _ in range(limits.DELIVERIES_MAX + 1):
        await lab.completed()
    taken = [await read(lab, limit=1) for _ in range(limits.DELIVERIES_MAX)]
    assert await read(lab) == Delivery("g")
    await ack(lab, taken[3])
    assert len((await read(lab)).events) == 1


WRONG: dict[str, tuple[dict[str, Any], type[FlowFabricError]]] = {
    "consumer": ({"consumer": ""}, InvalidInput),
    "delivery": ({"delivery": "7"}, InvalidInput),
    "another": ({"delivery": "99-1"}, DeliveryExpired),
    "up_to": ({"up_to": "zzz"}, InvalidCursor),
    "now": ({"up_to": "now"}, InvalidInput),
    "number": ({"up_to": 5}, InvalidInput),
    "dropped": ({"dropped": -1}, InvalidInput),
    "owner": ({"consumer": "b"}, DeliveryExpired),
}


@pytest.mark.parametrize("name", WRONG)
@scenario
async def test_a_wrong_acknowledgement_changes_nothing(lab: Lab, name: str) -> None:
    await group(lab)
    await lab.completed()
    taken = await read(lab)
    wrong, error = WRONG[name]
    request = {"group_id": "g", "consumer": "a", "delivery": taken.delivery, **wrong}
    with pytest.raises(error):
        await lab.engine.ack_group(**request)
    assert (await ack(lab, taken)).outstanding == 0


@scenario
async def test_the_cursor_of_another_delivery_is_refused(lab: Lab) -> None:
    await group(lab)
    for _ in range(2):
        await lab.completed()
    first, second = await read(lab, limit=1), await read(lab, limit=1)
    with pytest.raises(InvalidInput) as caught:
        await ack(lab, first, up_to=second.events[0].cursor)
    assert caught.value.fields["field"] == "up_to"


@scenario
async def test_doctor_warns_before_a_group_loses_events(lab: Lab) -> None:
    await group(lab)
    await lab.completed()
    await lab.after(lab.config.event_retention_ms // 2 - 1)
    assert not [each for each in (await lab.direct.doctor()).notices if each.code == "behind"]
    await lab.after(1)
    found = [each for each in (await lab.direct.doctor()).notices if each.code == "behind"]
    assert [each.subject for each in found] == ["g"]
