"""Schedules: when they tick next, what became of their last ticks, and what keeps them back."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from flowfabric.model.record import Record
from flowfabric.model.schedule import Fate, ScheduleSnapshot, TickAhead, TickInfo
from flowfabric.model.schedule_words import (
    local_time,
    settings_in_words,
    state_in_words,
    timing_in_words,
)
from flowfabric.server.routes.values import path_id

PATH = "/ui/schedules"
# How a fate looks: as a state of executions that means the same.
_TONES = {
    Fate.RAN: "completed",
    Fate.CAUGHT_UP: "completed",
    Fate.BACKFILLED: "completed",
    Fate.MANUAL: "completed",
    Fate.QUEUED: "waiting",
    Fate.REFUSED: "failed",
    Fate.MERGED: "skipped",
    Fate.SKIPPED_OVERLAP: "skipped",
    Fate.MISSED_PAUSED: "suspended",
    Fate.MISSED_WINDOW: "expired",
}


class ScheduleLine(Record, frozen=True, kw_only=True):
    """One schedule of the list."""

    name: str
    namespace: str
    href: str
    path: str  # of its forms
    kind: str
    is_flow: bool
    when: str
    state: str
    words: str
    next_tick: int | None
    last_tick: int | None
    last_run: str | None  # where the last run is shown
    runs: int
    failures: int
    is_paused: bool
    warnings: tuple[str, ...] = ()


class Schedules(Record, frozen=True, kw_only=True):
    """The list."""

    title: str = "Schedules"
    rows: tuple[ScheduleLine, ...]
    next: str | None

    @property
    def sentence(self) -> str:
        """How many, and how many do not tick."""
        many = f"{len(self.rows)}{'+' * (self.next is not None)} schedules"
        many = many if len(self.rows) != 1 else "1 schedule"
        off = sum(each.is_paused for each in self.rows)
        return f"{many}, {off} paused" if off else many


class Tick(Record, frozen=True, kw_only=True):
    """One tick that was."""

    tick: int
    fate: str
    tone: str
    number: int | None
    run: str | None  # where it is shown
    told: str


class Ahead(Record, frozen=True, kw_only=True):
    """One tick to come."""

    tick: int
    fires_at: int
    local: str
    mark: str


class Schedule(Record, frozen=True, kw_only=True):
    """The page of one schedule."""

    title: str
    line: ScheduleLine
    settings: tuple[str, ...]
    pause_reason: str
    origin: str | None
    version: int
    ahead: tuple[Ahead, ...]
    ticks: tuple[Tick, ...]


def line_of(schedule: ScheduleSnapshot) -> ScheduleLine:
    """One schedule as the list shows it."""
    name = quote(schedule.schedule_id, safe="")
    space = f"?namespace={quote(schedule.namespace, safe='')}"
    return ScheduleLine(
        name=schedule.schedule_id,
        namespace=schedule.namespace,
        href=f"{PATH}/{name}{space}",
        path=f"{PATH}/{name}",
        kind=schedule.kind,
        is_flow=schedule.is_flow,
        when=timing_in_words(schedule.timing),
        state=_state(schedule),
        words=state_in_words(schedule),
        next_tick=None if schedule.paused_at is not None else schedule.next_tick,
        last_tick=schedule.last_tick,
        last_run=run_href(schedule.last_run_id),
        runs=schedule.runs,
        failures=schedule.failures,
        is_paused=schedule.paused_at is not None,
        warnings=schedule.warnings,
    )


def _state(schedule: ScheduleSnapshot) -> str:
    if schedule.paused_at is not None:
        return "paused"
    if schedule.problem:
        return "lost"
    return "active" if schedule.next_tick is not None else "done"


def run_href(run_id: str | None) -> str | None:
    """Where a run is shown: an execution, or a flow."""
    if run_id is None:
        return None
    return f"/ui/runs/{path_id(run_id)}" if run_id.startswith("{") else f"/ui/flows/{run_id}"


def schedules_of(found: Iterable[ScheduleSnapshot], *, next_page: str | None) -> Schedules:
    """The list of schedules."""
    return Schedules(rows=tuple(map(line_of, found)), next=next_page)


def schedule_of(
    schedule: ScheduleSnapshot, ahead: Iterable[TickAhead], ticks: Iterable[TickInfo]
) -> Schedule:
    """The page of one schedule."""
    return Schedule(
        title=schedule.schedule_id,
        line=line_of(schedule),
        settings=tuple(settings_in_words(schedule)),
        pause_reason=schedule.pause_reason,
        origin=schedule.origin,
        version=schedule.version,
        ahead=tuple(
            Ahead(
                tick=each.tick,
                fires_at=each.fires_at,
                local=local_time(each.tick, schedule),
                mark="" if each.mark is None else each.mark.value.replace("_", " "),
            )
            for each in ahead
        ),
        ticks=tuple(_tick(each) for each in ticks),
    )


def _tick(tick: TickInfo) -> Tick:
    return Tick(
        tick=tick.tick,
        fate=tick.fate.value,
        tone=_TONES[tick.fate],
        number=tick.number,
        run=run_href(tick.run_id),
        told=tick.error,
    )
