"""Events as they come: a feed that resumes by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import EVERYTHING, NOW
from flowfabric.api.words import EventKindGiven
from flowfabric.errors import FlowFabricError
from flowfabric.model.checks import check_flag
from flowfabric.model.feed import Event, EventFilter
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.trouble import is_passing


async def events_of(
    start: Callable[[], Awaitable[EngineBackend]],
    kinds: Sequence[EventKindGiven] = (),
    wanted: EventFilter = EVERYTHING,
    after: str | None = NOW,
    *,
    follow: bool = True,
) -> AsyncIterator[Event]:
    """Every event behind a cursor, and with `follow` then each as it comes. An outage of the store
    is waited out: the feed goes on where it was."""
    patience = Patience(Outage())
    check_flag(follow, field="follow")
    while True:
        try:
            engine = await start()
            read = engine.subscribe_events if follow else engine.read_events
            page = await read(kinds=kinds, filter=wanted, after=after, limit=limits.PAGE_MAX)
        except FlowFabricError as error:
            if not is_passing(error):
                raise
            await patience.pause(error)
            continue
        patience.reset()
        after = page.cursor
        for event in page.events:
            yield event
        if page.is_end and not follow:
            return
