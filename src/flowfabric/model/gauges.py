"""How much work stands where, at one instant."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.model.record import Record


class LaneGauge(Record, frozen=True, kw_only=True):
    """What is on a lane and has not ended. Each number is at most `STANDING_MAX`."""

    lane_id: str
    ready: int = 0  # a worker may claim it
    running: int = 0  # it has a lease
    suspended: int = 0
    ready_since: int | None = None  # of the ready work: since when the first of it is


class Gauges(Record, frozen=True, kw_only=True):
    """A store at an instant of its clock."""

    at: int
    lanes: tuple[LaneGauge, ...]  # those with work, by name
    workers: Mapping[str, int]  # live ones, by the lanes they serve
    unroutable: Mapping[str, int]  # executions by what they need and no live worker offers
    overdue: int  # executions that are due and were not moved yet, up to 1,000
    counted_until: int  # minute statistics are complete until then
