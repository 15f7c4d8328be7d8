"""Statistics: how a stretch of the logs adds to the minutes it tells of."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric.limits import INSTANT_MS_MAX, STATISTIC_RETENTION_MS, STATISTIC_SETTLED_MS
from flowfabric.model.budget import AMOUNT_MAX, UsageRow
from flowfabric.model.event import CLAIM_RESUMED, RETRY_SCHEDULED, LeaseEventType
from flowfabric.model.record import replace
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.statistic import (
    HOUR_MS,
    MINUTE_MS,
    Histogram,
    MinuteRow,
    RollUpRow,
    SeenUsage,
    Spending,
    SpendRow,
    Statistic,
    Step,
    WorkCount,
)

MinuteKey = tuple[int, str, str, str]
Position = int
Lease = tuple[str | None, ...]  # the values of LEASE_COLUMNS
Completion = tuple[str | None, ...]  # the values of COMPLETION_COLUMNS

_WHERE: Final = ("namespace", "lane_id", "execution_kind")
LEASE_COLUMNS: Final = ("event_type", "reason", *_WHERE)
COMPLETION_COLUMNS: Final = ("outcome", *_WHERE)
_COUNT_MAX: Final = 1 << 40  # no commit does more

_STARTS: Final = (LeaseEventType.ACQUIRED.value, LeaseEventType.RECLAIMED.value)
_LOSSES: Final = (LeaseEventType.EXPIRED.value, LeaseEventType.REVOKED.value)
_RELEASED: Final = LeaseEventType.RELEASED.value
_ENDED: Final[Mapping[str, str]] = {
    TerminalOutcome.SUCCESS.value: "succeeded",
    TerminalOutcome.FAILED.value: "failed",
    TerminalOutcome.CANCELLED.value: "cancelled",
    TerminalOutcome.EXPIRED.value: "expired",
    TerminalOutcome.SKIPPED.value: "skipped",
}


class _Gain:
    """What one minute of one lane and kind gains."""

    __slots__ = ("counts", "times")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        # For each histogram: durations by bucket, and their sum.
        self.times: dict[str, tuple[Counter[int], int]] = {}

    def add(self, name: str, entries: int) -> None:
        self.counts[name] += entries

    def add_times(self, name: str, bucket: int | None, entries: int, total_ms: int) -> None:
        if bucket is not None:
            buckets, sum_ms = self.times.get(name, (Counter(), 0))
            buckets[bucket] += entries
            self.times[name] = buckets, sum_ms + total_ms

    def histogram(self, name: str) -> Histogram:
        buckets, total_ms = self.times.get(name, (Counter[int](), 0))
        last = max(buckets, default=-1)
        return Histogram(tuple([buckets[each] for each in range(last + 1)]), total_ms)


class Tally:
    """What a stretch of the logs adds to each minute."""

    def __init__(self) -> None:
        self._gains: defaultdict[MinuteKey, _Gain] = defaultdict(_Gain)

    @property
    def keys(self) -> list[MinuteKey]:
        """The minutes that gain something."""
        return sorted(self._gains)

    def add_counts(self, counts: Iterable[WorkCount]) -> None:
        """What no event tells of."""
        for each in counts:
            minute = each.occurred_at // MINUTE_MS
            where = (each.namespace, each.lane_id, each.execution_kind)
            if each.count <= _COUNT_MAX and (gain := self._gain(minute, where)) is not None:
                gain.add(each.counted.value, each.count)

    def add_leases(
        self, values: Lease, minute: int, bucket: int | None, entries: int, total_ms: int
    ) -> None:
        """So many lease events that are alike: starts, losses or retries."""
        word, reason, *where = values
        figure, times = None, ""
        if word in _STARTS:
            figure, times = "resumed" if reason == CLAIM_RESUMED else "started", "pickup"
        elif word in _LOSSES:
            figure = "recovered"
        elif word == _RELEASED and reason == RETRY_SCHEDULED:
            figure, times = "retried", "run"
        if figure is not None and (gain := self._gain(minute, where)) is not None:
            gain.add(figure, entries)
            if times:
                gain.add_times(times, bucket, entries, total_ms)

    def add_completions(
        self, values: Completion, minute: int, bucket: int | None, entries: int, total_ms: int
    ) -> None:
        """So many ends that are alike."""
        word, *where = values
        figure = _ENDED.get(word or "")
        if figure is not None and (gain := self._gain(minute, where)) is not None:
            gain.add(figure, entries)
            gain.add_times("run", bucket, entries, total_ms)

    def _gain(self, minute: int, where: Sequence[str | None]) -> _Gain | None:
        """None for an instant that no clock tells."""
        at = minute * MINUTE_MS
        if not 0 <= at <= INSTANT_MS_MAX - STATISTIC_RETENTION_MS:
            return None
        # Events from before lane and kind were kept with them are counted under empty names.
        namespace, lane_id, execution_kind = [each or "" for each in where]
        return self._gains[at, namespace, lane_id, execution_kind]

    def row(self, key: MinuteKey, stored: MinuteRow | None) -> MinuteRow:
        """The row of a minute with what it gains."""
        row = stored or MinuteRow(*key, expires_at=key[0] + STATISTIC_RETENTION_MS)
        gain = self._gains[key]
        counts = {name: getattr(row, name) + more for name, more in gain.counts.items()}
        return replace(
            row,
            pickup=row.pickup.plus(gain.histogram("pickup")),
            run=row.run.plus(gain.histogram("run")),
            **counts,
        )


# --- how far it is complete ----------------------------------------------------------------------


def advanced(
    row: RollUpRow, places: Mapping[str, Position], *, now: int, front: int, is_all: bool
) -> RollUpRow:
    """The row after everything up to these places was counted.

    `front`: a transaction that has not begun to write at `now` draws later numbers; 0 where commits
    are serial. `is_all`: the places are the ends of the logs. Transactions that were open at an
    instant may still tell of the time before it, so the instant counts as complete when their
    places are passed.
    """
    moved = replace(row, places=places, counted_at=now)
    if not is_all:
        return moved
    reached = min(places.values())
    if not front:  # commits are serial: this one is the last
        return replace(moved, complete_until=max(row.complete_until, now))
    if reached >= row.probe_number:
        return replace(
            moved,
            complete_until=max(row.complete_until, row.probe_at),
            probe_number=front,
            # The clock may have been read a little before a transaction got its number.
            probe_at=now - STATISTIC_SETTLED_MS,
        )
    return moved


# --- spending ------------------------------------------------------------------------------------


def spent_since(usage: UsageRow, seen: SeenUsage | None) -> int:
    """What was spent since the last look; less than nothing where more was given back."""
    return usage.total - (0 if seen is None else seen.total)


def spend_row(stored: SpendRow | None, usage: UsageRow, amount: int, now: int) -> SpendRow:
    """The row of the current minute with an amount more."""
    row = stored
    if row is None:
        minute = now - now % MINUTE_MS
        expires_at = minute + STATISTIC_RETENTION_MS
        row = SpendRow(minute, usage.budget_id, usage.dimension, expires_at=expires_at)
    if amount < 0:
        return replace(row, given_back=min(AMOUNT_MAX, row.given_back - amount))
    return replace(row, spent=min(AMOUNT_MAX, row.spent + amount))


# --- shown ---------------------------------------------------------------------------------------


def step_of(minute_at: int, step: Step, since: int) -> int:
    """The first instant of the step that a minute belongs to."""
    if step is Step.TOTAL:
        return since
    return minute_at - minute_at % (HOUR_MS if step is Step.HOUR else MINUTE_MS)


def statistic_of(row: MinuteRow, step: Step, since: int) -> Statistic:
    """A minute's row as it is shown."""
    return Statistic(
        begins_at=step_of(row.minute_at, step, since),
        namespace=row.namespace,
        lane_id=row.lane_id,
        execution_kind=row.execution_kind,
        created=row.created,
        started=row.started,
        resumed=row.resumed,
        succeeded=row.succeeded,
        failed=row.failed,
        cancelled=row.cancelled,
        expired=row.expired,
        skipped=row.skipped,
        retried=row.retried,
        recovered=row.recovered,
        pickup=row.pickup,
        run=row.run,
    )


def spending_of(row: SpendRow, step: Step, since: int) -> Spending:
    """A minute's row as it is shown."""
    return Spending(
        begins_at=step_of(row.minute_at, step, since),
        budget_id=row.budget_id,
        dimension=row.dimension,
        spent=row.spent,
        given_back=row.given_back,
    )
