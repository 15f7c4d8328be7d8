"""The overview: is everything all right, and if not, where?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, urlencode

from flowfabric.model.ask import BudgetAsk
from flowfabric.model.budget import BudgetStatus
from flowfabric.model.failure import FailureGroup
from flowfabric.model.gauges import Gauges
from flowfabric.model.record import Record
from flowfabric.model.results import LaneSummary
from flowfabric.model.statistic import MINUTE_MS, Statistic
from flowfabric.model.times import count, span
from flowfabric.server.ui.views.curves import Minute, by_lane, hour_of
from flowfabric.server.ui.views.failures import line_of as failure_line
from flowfabric.server.ui.views.lanes import LaneLine, counted, line_of

PATH = "/ui"
LANES_SHOWN = 20
_ALERTS_MAX = 5
_OLD_MS = 10 * MINUTE_MS  # ready for longer than that is worth a look
_FULL = 90  # percent of a limit
_FAILURES = 5  # that are alike, in a day
_TEXT_MAX = 160


class Alert(Record, frozen=True, kw_only=True):
    """One thing that needs a person. `tone`: the state whose colour and sign it has."""

    tone: str
    text: str
    href: str


class Tile(Record, frozen=True, kw_only=True):
    """One number. `bars`: minute by minute, where there are any."""

    label: str
    value: str
    href: str
    tone: str = "active"
    bars: tuple[int, ...] = ()
    is_bad: bool = False


class Column(Record, frozen=True, kw_only=True):
    """One minute of the chart."""

    begins_at: int
    succeeded: int
    failed: int
    other: int
    title: str
    href: str


class Overview(Record, frozen=True, kw_only=True):
    """The page. `is_new`: nothing was ever submitted."""

    title: str = "Overview"
    is_new: bool
    alerts: tuple[Alert, ...]
    tiles: tuple[Tile, ...]
    lanes: tuple[LaneLine, ...]
    more_lanes: int
    columns: tuple[Column, ...]
    totals: Mapping[str, int]
    complete_until: int
    is_whole: bool
    has_gauges: bool

    @property
    def sentence(self) -> str:
        """The answer to the question of the page."""
        if self.is_new:
            return "Nothing was submitted yet."
        many = len(self.alerts)
        return "All right." if not many else f"{count(many, 'thing')} need{'s' * (many == 1)} you."


def overview_of(
    statistics: Sequence[Statistic],
    lanes: Sequence[LaneSummary],
    gauges: Gauges | None,
    *,
    approvals: int,
    asks: Iterable[BudgetAsk],
    budgets: Iterable[BudgetStatus],
    groups: Iterable[FailureGroup] = (),
    is_new: bool,
    now: int,
    complete_until: int,
    is_whole: bool,
) -> Overview:
    """The page, from what was read for it."""
    minutes = hour_of(statistics, now)
    work = by_lane(statistics, now)
    lines = [line_of(each, work.get(each.lane_id), gauges) for each in lanes]
    lines.sort(key=lambda line: (-line.ended_total, line.lane_id))
    alerts = (
        *_people(approvals, asks),
        *_failing(groups),
        *_full(budgets),
        *_lacking(gauges),
        *_standing(lines, now),
    )
    return Overview(
        is_new=is_new,
        alerts=alerts[: 2 * _ALERTS_MAX],
        tiles=_tiles(gauges, minutes, now),
        lanes=tuple(lines[:LANES_SHOWN]),
        more_lanes=max(0, len(lines) - LANES_SHOWN),
        columns=tuple(map(_column, minutes)),
        totals={
            "completed": sum(each.succeeded for each in minutes),
            "failed": sum(each.failed for each in minutes),
            "retried": sum(each.retried for each in minutes),
            "created": sum(each.created for each in minutes),
        },
        complete_until=complete_until,
        is_whole=is_whole,
        has_gauges=gauges is not None,
    )


# --- alerts --------------------------------------------------------------------------------------


def _people(approvals: int, asks: Iterable[BudgetAsk]) -> Iterable[Alert]:
    if approvals:
        text = f"{count(approvals, 'approval')} {'wait' if approvals > 1 else 'waits'} for people"
        yield Alert(tone="suspended", text=text, href="/ui/approvals")
    for ask in list(asks)[:_ALERTS_MAX]:
        text = f"budget {ask.budget_id} asks for more {ask.dimension}"
        yield Alert(tone="suspended", text=text, href="/ui/approvals")


def _failing(groups: Iterable[FailureGroup]) -> Iterable[Alert]:
    """The most frequent failures that are alike."""
    often = sorted(groups, key=lambda group: -group.failed)
    for group in often[:_ALERTS_MAX]:
        if group.failed >= _FAILURES:
            line = failure_line(group, group.last_seen_at)
            many = count(group.failed, "failure")
            text = f"{', '.join(line.kinds[:2])}: {many} in 24 h, {line.message}"
            yield Alert(tone="failed", text=text[:_TEXT_MAX], href=line.href)


def _full(budgets: Iterable[BudgetStatus]) -> Iterable[Alert]:
    found = []
    for budget in budgets:
        for dimension, limit in budget.hard_limits.items():
            most = limit + budget.allowed.get(dimension, 0)
            taken = budget.usage.get(dimension, 0) + budget.held.get(dimension, 0)
            if limit and 100 * taken // most >= _FULL:
                found.append((100 * taken // most, budget.budget_id, dimension))
    for share, name, dimension in sorted(found, reverse=True)[:_ALERTS_MAX]:
        text = f"budget {name} has used {share} % of its {dimension}"
        href = f"/ui/budgets/{quote(name, safe='')}"
        yield Alert(tone="rate_limited", text=text, href=href)


def _lacking(gauges: Gauges | None) -> Iterable[Alert]:
    found = Counter({} if gauges is None else dict(gauges.unroutable))
    for name, many in found.most_common(_ALERTS_MAX):
        need = "needs" if many == 1 else "need"
        text = f"{counted(many)} {need} {name}, which no worker offers"
        yield Alert(tone="waiting", text=text, href="/ui/workers")


def _standing(lines: Iterable[LaneLine], now: int) -> Iterable[Alert]:
    for line in lines:
        if line.state != "active":
            reason = f": {line.reason}" if line.reason else ""
            text = f"lane {line.lane_id} is {line.state}{reason}"
            yield Alert(tone="suspended", text=text, href="/ui/lanes")
        elif line.is_stranded:
            text = f"lane {line.lane_id} has {line.ready} ready, and no worker serves it"
            yield Alert(tone="waiting", text=text, href="/ui/workers")
        elif line.ready_since is not None and now - line.ready_since > _OLD_MS:
            text = f"lane {line.lane_id}: ready for {span(now - line.ready_since)}, not started"
            yield Alert(tone="waiting", text=text, href="/ui/lanes")


# --- numbers -------------------------------------------------------------------------------------


def _tiles(gauges: Gauges | None, minutes: Sequence[Minute], now: int) -> tuple[Tile, ...]:
    ended = tuple(each.ended for each in minutes)
    failed = tuple(each.failed for each in minutes)
    rates: tuple[Tile, ...] = (
        Tile(
            label="ended a minute",
            value=_rate(ended),
            bars=ended,
            tone="completed",
            href="/ui/runs?q=state%3Acompleted",
        ),
        Tile(
            label="failed a minute",
            value=_rate(failed),
            bars=failed,
            tone="failed",
            href="/ui/runs?q=state%3Afailed",
            is_bad=sum(failed[-5:]) > 0,
        ),
    )
    if gauges is None:
        return rates
    running, ready = _sum(gauges, "running"), _sum(gauges, "ready")
    since = [each.ready_since for each in gauges.lanes if each.ready_since is not None]
    oldest = max(0, now - min(since)) if since else None
    return (
        Tile(label="running", value=counted(running), href="/ui/runs?q=state%3Aactive"),
        Tile(label="ready", value=counted(ready), href="/ui/runs?q=state%3Awaiting"),
        Tile(
            label="oldest ready",
            value="none" if oldest is None else span(oldest),
            href="/ui/lanes",
            is_bad=oldest is not None and oldest > _OLD_MS,
        ),
        *rates,
    )


def _sum(gauges: Gauges, name: str) -> int:
    return sum(getattr(each, name) for each in gauges.lanes)


def _rate(values: Sequence[int]) -> str:
    """The mean of the last five minutes."""
    mean = sum(values[-5:]) / 5
    if mean >= 10:
        return f"{mean:,.0f}".replace(",", "\u202f")
    return f"{mean:.1f}".removesuffix(".0")


def _column(minute: Minute) -> Column:
    begins, ends = minute.begins_at, minute.begins_at + MINUTE_MS
    query = urlencode({"q": f"since:{begins} until:{ends}"})
    at = time_of_day(begins)
    return Column(
        begins_at=begins,
        succeeded=minute.succeeded,
        failed=minute.failed,
        other=minute.other,
        title=f"{at} UTC: {minute.succeeded} completed, {minute.failed} failed, "
        f"{minute.retried} retried",
        href=f"/ui/runs?{query}",
    )


def time_of_day(instant: int) -> str:
    """The hour and minute of an instant, in UTC.

    >>> time_of_day(1_774_744_200_000)
    '00:30'
    """
    minutes = instant // MINUTE_MS % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"
