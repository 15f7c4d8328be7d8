"""Ticks of cron expressions equal those of an oracle that goes through every minute.

FF_CALENDAR_YEARS=10 (`bin/soak`) compares ten years; otherwise these are the days of one change.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from flowfabric.calendar import Calendar, _parse
from flowfabric.model.schedule import Timing
from tests.property.budget import budget

YEARS = budget("FF_CALENDAR_YEARS", 0)
MINUTE = timedelta(minutes=1)
EXPRESSIONS = (
    *("30 2 * * *", "0,30 2,3 * * *", "*/15 * * * *", "0 */2 * * *", "15 1 * * 0"),
    *("45 1 13 * 5", "*/20 2 * * *", "5 * * * *", "0 0 L * *", "30 0 * * MON#2"),
)
# Days with a change of the clocks; in Apia a whole day was left out.
MONTHS = {
    "Europe/Berlin": datetime(2026, 3, 25, tzinfo=UTC),
    "America/New_York": datetime(2026, 10, 28, tzinfo=UTC),
    "Australia/Lord_Howe": datetime(2026, 4, 1, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 12, 26, tzinfo=UTC),
}


def oracle(expression: str, zone: str, begin: datetime, end: datetime) -> list[int]:
    """Minute by minute, without any arithmetic on clock changes."""
    place, parsed = ZoneInfo(zone), _parse(expression)
    minute, hour = expression.split()[:2]
    follows_real_time = minute.startswith("*") or hour.startswith("*")

    def matches(local: datetime) -> bool:
        at = local.minute in parsed.minutes and local.hour in parsed.hours
        return at and local.month in parsed.months and parsed.match_day(local.date())

    found, now = [], begin
    latest = (begin - MINUTE).astimezone(place).replace(tzinfo=None, fold=0)
    while now < end:
        local = now.astimezone(place).replace(tzinfo=None, fold=0)
        ticks = follows_real_time and matches(local)
        while local > latest and not follows_real_time:  # also those minutes that are left out
            latest += MINUTE
            ticks = matches(latest) or ticks
        if ticks:
            found.append(int(now.timestamp()) * 1000)
        now += MINUTE
    return found


@pytest.mark.parametrize("zone", MONTHS)
def test_ticks_equal_the_oracle(zone: str) -> None:
    begin = MONTHS[zone]
    end = begin + timedelta(days=8)
    if YEARS:
        begin, end = datetime(2009, 1, 1, tzinfo=UTC), datetime(2009 + YEARS, 1, 1, tzinfo=UTC)
    after, until = int(begin.timestamp()) * 1000 - 1, int(end.timestamp()) * 1000 - 1
    for expression in EXPRESSIONS:
        calendar = Calendar(Timing(cron=(expression,), tz=zone))
        wanted = oracle(expression, zone, begin, end)
        assert calendar.ticks(after, until, limit=10**8) == wanted, expression
