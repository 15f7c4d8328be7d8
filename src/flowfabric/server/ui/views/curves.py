"""Minute statistics as pages show them: an hour of all work, and of each lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from flowfabric.model.record import Record
from flowfabric.model.statistic import MINUTE_MS, NOTHING, Histogram, Statistic

MINUTES = 60


class Minute(Record, frozen=True, kw_only=True):
    """What happened in one minute."""

    begins_at: int
    created: int = 0
    succeeded: int = 0
    failed: int = 0  # or expired
    other: int = 0  # cancelled or skipped
    retried: int = 0

    @property
    def ended(self) -> int:
        """Executions that ended, whatever the outcome."""
        return self.succeeded + self.failed + self.other


class LaneWork(Record, frozen=True, kw_only=True):
    """What one lane did in an hour."""

    ended: tuple[int, ...]  # by minute
    failed: int
    pickup: Histogram

    @property
    def total(self) -> int:
        """Executions that ended."""
        return sum(self.ended)


def hour_of(items: Iterable[Statistic], until: int) -> tuple[Minute, ...]:
    """The last hour, minute by minute, with those in which nothing happened.

    `until`: an instant in the last minute.
    """
    first = until // MINUTE_MS * MINUTE_MS - (MINUTES - 1) * MINUTE_MS
    sums = [Counter[str]() for _ in range(MINUTES)]
    for each in items:
        at = (each.begins_at - first) // MINUTE_MS
        if 0 <= at < MINUTES:
            sums[at].update(
                created=each.created,
                succeeded=each.succeeded,
                failed=each.failed + each.expired,
                other=each.cancelled + each.skipped,
                retried=each.retried,
            )
    return tuple(Minute(begins_at=first + at * MINUTE_MS, **found) for at, found in enumerate(sums))


def by_lane(items: Iterable[Statistic], until: int) -> Mapping[str, LaneWork]:
    """The last hour of each lane on which anything happened."""
    found: dict[str, list[Statistic]] = {}
    for each in items:
        found.setdefault(each.lane_id, []).append(each)
    return {lane: _work(several, until) for lane, several in found.items()}


def _work(several: list[Statistic], until: int) -> LaneWork:
    minutes, pickup = hour_of(several, until), NOTHING
    for each in several:
        pickup = pickup.plus(each.pickup)
    return LaneWork(
        ended=tuple(each.ended for each in minutes),
        failed=sum(each.failed for each in minutes),
        pickup=pickup,
    )
