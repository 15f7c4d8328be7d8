"""What the store knows, as metrics: read every ten seconds, however often anybody scrapes.

Counters are differences of minute statistics: a minute is read again until it is complete, and what
it has more than at the last look is added. So each event is counted once in each process, from the
process's start on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.api.budgets import ListBudgets
from flowfabric.api.gauges import ReadGauges
from flowfabric.api.statistics import ReadSpending, ReadStatistics
from flowfabric.errors import FlowFabricError
from flowfabric.ids import jitter
from flowfabric.metrics.catalogue import WORK_S
from flowfabric.metrics.registry import Histogram as Buckets
from flowfabric.metrics.registry import Registry
from flowfabric.model.budget import BudgetStatus
from flowfabric.model.gauges import Gauges
from flowfabric.model.statistic import BUCKETS_MS, MINUTE_MS, Histogram, Spending, Statistic

T = TypeVar("T")
Key = tuple[Any, ...]

_LOGGER = logging.getLogger("flowfabric.metrics")
EVERY_S: Final = 10.0
_SLOW_S: Final = 5.0  # a store that takes longer to answer counts as not answering
_PAGES: Final = 20  # of each kind, in one look
_BUDGETS: Final = 200
# The words of statistics by those of the metric.
_EVENTS: Final = {
    "created": "created",
    "started": "started",
    "resumed": "resumed",
    "succeeded": "completed",
    "failed": "failed",
    "retried": "retried",
    "recovered": "recovered",
    "cancelled": "cancelled",
    "expired": "expired",
    "skipped": "skipped",
}
_HISTOGRAMS: Final = {"pickup": "ff_pickup_seconds", "run": "ff_run_seconds"}


def _coarser() -> tuple[int, ...]:
    """For each bucket of statistics the bucket of a metric it belongs to."""
    bounds = [bound * 1_000 for bound in WORK_S]
    ends = [*BUCKETS_MS, float("inf")]
    return tuple(sum(1 for bound in bounds if bound < end) for end in ends)


_BUCKET: Final = _coarser()


class Figures:
    """Keeps the metrics of the store behind an engine of this process true."""

    def __init__(self, engine: EngineBackend, registry: Registry) -> None:
        self._engine = engine
        self._registry = registry
        self._events = registry.counter("ff_executions_total")
        self._lost = registry.counter("ff_leases_lost_total")
        self._spent = registry.counter("ff_budget_spend_total")
        self._up = registry.counter("ff_store_up")
        self._since: int | None = None  # the first minute that is not complete
        self._seen: dict[Key, Any] = {}  # lines of minutes from then on
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look, and look again from now on."""
        await self.turn()
        self._task = asyncio.create_task(self._run(), name="flowfabric-figures")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S * (0.9 + jitter() / 5))
            await self.turn()

    async def turn(self) -> None:
        """One look. An outage leaves the numbers as they were; `ff_store_up` tells of it."""
        try:
            async with asyncio.timeout(_SLOW_S):
                await self.look()
        except (FlowFabricError, TimeoutError) as error:
            self._up.show({(): 0})
            _LOGGER.debug("metrics of the store were not read: %s", type(error).__name__)
        except Exception:
            self._up.show({(): 0})
            _LOGGER.exception("metrics of the store were not read")
        else:
            self._up.show({(): 1})

    async def look(self) -> None:
        """Read everything once."""
        gauges = await self._engine.call(ReadGauges())
        self._show(gauges)
        self._show_budgets((await self._engine.call(ListBudgets(limit=_BUDGETS))).items)
        await self._count(gauges)

    # --- as it is now ---------------------------------------------------------------------------

    def _show(self, gauges: Gauges) -> None:
        show, lanes = self._registry.counter, gauges.lanes
        show("ff_ready").show({(each.lane_id,): each.ready for each in lanes})
        show("ff_running").show({(each.lane_id,): each.running for each in lanes})
        show("ff_suspended").show({(each.lane_id,): each.suspended for each in lanes})
        ages: dict[tuple[str, ...], float] = {
            (each.lane_id,): max(0, gauges.at - each.ready_since) / 1_000
            for each in lanes
            if each.ready_since is not None
        }
        show("ff_oldest_ready_seconds").show(ages, max)
        show("ff_workers").show({(lane,): count for lane, count in gauges.workers.items()}, max)
        show("ff_unroutable").show({(each,): count for each, count in gauges.unroutable.items()})
        show("ff_due_backlog").show({(): gauges.overdue})
        behind = max(0, gauges.at - gauges.counted_until) if gauges.counted_until else 0
        show("ff_event_lag_seconds").show({(): behind / 1_000})

    def _show_budgets(self, budgets: tuple[BudgetStatus, ...]) -> None:
        ratios: dict[tuple[str, ...], float] = {}
        breaches: dict[tuple[str, ...], float] = {}
        for each in budgets:
            breaches[each.budget_id, "hard"] = each.breach_count
            breaches[each.budget_id, "soft"] = each.soft_breach_count
            for dimension in {*each.hard_limits, *each.soft_limits}:
                if ratio := _used(each, dimension):
                    ratios[each.budget_id, dimension] = ratio
        self._registry.counter("ff_budget_used_ratio").show(ratios, max)
        self._registry.counter("ff_budget_breaches_total").show(breaches)

    # --- what happened --------------------------------------------------------------------------

    async def _count(self, gauges: Gauges) -> None:
        """What statistics have more than at the last look; the first look only remembers."""
        is_first = self._since is None
        until = gauges.counted_until or gauges.at
        since = until - until % MINUTE_MS if self._since is None else self._since
        lines: dict[Key, Any] = {}
        await self._pages(
            lambda cursor: self._engine.call(
                ReadStatistics(since=since, cursor=cursor, limit=limits.PAGE_MAX)
            ),
            lines,
        )
        await self._pages(
            lambda cursor: self._engine.call(
                ReadSpending(since=since, cursor=cursor, limit=limits.PAGE_MAX)
            ),
            lines,
        )
        if not is_first:
            for key, line in lines.items():
                self._add(line, self._seen.get(key))
        complete = gauges.counted_until - gauges.counted_until % MINUTE_MS
        self._since = max(since, complete)
        self._seen = {key: each for key, each in lines.items() if each.begins_at >= self._since}

    async def _pages(
        self, ask: Callable[[str | None], Awaitable[Any]], lines: dict[Key, Any]
    ) -> None:
        cursor = None
        for _ in range(_PAGES):
            page = await ask(cursor)
            for each in page.items:
                lines[_key_of(each)] = each
            cursor = page.next_cursor
            if cursor is None:
                return

    def _add(self, line: Statistic | Spending, known: Any) -> None:
        if isinstance(line, Spending):
            more = line.spent - (0 if known is None else known.spent)
            if more > 0:
                self._spent.add((line.budget_id, line.dimension), more)
            return
        work = (line.lane_id, line.execution_kind)
        for word, event in _EVENTS.items():
            more = getattr(line, word) - (0 if known is None else getattr(known, word))
            if more > 0:
                self._events.add((*work, event), more)
                if word == "recovered":
                    self._lost.add(by=more)
        for word, name in _HISTOGRAMS.items():
            before = None if known is None else getattr(known, word)
            _add_durations(self._registry.histogram(name), work, getattr(line, word), before)


def _key_of(line: Statistic | Spending) -> Key:
    if isinstance(line, Spending):
        return (line.begins_at, line.budget_id, line.dimension)
    return (line.begins_at, line.namespace, line.lane_id, line.execution_kind)


def _add_durations(
    metric: Buckets, work: tuple[str, str], now: Histogram, before: Histogram | None
) -> None:
    counts = [0] * (len(WORK_S) + 1)
    for bucket, count in enumerate(now.counts):
        counts[_BUCKET[bucket]] += count
    for bucket, count in enumerate(() if before is None else before.counts):
        counts[_BUCKET[bucket]] -= count
    if any(counts):
        total_ms = now.total_ms - (0 if before is None else before.total_ms)
        metric.add(counts, total_ms / 1_000, work)


def _used(budget: BudgetStatus, dimension: str) -> float | None:
    """The part of the hard limit that is used or reserved, else of the soft one."""
    hard: Mapping[str, int] = budget.hard_limits
    limit = hard.get(dimension, 0) + budget.allowed.get(dimension, 0) if hard.get(dimension) else 0
    limit = limit or budget.soft_limits.get(dimension, 0)
    if not limit:
        return None
    return (budget.usage.get(dimension, 0) + budget.held.get(dimension, 0)) / limit
