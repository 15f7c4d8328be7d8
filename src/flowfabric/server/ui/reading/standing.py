"""What several pages need to know of the whole store: gauges, and an hour of statistics.

Both cost the store a bounded look and change by the second at most, so callers with the same rights
share one reading for a while.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from flowfabric.api.gauges import ReadGauges
from flowfabric.api.statistics import ReadStatistics
from flowfabric.clock import monotonic
from flowfabric.limits import PAGE_MAX
from flowfabric.model.gauges import Gauges
from flowfabric.model.statistic import HOUR_MS, Statistic, Step, added_up
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.service import Service

_GAUGES_S: Final = 5.0
_PAGES: Final = 3  # of statistics: what is beyond is left out, and said


class Hour(NamedTuple):
    """An hour of statistics. `is_whole`: no lane or kind was left out."""

    items: tuple[Statistic, ...]
    complete_until: int
    is_whole: bool


# By server: when gauges were last read, and what they said.
_KEPT: Final[WeakKeyDictionary[Service, tuple[float, Gauges]]] = WeakKeyDictionary()


async def gauges_now(service: Service, call: Call) -> Gauges | None:
    """What stands where; none for a caller of some namespaces, since gauges are of all."""
    if call.caller.namespaces is not None:
        return None
    now = monotonic()
    kept = _KEPT.get(service)
    if kept is None or now - kept[0] > _GAUGES_S:
        kept = _KEPT[service] = (now, await ask(service, call, ReadGauges()))
    return kept[1]


async def last_hour(service: Service, call: Call) -> Hour:
    """Statistics of the last hour by minute, lane and kind."""
    found: list[Statistic] = []
    cursor, until = None, 0
    for _ in range(_PAGES):
        request = ReadStatistics(last_ms=HOUR_MS, by=Step.MINUTE, cursor=cursor, limit=PAGE_MAX)
        page = await ask(service, call, request)
        found += page.items
        cursor, until = page.next_cursor, page.complete_until
        if cursor is None:
            break
    return Hour(tuple(added_up(found)), until, cursor is None)
