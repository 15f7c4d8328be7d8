"""Minute statistics: what happened on each lane, to each kind of work, minute by minute."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Final, TypeVar

from flowfabric.model.record import Record, replace

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
# The upper bounds of the buckets of every histogram, inclusive; the last bucket has none. Stored
# rows count by these numbers: other bounds need a migration.
BUCKETS_MS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000),
    *(1_800_000, 3_600_000, 4 * 3_600_000, 24 * 3_600_000),
)


def bucket_of(duration_ms: int) -> int:
    """The bucket in which a duration is counted.

    >>> bucket_of(0), bucket_of(1), bucket_of(3), bucket_of(10**9) == len(BUCKETS_MS)
    (0, 0, 2, True)
    """
    return bisect_left(BUCKETS_MS, duration_ms)


class Histogram(Record, frozen=True):
    """How many durations fell into each bucket of `BUCKETS_MS`, without empty ones at the end."""

    counts: tuple[int, ...] = ()
    total_ms: int = 0  # of all durations

    @property
    def count(self) -> int:
        """How many durations there were."""
        return sum(self.counts)

    @property
    def mean_ms(self) -> float | None:
        """Their average; None without any."""
        return self.total_ms / count if (count := self.count) else None

    def percentile_ms(self, percent: float) -> float | None:
        """An estimate that lies in the bucket of the true one; None without any duration.

        >>> Histogram((0, 0, 0, 4), 30).percentile_ms(50)
        7.5
        """
        rank, below = self.count * percent / 100, 0
        for bucket, count in enumerate(self.counts):
            if count and below + count >= rank:
                if bucket == len(BUCKETS_MS):
                    return float(BUCKETS_MS[-1])
                floor = BUCKETS_MS[bucket - 1] if bucket else 0
                part = max(0.0, rank - below) / count
                return floor + part * (BUCKETS_MS[bucket] - floor)
            below += count
        return None

    def plus(self, other: Histogram) -> Histogram:
        """Both together."""
        if not other.counts:
            return self
        summed = map(sum, zip_longest(self.counts, other.counts, fillvalue=0))
        return Histogram(tuple(summed), self.total_ms + other.total_ms)


NOTHING: Final = Histogram()


# --- what is stored ------------------------------------------------------------------------------


class Counted(StrEnum):
    """What is counted although no event tells of it."""

    CREATED = "created"  # executions of one commit
    RETRIED = "retried"  # attempts whose lease was lost before they failed


class WorkCount(Record, frozen=True):
    """So much happened in one commit on one lane, to one kind of work. No event of a feed."""

    namespace: str
    lane_id: str
    execution_kind: str
    counted: Counted
    count: int
    occurred_at: int


class MinuteRow(Record, frozen=True):
    """One minute of one lane and kind."""

    minute_at: int  # its first instant
    namespace: str
    lane_id: str
    execution_kind: str
    created: int = 0
    started: int = 0
    resumed: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    skipped: int = 0
    retried: int = 0
    recovered: int = 0
    pickup: Histogram = NOTHING
    run: Histogram = NOTHING
    expires_at: int = 0


class SpendRow(Record, frozen=True):
    """One minute of one dimension of a budget."""

    minute_at: int
    budget_id: str
    dimension: str
    spent: int = 0
    given_back: int = 0
    expires_at: int = 0


class SeenUsage(Record, frozen=True):
    """What a budget had spent in its life when statistics last looked."""

    budget_id: str
    dimension: str
    total: int


class RollUpRow(Record, frozen=True):
    """How far statistics have counted. The one row is the lock of all other rows of theirs."""

    name: str
    places: Mapping[str, int]  # by log: everything up to here is counted
    counted_at: int  # when they last counted
    complete_until: int  # everything that happened before this instant is counted
    # Once all up to this number are counted, everything before that instant is.
    probe_number: int = 0
    probe_at: int = 0
    usage_after: tuple[str, str] | None = None  # the budget and dimension looked at last
    lost_until: int | None = None  # events from before this were gone before they were counted


# --- what is shown -------------------------------------------------------------------------------


class Step(StrEnum):
    """How much time one line of statistics is about."""

    MINUTE = "minute"
    HOUR = "hour"
    TOTAL = "total"  # all that was asked for


class Statistic(Record, frozen=True, kw_only=True):
    """What happened on one lane, to one kind of work, from `begins_at` on for a step."""

    begins_at: int
    namespace: str
    lane_id: str
    execution_kind: str
    created: int = 0  # executions that were submitted
    started: int = 0  # attempts that began
    resumed: int = 0  # attempts that went on after a wait
    succeeded: int = 0  # executions that ended, by outcome
    failed: int = 0
    cancelled: int = 0
    expired: int = 0
    skipped: int = 0
    retried: int = 0  # attempts that failed and are followed by another
    recovered: int = 0  # leases that were lost: the work goes to another worker
    pickup: Histogram = NOTHING  # from when work could be claimed until a worker had it
    run: Histogram = NOTHING  # running time of attempts that ended

    @property
    def ended(self) -> int:
        """Executions that ended, whatever the outcome."""
        return self.succeeded + self.failed + self.cancelled + self.expired + self.skipped


class Statistics(Record, frozen=True):
    """A page of statistics by time, namespace, lane and kind.

    A page with a `next_cursor` may show a part of a line that the next page goes on with: add
    lines of one key up.
    """

    items: tuple[Statistic, ...]
    complete_until: int  # everything that happened before this instant is counted
    next_cursor: str | None = None
    lost_until: int | None = None  # events from before this were gone before they were counted


class Spending(Record, frozen=True, kw_only=True):
    """What was spent of one dimension of a budget, from `begins_at` on for a step."""

    begins_at: int
    budget_id: str
    dimension: str
    spent: int = 0
    given_back: int = 0


class SpendingPage(Record, frozen=True):
    """A page of spending by time, budget and dimension; lines of one key are to be added up."""

    items: tuple[Spending, ...]
    complete_until: int
    next_cursor: str | None = None


Line = TypeVar("Line", Statistic, Spending)
_KEY: Final = ("begins_at", "namespace", "lane_id", "execution_kind", "budget_id", "dimension")


def added_up(lines: Sequence[Line]) -> list[Line]:
    """Lines of one key as one, in the order of their keys."""
    found: dict[tuple[object, ...], Line] = {}
    for line in lines:
        key = tuple([getattr(line, name) for name in _KEY if name in line.__struct_fields__])
        known = found.get(key)
        found[key] = line if known is None else _sum(known, line)
    return [found[key] for key in sorted(found)]


def _sum(first: Line, second: Line) -> Line:
    changed = {}
    for name in first.__struct_fields__:
        if name not in _KEY and (more := getattr(second, name)):
            known = getattr(first, name)
            changed[name] = known.plus(more) if isinstance(more, Histogram) else known + more
    return replace(first, **changed)
