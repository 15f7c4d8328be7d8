"""Statistics: how a stretch of the logs adds to the minutes it tells of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from flowfabric.limits import STATISTIC_RETENTION_MS, STATISTIC_SETTLED_MS
from flowfabric.model.budget import AMOUNT_MAX, UsageRow
from flowfabric.model.event import CLAIM_RESUMED, RETRY_SCHEDULED, LeaseEventType
from flowfabric.model.record import replace
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.statistic import (
    BUCKETS_MS,
    HOUR_MS,
    MINUTE_MS,
    NOTHING,
    CompletionTick,
    Histogram,
    LeaseTick,
    MinuteRow,
    RollUpRow,
    SeenUsage,
    Spending,
    SpendRow,
    Statistic,
    Step,
    WorkCount,
    bucket_of,
)

MinuteKey = tuple[int, str, str, str]
Position = tuple[int, int]

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

    __slots__ = ("counts", "pickup", "run")

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.pickup: list[int] = []
        self.run: list[int] = []


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
            at = each.occurred_at
            key = (at - at % MINUTE_MS, each.namespace, each.lane_id, each.execution_kind)
            self._gains[key].counts[each.counted.value] += each.count

    def add_leases(self, events: Iterable[LeaseTick]) -> None:
        """Starts, losses and retries."""
        for each in events:
            word, took = each.event_type, each.took_ms
            if word in _STARTS:
                gain = self._gain(each)
                gain.counts["resumed" if each.reason == CLAIM_RESUMED else "started"] += 1
                if took is not None:
                    gain.pickup.append(took)
            elif word in _LOSSES:
                self._gain(each).counts["recovered"] += 1
            elif word == _RELEASED and each.reason == RETRY_SCHEDULED:
                gain = self._gain(each)
                gain.counts["retried"] += 1
                if took is not None:
                    gain.run.append(took)

    def add_completions(self, events: Iterable[CompletionTick]) -> None:
        """Ends."""
        for each in events:
            if (name := _ENDED.get(each.outcome)) is not None:
                gain = self._gain(each)
                gain.counts[name] += 1
                if each.took_ms is not None:
                    gain.run.append(each.took_ms)

    def _gain(self, event: LeaseTick | CompletionTick) -> _Gain:
        at = event.occurred_at
        # Events from before lane and kind were kept with them are counted under empty names.
        return self._gains[
            at - at % MINUTE_MS,
            event.namespace,
            event.lane_id or "",
            event.execution_kind or "",
        ]

    def row(self, key: MinuteKey, stored: MinuteRow | None) -> MinuteRow:
        """The row of a minute with what it gains."""
        row = stored or MinuteRow(*key, expires_at=key[0] + STATISTIC_RETENTION_MS)
        gain = self._gains[key]
        counts = {name: getattr(row, name) + more for name, more in gain.counts.items()}
        return replace(
            row,
            pickup=row.pickup.plus(histogram_of(gain.pickup)),
            run=row.run.plus(histogram_of(gain.run)),
            **counts,
        )


def histogram_of(durations_ms: list[int]) -> Histogram:
    """Durations by bucket."""
    if not durations_ms:
        return NOTHING
    counts = [0] * (len(BUCKETS_MS) + 1)
    for each in durations_ms:
        counts[bucket_of(each)] += 1
    while not counts[-1]:
        counts.pop()
    return Histogram(tuple(counts), sum(durations_ms))


# --- how far it is complete ----------------------------------------------------------------------


def advanced(
    row: RollUpRow, places: Mapping[str, Position], *, now: int, front: int, is_all: bool
) -> RollUpRow:
    """The row after everything up to these places was counted.

    `front`: a transaction that has not begun to write at `now` gets a later number. `is_all`: the
    places are the ends of the logs. Transactions that were open at an instant may still tell of
    the time before it, so the instant counts as complete when their places are passed.
    """
    moved = replace(row, places=places, counted_at=now)
    if not is_all:
        return moved
    reached = min(places.values())
    if reached[0] >= front:  # commits are serial: this one is the last
        return replace(moved, complete_until=max(row.complete_until, now))
    if reached[0] >= row.probe_xact:
        return replace(
            moved,
            complete_until=max(row.complete_until, row.probe_at),
            probe_xact=front,
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
