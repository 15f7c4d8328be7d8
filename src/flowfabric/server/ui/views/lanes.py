"""Lanes: their switch, what stands on them, and how fast it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from flowfabric.limits import STANDING_MAX
from flowfabric.model.gauges import Gauges, LaneGauge
from flowfabric.model.record import Record
from flowfabric.model.results import LaneSummary
from flowfabric.model.route import LaneState
from flowfabric.model.times import span
from flowfabric.server.ui.views.curves import MINUTES, LaneWork

PATH = "/ui/lanes"
# By state: the state that each switch leads to, and what it does.
SWITCHES: Mapping[LaneState, tuple[tuple[LaneState, str], ...]] = {
    LaneState.ACTIVE: (
        (LaneState.PAUSED, "Pause"),
        (LaneState.DRAINING, "Drain"),
        (LaneState.DISABLED, "Disable"),
    ),
    LaneState.PAUSED: ((LaneState.ACTIVE, "Resume"), (LaneState.DISABLED, "Disable")),
    LaneState.DRAINING: ((LaneState.ACTIVE, "Resume"), (LaneState.PAUSED, "Pause")),
    LaneState.DISABLED: ((LaneState.ACTIVE, "Resume"),),
}
EFFECTS: Mapping[LaneState, str] = {
    LaneState.ACTIVE: "Work is taken in and handed out again.",
    LaneState.PAUSED: "Work is still taken in, but none is handed out.",
    LaneState.DRAINING: "No work is taken in: submits are refused. What is there is handed out.",
    LaneState.DISABLED: "Work is neither taken in nor handed out.",
}


class Switch(Record, frozen=True, kw_only=True):
    """One thing to do with a lane."""

    state: str
    label: str
    effect: str


class LaneLine(Record, frozen=True, kw_only=True):
    """One lane. Numbers are none where the caller may not see them."""

    lane_id: str
    path: str  # of its forms
    state: str
    reason: str
    ready: str | None = None
    running: str | None = None
    suspended: str | None = None
    ready_since: int | None = None
    workers: int | None = None
    ended: tuple[int, ...] = (0,) * MINUTES
    ended_total: int = 0
    failed: int = 0
    pickup_p50: str = ""
    pickup_p95: str = ""
    weight: int = 1
    aging_ms: int = 0
    aging: str = "0s"
    budgets: tuple[str, ...] = ()
    quota: str | None = None
    switches: tuple[Switch, ...] = ()

    @property
    def is_stranded(self) -> bool:
        """Work is ready, and no worker serves it."""
        return self.workers == 0 and self.ready not in (None, "0")


class Lanes(Record, frozen=True, kw_only=True):
    """The page."""

    title: str = "Lanes"
    rows: tuple[LaneLine, ...]
    complete_until: int
    is_whole: bool
    has_gauges: bool

    @property
    def sentence(self) -> str:
        """How they are, in words."""
        off = [each.lane_id for each in self.rows if each.state != "active"]
        many = f"{len(self.rows)} lane{'s' * (len(self.rows) != 1)}"
        return f"{many}, all active" if not off else f"{many}; not active: {', '.join(off[:5])}"


def line_of(lane: LaneSummary, work: LaneWork | None, gauges: Gauges | None) -> LaneLine:
    """One lane as the page shows it."""
    numbers: dict[str, Any] = {} if gauges is None else _numbers(lane.lane_id, gauges)
    done: dict[str, Any] = {} if work is None else _done(work)
    return LaneLine(
        lane_id=lane.lane_id,
        path=f"{PATH}/{quote(lane.lane_id, safe='')}",
        state=lane.lane_state.value,
        reason=lane.reason,
        weight=lane.weight,
        aging_ms=lane.aging_ms,
        aging=written(lane.aging_ms),
        budgets=tuple(lane.bounds.budget_ids),
        quota=lane.bounds.quota_policy_id,
        switches=tuple(
            Switch(state=state.value, label=label, effect=EFFECTS[state])
            for state, label in SWITCHES[lane.lane_state]
        ),
        **numbers,
        **done,
    )


def _numbers(lane_id: str, gauges: Gauges) -> dict[str, Any]:
    empty = LaneGauge(lane_id=lane_id)
    gauge = next((each for each in gauges.lanes if each.lane_id == lane_id), empty)
    return {
        "ready": counted(gauge.ready),
        "running": counted(gauge.running),
        "suspended": counted(gauge.suspended),
        "ready_since": gauge.ready_since,
        "workers": gauges.workers.get(lane_id, 0),
    }


def _done(work: LaneWork) -> dict[str, Any]:
    return {
        "ended": work.ended,
        "ended_total": work.total,
        "failed": work.failed,
        "pickup_p50": _time(work.pickup.percentile_ms(50)),
        "pickup_p95": _time(work.pickup.percentile_ms(95)),
    }


def _time(milliseconds: float | None) -> str:
    return "" if milliseconds is None else span(round(milliseconds))


def counted(number: int) -> str:
    """A number of a gauge, which counts no further than so many.

    >>> counted(1200), counted(50_000)
    ('1\\u202f200', '50\\u202f000+')
    """
    return f"{number:,}{'+' * (number >= STANDING_MAX)}".replace(",", "\u202f")


def written(milliseconds: int) -> str:
    """A duration as a form takes it.

    >>> written(600_000), written(0), written(1500)
    ('10m', '0s', '1500ms')
    """
    for unit, many in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds % many == 0 and (milliseconds or unit == "s"):
            return f"{milliseconds // many}{unit}"
    return f"{milliseconds}ms"


def lanes_of(
    lanes: Iterable[LaneSummary],
    work: Mapping[str, LaneWork],
    gauges: Gauges | None,
    *,
    complete_until: int,
    is_whole: bool,
) -> Lanes:
    """The page of all lanes."""
    return Lanes(
        rows=tuple(line_of(each, work.get(each.lane_id), gauges) for each in lanes),
        complete_until=complete_until,
        is_whole=is_whole,
        has_gauges=gauges is not None,
    )
