"""Reading events: pages of the feed, and waiting for more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.api import events as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.feed import Feed, checked_filter
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.model.checks import check_integer
from flowfabric.model.event import OperatorEventType
from flowfabric.model.feed import EventFilter, EventKind, EventPage
from flowfabric.model.record import replace

_TAGGED: Final = (OperatorEventType.TAGGED.value,)


@answers(api.ReadEvents)
async def read_events(machine: Machine, request: api.ReadEvents) -> EventPage:
    """One page, at once."""
    feed = Feed(machine, request.kinds, request.filter, request.limit)
    until = None if request.until is None else feed.start(request.until, "until")
    return await feed.page(feed.start(request.after), until)


@answers(api.SubscribeEvents)
async def subscribe_events(machine: Machine, request: api.SubscribeEvents) -> EventPage:
    """The next page, when there is one."""
    return await _subscribe(machine, request, request.kinds, request.filter)


@answers(api.SubscribeCompletion)
async def subscribe_completion(machine: Machine, request: api.SubscribeCompletion) -> EventPage:
    """Ends."""
    return await _subscribe(machine, request, (EventKind.COMPLETION,), request.filter)


@answers(api.SubscribeLeaseHistory)
async def subscribe_lease_history(
    machine: Machine, request: api.SubscribeLeaseHistory
) -> EventPage:
    """Changes of ownership."""
    return await _subscribe(machine, request, (EventKind.LEASE,), request.filter)


@answers(api.SubscribeSignalDelivery)
async def subscribe_signal_delivery(
    machine: Machine, request: api.SubscribeSignalDelivery
) -> EventPage:
    """Signals."""
    return await _subscribe(machine, request, (EventKind.SIGNAL,), request.filter)


@answers(api.SubscribeInstanceTags)
async def subscribe_instance_tags(
    machine: Machine, request: api.SubscribeInstanceTags
) -> EventPage:
    """Tags, which the audit trail has."""
    wanted = checked_filter(machine, request.filter)
    wanted = replace(wanted, event_types=_TAGGED)
    return await _subscribe(machine, request, (EventKind.OPERATOR,), wanted)


async def _subscribe(
    machine: Machine, request: Any, kinds: Sequence[Any], wanted: EventFilter
) -> EventPage:
    """Read, and read again when the logs have grown, until there is an event or the time is up."""
    feed = Feed(machine, kinds, wanted, request.limit)
    most = limits.SUBSCRIBE_WAIT_MS_MAX
    check_integer(request.wait_ms, field="wait_ms", least=0, most=most)
    until = wait_until(request.wait_ms)
    after = feed.start(request.after)
    with machine.feed.watching() as watch:
        page = await feed.page(after)
        while not page.events and request.limit and (pause := left_s(until)) > 0:
            if page.is_end:
                await watch.changed(pause)
            page = await feed.page(feed.start(page.cursor))
        return page
