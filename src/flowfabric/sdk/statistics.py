"""Minute statistics, as a program reads them."""

from __future__ import annotations

from abc import abstractmethod
from datetime import datetime
from typing import Any

from flowfabric.api.backend import EngineBackend
from flowfabric.limits import PAGE_MAX
from flowfabric.model.record import replace
from flowfabric.model.statistic import SpendingPage, Statistics, added_up
from flowfabric.sdk.durations import Moment, instant_ms, to_ms


class StatisticMethods:
    """The part of a fabric that tells what happened, in numbers.

    ```
    last_hour = await ff.statistics(since="1h", lane="mail")
    for line in last_hour.items:
        print(line.execution_kind, line.succeeded, line.pickup.percentile_ms(95))
    ```
    """

    @abstractmethod
    async def start(self) -> EngineBackend:
        """The running engine."""

    async def statistics(
        self,
        *,
        since: Moment = "1h",
        until: datetime | None = None,
        namespace: str | None = None,
        lane: str | None = None,
        kind: str | None = None,
        by: str = "total",
    ) -> Statistics:
        """Counts and times by lane and kind, of all namespaces unless one is given.

        `since`: so long ago, or a datetime. `by`: `minute`, `hour`, or `total` for one line of
        each lane and kind. The loops count every few seconds: `complete_until` says how far.
        """
        wanted = {"namespace": namespace, "lane_id": lane, "execution_kind": kind}
        return await every_statistic(await self.start(), by=by, **wanted, **_times(since, until))

    async def spending(
        self,
        *,
        since: Moment = "1h",
        until: datetime | None = None,
        budget: str | None = None,
        by: str = "total",
    ) -> SpendingPage:
        """What budgets spent, by dimension; the rest is as in `statistics`."""
        wanted = {"budget_id": budget, **_times(since, until)}
        return await every_spending(await self.start(), by=by, **wanted)


def _times(since: Moment, until: datetime | None) -> dict[str, Any]:
    """A duration is counted back by the clock of the store."""
    if isinstance(since, datetime):
        times = {"since": instant_ms(since, field="since")}
    else:
        times = {"last_ms": to_ms(since, field="since")}
    if until is not None:
        times["until"] = instant_ms(until, field="until")
    return times


async def every_statistic(engine: EngineBackend, **wanted: Any) -> Statistics:
    """All pages as one."""
    page = await engine.read_statistics(**wanted, limit=PAGE_MAX)
    found = list(page.items)
    while page.next_cursor is not None:
        page = await engine.read_statistics(**wanted, limit=PAGE_MAX, cursor=page.next_cursor)
        found += page.items
    return replace(page, items=tuple(added_up(found)))


async def every_spending(engine: EngineBackend, **wanted: Any) -> SpendingPage:
    """All pages as one."""
    page = await engine.read_spending(**wanted, limit=PAGE_MAX)
    found = list(page.items)
    while page.next_cursor is not None:
        page = await engine.read_spending(**wanted, limit=PAGE_MAX, cursor=page.next_cursor)
        found += page.items
    return replace(page, items=tuple(added_up(found)))
