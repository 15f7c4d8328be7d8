"""The feed: every committed event once, in order, from any cursor on."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from flowfabric.engine.due_work import sweep
from flowfabric.errors import (
    CursorExpired,
    FlowFabricError,
    InvalidCursor,
    InvalidInput,
    InvalidTagKey,
)
from flowfabric.model.feed import Event, EventFilter, EventKind
from tests.support.lab import Lab, scenario


async def every(lab: Lab, *, limit: int = 1000, **request: Any) -> list[Event]:
    """All events, page by page."""
    found: list[Event] = []
    after = request.pop("after", None)
    while True:
        page = await lab.engine.read_events(after=after, limit=limit, **request)
        found += page.events
        after = page.cursor
        if page.is_end:
            return found


def told(events: list[Event]) -> list[tuple[str, str]]:
    return [(event.kind.value, event.event_type) for event in events]


@scenario
async def test_everything_that_happened_is_in_the_feed_in_order(lab: Lab) -> None:
    done = await lab.completed()
    await lab.after(1)
    held = await lab.create()
    await lab.engine.hold_execution(execution_id=held, reason="later", actor="ann")
    events = await every(lab)
    assert told(events) == [
        ("lease", "acquired"),
        ("completion", "success"),
        ("operator", "held"),
    ]
    assert [event.subject for event in events] == [done, done, held]
    assert events[2].details["actor"] == "ann"
    assert events[1].details["lane_id"] == "default"


@scenario
async def test_pages_of_any_size_show_each_event_once(lab: Lab) -> None:
    for _ in range(7):
        await lab.completed()
        await lab.after(1)
    whole = await every(lab)
    assert len(whole) == 14
    for limit in (1, 2, 5, 13, 14, 15):
        assert told(await every(lab, limit=limit)) == told(whole)
        assert [e.subject for e in await every(lab, limit=limit)] == [e.subject for e in whole]


@scenario
async def test_the_cursor_of_an_event_leads_behind_it(lab: Lab) -> None:
    for _ in range(4):
        await lab.completed()
    whole = await every(lab)
    for at, event in enumerate(whole):
        rest = await every(lab, after=event.cursor)
        assert [(e.kind, e.subject) for e in rest] == [(e.kind, e.subject) for e in whole[at + 1 :]]


@scenario
async def test_a_reader_that_begins_now_sees_only_what_comes(lab: Lab) -> None:
    await lab.completed()
    start = (await lab.engine.read_events(after="now")).cursor
    assert await every(lab, after=start) == []
    later = await lab.completed()
    assert [event.subject for event in await every(lab, after=start)] == [later, later]


FILTERS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "namespace": ({"namespace": "shop"}, ["b"]),
    "lane": ({"lane_id": "fast"}, ["c"]),
    "kind of work": ({"execution_kind": "mail"}, ["d"]),
    "tag": ({"tag": ("team.name", "red")}, ["e"]),
    "another tag": ({"tag": ("team.name", "blue")}, []),
    "two at once": ({"lane_id": "fast", "namespace": "shop"}, []),
    "outcome": ({"event_types": ("cancelled",)}, ["f"]),
}


@pytest.mark.parametrize("name", FILTERS)
@scenario
async def test_a_filter_shows_only_what_matches(lab: Lab, name: str) -> None:
    made = {
        "a": await lab.create(),
        "b": await lab.create(namespace="shop"),
        "c": await lab.create(lane_id="fast"),
        "d": await lab.create("mail"),
        "e": await lab.create(tags={"team.name": "red"}),
        "f": await lab.create(),
    }
    names = {key: word for word, key in made.items()}
    for claimed in [
        *await lab.claims(limit=10),
        *await lab.claims(limit=10, namespaces=("shop",)),
        *await lab.claims(limit=10, lanes=("fast",)),
    ]:
        if claimed.execution_id == made["f"]:
            await lab.cancel(made["f"])
        else:
            await lab.engine.complete(claimed.handle)
    wanted, expected = FILTERS[name]
    kinds = (EventKind.COMPLETION,)
    found = await every(lab, kinds=kinds, filter=EventFilter(**wanted), limit=2)
    assert [names[event.subject] for event in found] == expected


@scenario
async def test_the_events_of_one_execution(lab: Lab) -> None:
    mine, other = await lab.completed(), await lab.completed()
    found = await every(lab, filter=EventFilter(execution_id=mine))
    assert {event.subject for event in found} == {mine}
    assert told(found) == [("lease", "acquired"), ("completion", "success")]
    assert other != mine


@scenario
async def test_a_filtered_reader_moves_past_what_it_does_not_want(lab: Lab) -> None:
    """Otherwise it would read the same foreign events again and again."""
    for _ in range(5):
        await lab.completed()
    page = await lab.engine.read_events(filter=EventFilter(namespace="shop"))
    assert page.events == ()
    assert page.is_end
    mine = await lab.create(namespace="shop")
    await lab.cancel(mine)
    wanted = EventFilter(namespace="shop")
    after = await lab.engine.read_events(filter=wanted, after=page.cursor)
    assert {event.subject for event in after.events} == {mine}


@scenario
async def test_subscriptions_show_their_own_kind(lab: Lab) -> None:
    begin = (await lab.engine.read_events(after="now", kinds=("completion",))).cursor
    done = await lab.completed()
    page = await lab.engine.subscribe_completion(after=begin, wait_ms=0)
    assert told(list(page.events)) == [("completion", "success")]
    lease = await lab.engine.subscribe_lease_history(after=None, wait_ms=0)
    assert told(list(lease.events)) == [("lease", "acquired")]
    await lab.engine.set_execution_tag(execution_id=done, key="team.name", value="red")
    tags = await lab.engine.subscribe_instance_tags(after=None, wait_ms=0)
    assert [(e.subject, e.details["details"]["value"]) for e in tags.events] == [(done, "red")]
    signals = await lab.engine.subscribe_signal_delivery(after=None, wait_ms=0)
    assert signals.events == ()


@scenario
async def test_a_subscription_waits_for_an_event(lab: Lab) -> None:
    start = (await lab.engine.read_events(after="now")).cursor
    waiting = asyncio.create_task(lab.engine.subscribe_events(after=start, wait_ms=60_000))
    await asyncio.sleep(0)
    done = await lab.completed()
    page = await waiting
    assert page.events[0].subject == done


@scenario
async def test_a_subscription_in_vain_is_answered_an_empty_page(lab: Lab) -> None:
    page = await lab.engine.subscribe_events(wait_ms=10)
    assert page.events == ()


@scenario
async def test_a_cursor_behind_which_events_are_gone_has_expired(lab: Lab) -> None:
    await lab.completed()
    first = (await lab.engine.read_events(limit=1)).cursor
    for _ in range(3):
        await lab.after(1000)
        await lab.completed()
    end = (await lab.engine.read_events()).cursor
    await lab.after(lab.config.event_retention_ms + 1)
    await lab.completed()
    await sweep(lab.direct, 1000)
    with pytest.raises(CursorExpired):
        await lab.engine.read_events(after=first)
    fresh = await every(lab, after=end)
    assert told(fresh) == [("lease", "acquired"), ("completion", "success")]
    assert await every(lab)


@scenario
async def test_a_page_ends_at_a_place_although_more_has_happened(lab: Lab) -> None:
    read = partial(lab.engine.read_events, kinds=("completion",))
    first = await lab.completed()
    place = (await read()).cursor
    second = await lab.completed()
    page = await read(until=place)
    assert [each.subject for each in page.events] == [first]
    assert (page.cursor, page.is_end) == (place, True)
    rest = await read(after=page.cursor)
    assert [each.subject for each in rest.events] == [second]
    beyond = await read(after=rest.cursor, until=place)
    assert (beyond.events, beyond.cursor, beyond.is_end) == ((), rest.cursor, True)


BAD: dict[str, tuple[dict[str, Any], type[FlowFabricError], str]] = {
    "a kind that is none": ({"kinds": ("weather",)}, InvalidInput, "kinds"),
    "a cursor that is none": ({"after": "xyz"}, InvalidCursor, "cursor"),
    "a place that is none": ({"until": "xyz"}, InvalidCursor, "cursor"),
    "a limit below none": ({"limit": -1}, InvalidInput, "limit"),
    "a limit above all": ({"limit": 100_000}, InvalidInput, "limit"),
    "a tag without a dot": ({"filter": EventFilter(tag=("team", "x"))}, InvalidTagKey, "key"),
    "no execution": ({"filter": EventFilter(execution_id="x")}, InvalidInput, "filter"),
    "no flow": ({"filter": EventFilter(flow_id="x")}, InvalidInput, "filter.flow_id"),
}


@pytest.mark.parametrize("name", BAD)
@scenario
async def test_a_wrong_argument_is_named(lab: Lab, name: str) -> None:
    request, kind, field = BAD[name]
    with pytest.raises(kind) as caught:
        await lab.engine.read_events(**request)
    assert field in str(caught.value.fields.get("field"))


@scenario
async def test_a_cursor_of_another_feed_is_refused(lab: Lab) -> None:
    cursor = (await lab.engine.read_events(kinds=("completion",))).cursor
    with pytest.raises(InvalidCursor):
        await lab.engine.read_events(kinds=("lease",), after=cursor)
    with pytest.raises(InvalidCursor):
        await lab.engine.list_lanes(cursor=cursor)


@scenario
async def test_a_subscription_to_no_events_does_not_wait_for_one(lab: Lab) -> None:
    page = await lab.engine.subscribe_events(limit=0, wait_ms=300_000)
    assert page.events == ()
