"""Strategies for Hypothesis: where a worker may crash, and when schedules tick."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from flowfabric.testing.faults import Crash, Place

_NTH: Final = 3
_PLACES: Final[tuple[Place, ...]] = ("body", "checkpoint", "commit")


def faults(steps: Sequence[str], *, most: int = 3) -> st.SearchStrategy[list[Crash]]:
    """Crashes at these steps, none to a few, for `fabric.crash`.

    ```
    @given(faults(["fetch", "charge"]))
    def test_an_order_survives(crashes: list[Crash]) -> None: ...
    ```
    """
    name, nth = st.sampled_from(list(steps)), st.integers(min_value=1, max_value=_NTH)
    before = st.builds(lambda step, n: Crash(before=step, nth=n), name, nth)
    after = st.builds(
        lambda step, n, at: Crash(after=step, nth=n, at=at), name, nth, st.sampled_from(_PLACES)
    )
    return st.lists(before | after, max_size=most)


def ticks(zone: str, *, first: int = 2020, last: int = 2035) -> st.SearchStrategy[datetime]:
    """Instants at which a schedule may tick, whole minutes of UTC, most of them around the clock
    changes of a time zone.

    ```
    @given(ticks("Europe/Berlin"))
    def test_a_report_is_for_one_day(tick: datetime) -> None: ...
    ```
    """
    begin, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 12, 31, tzinfo=UTC)
    length = int((end - begin).total_seconds()) // 60
    anywhere = st.integers(0, length).map(lambda minutes: begin + timedelta(minutes=minutes))
    if not (changes := _changes(zone, first, last)):
        return anywhere
    near = st.builds(
        lambda change, minutes: change + timedelta(minutes=minutes),
        st.sampled_from(changes),
        st.integers(-180, 180),
    )
    return near | anywhere


@cache
def _changes(zone: str, first: int, last: int) -> tuple[datetime, ...]:
    """The hours in which the clocks of a time zone change."""
    place, step = ZoneInfo(zone), timedelta(hours=1)
    when, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 12, 31, tzinfo=UTC)
    found = []
    offset = when.astimezone(place).utcoffset()
    while when < end:
        when += step
        if (now := when.astimezone(place).utcoffset()) != offset:
            found.append(when)
            offset = now
    return tuple(found)
