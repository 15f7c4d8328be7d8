"""The only module that reads cron expressions and time zones: when schedules tick.

cronsim parses expressions and tells which days match. The walk is ours, since the rules about clock
changes are (see docs/guides/schedules.md):

* A fixed time in an hour that is left out ticks once, right after the gap.
* A fixed time in an hour that comes twice ticks the first time.
* An expression with a minute or an hour that begins with `*` follows real time: it ticks at every
  minute that passes and shows a matching local time.

Seconds are expanded within the minutes that tick.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from heapq import merge
from itertools import groupby, pairwise
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from flowfabric import limits
from flowfabric.errors import InvalidSchedule
from flowfabric.model.schedule import TickMark, Timing
from flowfabric.model.shown import shown

_NICKNAMES: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}
_FIELDS: Final = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_YEARS_MAX: Final = 40  # no leap day on a given weekday is further away
_FAR: Final = datetime(9990, 1, 1, tzinfo=UTC)
_ANY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_SAMPLED: Final = 400  # ticks by which the shortest interval is judged


class Ticks(Protocol):
    """One source of ticks."""

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Those after an instant, in order, in UTC."""
        ...

    def mark(self, tick: datetime) -> TickMark | None:
        """What the clocks do to one of them."""
        ...


def zone_of(name: str) -> tzinfo:
    """A time zone by its name; raises InvalidSchedule if there is none."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # of an odd name, of no file, of an unknown name
        detail = f"tz: {shown(name, 80)} is no time zone that this system knows"
        raise InvalidSchedule(f"{detail}; it may lack the package tzdata", field="tz") from None


class Calendar:
    """When a schedule ticks. Instants are milliseconds.

    >>> calendar = Calendar(Timing(cron=("30 2 * * *",), tz="Europe/Berlin"))
    >>> first = calendar.next(1_774_656_000_000)  # 2026-03-28T00:00Z, the day before the change
    >>> datetime.fromtimestamp(first / 1000, UTC).isoformat()
    '2026-03-28T01:30:00+00:00'
    >>> datetime.fromtimestamp(calendar.next(first) / 1000, UTC).isoformat()
    '2026-03-29T01:00:00+00:00'
    """

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.zone = zone_of(timing.tz)
        self._excluded = frozenset(map(_date, timing.except_on))
        self._sources = _sources(timing, self.zone)

    def next(self, after: int) -> int | None:
        """The first tick after an instant."""
        return next(iter(self.ticks(after, limit=1)), None)

    def ticks(self, after: int, until: int | None = None, *, limit: int) -> list[int]:
        """The ticks after an instant, up to another one, oldest first."""
        begin, ends = after, self.timing.ends
        if self.timing.starts is not None:
            begin = max(begin, self.timing.starts - 1)
        last = min(each for each in (until, ends, limits.INSTANT_MS_MAX) if each is not None)
        found: list[int] = []
        if limit <= 0 or begin >= last:
            return found
        horizon = None
        for tick in self._walk(begin):
            if tick > last:
                break
            if self._excluded and self._is_excluded(tick):
                horizon = tick if horizon is None else horizon
                if not found and tick - horizon > _YEARS_MAX * 366 * 86_400_000:
                    break
                continue
            found.append(tick)
            if len(found) >= limit:
                break
        return found

    def last(self, after: int, until: int, count: int) -> list[int]:
        """The last ticks after an instant, up to another one, oldest first."""
        span = 60_000
        while until > after:
            begin = max(after, until - span)
            found = self.ticks(begin, until, limit=_BETWEEN_MAX)
            if len(found) >= _BETWEEN_MAX:  # the last are not among them
                span = max(1_000, span // 2)
                continue
            if len(found) >= count or begin <= after:
                return found[-count:] if count else []
            span *= 8 if len(found) * 16 < _BETWEEN_MAX else 2
        return []

    def mark(self, tick: int) -> TickMark | None:
        """What the clocks do to a tick."""
        at = _datetime(tick)
        return next((mark for each in self._sources if (mark := each.mark(at))), None)

    def interval_ms(self, after: int) -> int | None:
        """The shortest time between two ticks, as far as it is looked."""
        found = self.ticks(after, limit=_SAMPLED)
        return min((b - a for a, b in pairwise(found)), default=None)

    def _walk(self, after: int) -> Iterator[int]:
        begin = _datetime(after)
        ticks = merge(*(each.after(begin) for each in self._sources))
        for tick, _ in groupby(ticks):
            yield _ms(tick)

    def _is_excluded(self, tick: int) -> bool:
        return _datetime(tick).astimezone(self.zone).date() in self._excluded


_BETWEEN_MAX: Final = 20_000


def jitter_of(jitter_ms: int, name: str, tick: int) -> int:
    """How much later than its time a tick fires: the same in every process."""
    if not jitter_ms:
        return 0
    digest = hashlib.sha256(f"{name}\x1f{tick}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % (jitter_ms + 1)


def _datetime(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)


def _ms(when: datetime) -> int:
    return int(when.timestamp()) * 1000


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except (ValueError, TypeError):
        detail = f"except_on: {shown(text, 80)} is no date such as 2026-12-24"
        raise InvalidSchedule(detail, field="except_on") from None


def _sources(timing: Timing, zone: tzinfo) -> list[Ticks]:
    if timing.every_ms is not None:
        return [_Every(timing.anchor or 0, timing.every_ms)]
    if timing.at:
        return [_At(timing.at)]
    return [_cron(text, at, zone) for at, text in enumerate(timing.cron)]


# --- elapsed time and instants -------------------------------------------------------------------


class _Every:
    def __init__(self, anchor: int, every_ms: int) -> None:
        self._anchor = anchor
        self._every = every_ms

    def after(self, instant: datetime) -> Iterator[datetime]:
        begin = int(instant.timestamp() * 1000)
        count = max(0, (begin - self._anchor) // self._every + 1)
        while (tick := self._anchor + count * self._every) <= limits.INSTANT_MS_MAX:
            yield _datetime(tick)
            count += 1

    def mark(self, _: datetime) -> None:
        return None


class _At:
    def __init__(self, instants: Sequence[int]) -> None:
        self._instants = sorted(map(_datetime, set(instants)))

    def after(self, instant: datetime) -> Iterator[datetime]:
        yield from self._instants[bisect_right(self._instants, instant) :]

    def mark(self, _: datetime) -> None:
        return None


# --- cron ----------------------------------------------------------------------------------------


def _cron(text: str, at: int, zone: tzinfo) -> Ticks:
    parsed, follows_real_time = _parsed(text, at)
    return _RealTime(parsed, zone) if follows_real_time else _Fixed(parsed, zone)


def _parsed(text: str, at: int) -> tuple[CronSim, bool]:
    field = f"cron[{at}]"
    plain = _NICKNAMES.get(text.strip().lower(), text)
    if plain.lstrip().startswith("@"):
        known = ", ".join(_NICKNAMES)
        detail = f"{field}: {shown(text, 80)} is none of {known}"
        raise InvalidSchedule(detail, field=field, position=0)
    if re.match(r"\s*(RRULE|DTSTART|FREQ=)", plain, re.IGNORECASE):
        detail = f"{field}: RRULE is not read; write one or more cron expressions, with except_on"
        raise InvalidSchedule(detail, field=field, position=0)
    try:
        parsed = _parse(plain)
    except CronSimError as error:
        raise _bad(field, plain, str(error)) from None
    except (ValueError, IndexError, AssertionError, TypeError, KeyError) as error:
        raise _bad(field, plain, str(error) or "cannot be read") from None
    parts = plain.split()
    minute, hour = parts[-5], parts[-4]
    return parsed, minute.startswith("*") or hour.startswith("*")


@lru_cache(maxsize=4096)
def _parse(text: str) -> CronSim:
    parsed = CronSim(text, _ANY)
    days = {each for each in parsed.days if each > 0}
    if not days or (len(days) == 31 and not parsed.day_and):
        return parsed
    by_weekday = not parsed.day_and  # then another day may match
    longest = max(_LONGEST[month] for month in parsed.months)
    has_last = any(each < 0 for each in parsed.days)
    if min(days) > longest and not by_weekday and not has_last:
        raise CronSimError("Bad day-of-month")
    return parsed


_LONGEST: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _bad(field: str, text: str, words: str) -> InvalidSchedule:
    """The parser's words, and the place of the part they are about."""
    name = words.removeprefix("Bad ")
    position = 0
    parts = list(re.finditer(r"\S+", text))
    if name in _FIELDS:
        index = _FIELDS.index(name) - (6 - len(parts))
        if 0 <= index < len(parts):
            position = parts[index].start()
    detail = f"{field}: {shown(text, 80)}: {words}, at position {position}"
    if words == "Wrong number of fields":
        detail += ": five are read, or six with seconds first"
    return InvalidSchedule(detail, field=field, position=position)


class _Cron:
    """The part that both ways of walking have in common."""

    def __init__(self, parsed: CronSim, zone: tzinfo) -> None:
        self._zone = zone
        self._match_day = parsed.match_day
        self._months = parsed.months
        self._hours = parsed.hours
        self._minutes = parsed.minutes
        minutes = sorted(parsed.minutes)
        # the next one of the hour behind each minute, or the end of the hour
        self._next_minute = [
            next((each for each in minutes if each > minute), 60) for minute in range(60)
        ]
        self._seconds = [timedelta(seconds=each) for each in sorted(parsed.seconds)]
        self._first_of_day = [
            timedelta(hours=hour, minutes=minute)
            for hour in sorted(parsed.hours)
            for minute in sorted(parsed.minutes)
        ]

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Seconds are expanded within matching minutes."""
        begin = instant.replace(second=0, microsecond=0)
        before = None
        for minute in self._ticking(begin - _MINUTE):
            if minute == before:
                continue
            before = minute
            for second in self._seconds:
                if (tick := minute + second) > instant:
                    yield tick

    def _ticking(self, after: datetime) -> Iterator[datetime]:
        raise NotImplementedError

    def _days(self, first: date) -> Iterator[date]:
        """The matching days from one on."""
        day, last = first, first + timedelta(days=_YEARS_MAX * 366)
        while day <= last:
            if day.month not in self._months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._match_day(day):
                yield day
                last = day + timedelta(days=_YEARS_MAX * 366)
            day += _DAY


class _Fixed(_Cron):
    """Times of the day: each once, whatever the clocks do."""

    def _ticking(self, after: datetime) -> Iterator[datetime]:
        if after >= _FAR:
            return
        local = after.astimezone(self._zone).replace(tzinfo=None, fold=0)
        for day in self._days(local.date()):
            midnight = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - local time
            for time in self._first_of_day:
                naive = midnight + time
                if naive >= local and (tick := self._instant(naive)) > after:
                    yield tick

    def _instant(self, naive: datetime) -> datetime:
        """The first instant with a local time; in a gap, the first one after it."""
        first = naive.replace(tzinfo=self._zone)
        instant = first.astimezone(UTC)
        if instant.astimezone(self._zone).replace(tzinfo=None, fold=0) == naive:
            return instant
        return self._end_of_gap(naive, instant)

    def _end_of_gap(self, naive: datetime, instant: datetime) -> datetime:
        """`instant` is as far behind the change as the local time is inside the gap."""
        early = int(naive.replace(tzinfo=self._zone, fold=1).timestamp())  # before the change
        behind = int(instant.timestamp())
        offset = instant.astimezone(self._zone).utcoffset()
        while behind - early > 1:
            middle = (early + behind) // 2
            if datetime.fromtimestamp(middle, self._zone).utcoffset() == offset:
                behind = middle
            else:
                early = middle
        return datetime.fromtimestamp(behind, UTC)

    def mark(self, tick: datetime) -> TickMark | None:
        """Whether the clocks have moved it, or would have it twice."""
        minute = tick.replace(second=0, microsecond=0)
        local = minute.astimezone(self._zone)
        naive = local.replace(tzinfo=None, fold=0)
        wanted = timedelta(hours=naive.hour, minutes=naive.minute)
        is_own = (
            wanted in self._times and naive.month in self._months and self._match_day(naive.date())
        )
        if not is_own:
            before = (minute - _MINUTE).astimezone(self._zone)
            is_ticking = next(self._ticking(minute - _MINUTE), None) == minute
            jumped = before.utcoffset() != local.utcoffset()
            return TickMark.AFTER_GAP if jumped and is_ticking else None
        second = naive.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        first = naive.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        return TickMark.FIRST_OF_TWO if second > first == minute else None

    @property
    def _times(self) -> frozenset[timedelta]:
        return frozenset(self._first_of_day)


class _RealTime(_Cron):
    """Every minute that passes and shows a matching local time."""

    def _ticking(self, after: datetime) -> Iterator[datetime]:
        minute = (after + _MINUTE).replace(second=0, microsecond=0)
        checked: date | None = None
        found_at = minute
        is_match = False
        while minute < _FAR:
            local = minute.astimezone(self._zone)
            if checked != local.date():
                checked = local.date()
                is_match = local.month in self._months and self._match_day(checked)
                if not is_match and (minute - found_at).days > _YEARS_MAX * 366:
                    return
            if not is_match:
                left = _DAY - timedelta(hours=local.hour, minutes=local.minute)
                minute = self._leap(minute, local, left)
            elif local.hour not in self._hours:
                minute = self._leap(minute, local, _HOUR - timedelta(minutes=local.minute))
            else:
                if local.minute in self._minutes:
                    yield minute
                    found_at = minute
                following = self._next_minute[local.minute]
                minute = self._leap(minute, local, (following - local.minute) * _MINUTE)

    def _leap(self, minute: datetime, local: datetime, by: timedelta) -> datetime:
        """So far ahead, unless the clocks change on the way: then in smaller steps."""
        landing = minute + by
        if landing.astimezone(self._zone).utcoffset() == local.utcoffset():
            return landing
        return minute + (_HOUR if by > 2 * _HOUR else _MINUTE)

    def mark(self, _: datetime) -> None:
        return None


# --- checks --------------------------------------------------------------------------------------


def check_calendar(timing: Timing) -> Calendar:
    """The calendar of a timing whose values have been checked one by one; raises InvalidSchedule if
    it never ticks, or if its jitter is longer than the time between two ticks."""
    calendar = Calendar(timing)
    begin = (timing.starts or 0) - 1
    if timing.starts is None and timing.cron:
        begin = _ms(_ANY)
    if calendar.next(begin) is None:
        detail = "except_on: no tick is left" if timing.except_on else "cron: never ticks"
        if timing.ends is not None:
            detail = "ends: no tick is before it"
        raise InvalidSchedule(detail, field=detail.partition(":")[0])
    interval = calendar.interval_ms(begin)
    if timing.jitter_ms and interval is not None and timing.jitter_ms > interval:
        raise InvalidSchedule(
            f"jitter_ms: {timing.jitter_ms} is longer than {interval}, the time between two ticks",
            field="jitter_ms",
        )
    return calendar
