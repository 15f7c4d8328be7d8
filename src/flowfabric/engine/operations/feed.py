"""The feed: the logs of events of several kinds, merged."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, islice, takewhile
from operator import itemgetter
from typing import Any, Final, NamedTuple

from flowfabric import limits
from flowfabric.api import events as api
from flowfabric.api.page import decode_cursor, encode_cursor
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import check_limit
from flowfabric.errors import CursorExpired, InvalidInput
from flowfabric.kernel.feed import SUBJECTS, passes, shown, word_column
from flowfabric.model.checks import (
    check_execution_id,
    check_integer,
    check_list,
    check_name,
    check_tag_key,
    check_text,
    check_uuid,
)
from flowfabric.model.feed import Event, EventFilter, EventKind, EventPage, LogMark
from flowfabric.model.group import Places
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record
from flowfabric.stores.base import Reader
from flowfabric.stores.logs import AFTER_ALL, BEFORE_ALL, LOG_OF, Log, LogQuery, Position
from flowfabric.stores.tables import LOG_MARKS

Entry = tuple[EventKind, Position, Record]

_FEED: Final = "events"
_NO_TIME: Final = -1
_LOGS: Final[Mapping[EventKind, Log[Any]]] = {
    kind: LOG_OF[record] for kind, (record, _) in SUBJECTS.items()
}
# The column with the execution an event is about; flows, budgets and workers are about none.
_WITHOUT: Final = (EventKind.FLOW, EventKind.BUDGET, EventKind.WORKER)
_EXECUTION: Final = {kind: "none" if kind in _WITHOUT else SUBJECTS[kind][1] for kind in EventKind}


class Feed:
    """What one call reads: kinds, filter, page size."""

    def __init__(
        self,
        machine: Machine,
        kinds: Sequence[Any],
        wanted: EventFilter,
        limit: int,
        *,
        has_begun: bool = False,
    ) -> None:
        """`has_begun`: the beginning of a log is a place as any other, not the oldest event that is
        kept when it is read."""
        self._has_begun = has_begun
        self._machine = machine
        self._filter = checked_filter(machine, wanted)
        self.kinds = checked_kinds(kinds)
        self._limit = check_limit(limit)

    def start(self, after: str | None, field: str = "after") -> Places | None:
        """The places to read from; None for the end of each log."""
        if after is None:
            return dict.fromkeys(self.kinds, BEFORE_ALL)
        if after == api.NOW:
            return None
        kinds = self.kinds

        def check(*parts: object) -> tuple[Places]:
            if parts[::2] != tuple(each.value for each in kinds):
                raise InvalidInput(f"{field}: a cursor of other kinds", field=field)
            numbers = [
                check_integer(each, field=field, least=BEFORE_ALL, most=AFTER_ALL)
                for each in parts[1::2]
            ]
            return (dict(zip(kinds, numbers, strict=True)),)

        found = decode_cursor(_FEED, after, check)
        return None if found is None else found[0]

    async def page(self, places: Places | None, until: Places | None = None) -> EventPage:
        """The events behind these places, or up to some others."""

        async def work(reader: Reader) -> Scan:
            ends = await self.ends(reader)
            if until is not None:  # a place that is not reached yet may hide what is on its way
                ends = {kind: min(until[kind], end) for kind, end in ends.items()}
            return await self.scan(reader, places, ends)

        scan = await self._machine.read(work)
        return EventPage(self.events_of(scan), self.cursor(scan.ends), is_end=scan.is_end)

    async def scan(
        self, reader: Reader, places: Places | None, until: Places | None = None
    ) -> Scan:
        """The entries behind these places, or none from their ends on; merged by the time at which
        they happened. Refused where some of them are no longer kept."""
        if until is None:
            until = await self.ends(reader)
        start = until if places is None else places
        stretches = [
            await self._read(reader, kind, start[kind], until[kind]) for kind in self.kinds
        ]
        if places is not None:
            await self._refuse_lost(reader, places)
        return _merged(start, stretches, self._limit)

    async def oldest(self, reader: Reader) -> Places:
        """The places behind which everything is that is kept now."""
        found = dict.fromkeys(self.kinds, BEFORE_ALL)
        for kind, mark in (await _marks(reader, self.kinds)).items():
            found[kind] = mark.trimmed_id
        return found

    async def ends(self, reader: Reader) -> Places:
        """The places behind which nothing is stored yet."""
        ends = await reader.log_ends()
        return {kind: ends[_LOGS[kind]] for kind in self.kinds}

    def events_of(self, scan: Scan) -> tuple[Event, ...]:
        """What a scan has found, each event with its cursor."""
        at, events = dict(scan.start), []
        for kind, position, event in scan.entries:
            at[kind] = position
            events.append(shown(kind, event, self.cursor(at)))
        return tuple(events)

    async def _refuse_lost(self, reader: Reader, places: Places) -> None:
        """Events behind a cursor that are no longer kept cannot be read. Asked after the page was
        read: what was trimmed meanwhile counts, too."""
        read = [each for each in places if self._has_begun or places[each] != BEFORE_ALL]
        for kind, mark in (await _marks(reader, read)).items():
            if places[kind] < mark.trimmed_id:
                raise CursorExpired(
                    f"after: {kind.value} events from before {mark.trimmed_at} are gone, and not "
                    "all of them were read",
                    field="after",
                    kind=kind.value,
                    lost_until=mark.trimmed_at,
                )

    async def _read(
        self, reader: Reader, kind: EventKind, after: Position, until: Position
    ) -> _Stretch:
        """Events of one kind that pass the filter, and how far the log was read."""
        log, only = _LOGS[kind], self._columns(kind)
        found: list[Entry] = []
        if only is None:
            return _Stretch(kind, found, until)
        if not self._limit:
            return _Stretch(kind, found, after, _NO_TIME)
        page: list[tuple[Position, Any]] = []
        for _ in range(limits.FEED_PAGES_MAX):
            query = LogQuery(after=after, until=until, limit=self._limit, only=only)
            page = await reader.read_log(log, query)
            found += [(kind, at, each) for at, each in page if passes(each, self._filter)]
            if len(page) < self._limit:
                return _Stretch(kind, found, until)
            after = page[-1][0]
            if len(found) >= self._limit:
                break
        return _Stretch(kind, found, after, _when((kind, *page[-1])))

    def _columns(self, kind: EventKind) -> tuple[tuple[str, tuple[str, ...]], ...] | None:
        """The part of the filter that a log's columns answer; None where no event can pass."""
        names, wanted = _LOGS[kind].names, self._filter
        only: list[tuple[str, tuple[str, ...]]] = []
        for column, value in (
            ("namespace", wanted.namespace),
            ("lane_id", wanted.lane_id),
            ("execution_kind", wanted.execution_kind),
            ("flow_id", wanted.flow_id),
            (_EXECUTION[kind], wanted.execution_id),
        ):
            if value is None:
                continue
            if column not in names:
                return None
            only.append((column, (value,)))
        if wanted.event_types:
            only.append((word_column(kind), wanted.event_types))
        return tuple(only)

    def cursor(self, places: Places) -> str:
        """These places as a caller hands them back."""
        parts: list[int | str] = []
        for kind in self.kinds:
            parts += [kind.value, places[kind]]
        return encode_cursor(_FEED, parts)


class _Stretch(NamedTuple):
    """What was read of one log."""

    kind: EventKind
    found: list[Entry]
    reached: Position
    # When the last event that was read happened, if the log has more: of other logs, nothing that
    # happened later is shown before the rest.
    read_until: int | None = None


class Scan(NamedTuple):
    """A stretch of a feed: what was found between two places."""

    start: Places
    entries: list[Entry]
    ends: Places
    is_end: bool  # no more could be found at that moment

    def first(self, count: int) -> Scan:
        """The stretch up to behind so many entries."""
        if count >= len(self.entries):
            return self
        cut = self._replace(entries=self.entries[:count], is_end=False)
        return cut._replace(ends=cut.last)

    @property
    def last(self) -> Places:
        """The places of the last entries; the stretch may go on without any."""
        return _behind(self.start, self.entries)


def _merged(start: Places, stretches: Sequence[_Stretch], limit: int) -> Scan:
    """Events of all kinds by time, those of each kind in the order of their log."""
    merged: Iterator[_Timed] = heapq.merge(*map(_timed, stretches), key=itemgetter(0))
    bounds = [_bound(each) for each in stretches if each.read_until is not None]
    if bounds:
        bound = min(bounds)
        merged = takewhile(lambda timed: timed[0] <= bound, merged)
    entries = [entry for _, entry in islice(merged, limit)]
    shown_of = Counter(kind for kind, _, _ in entries)
    ends = dict(_behind(start, entries))
    for each in stretches:
        if shown_of[each.kind] == len(each.found):
            ends[each.kind] = max(each.reached, ends[each.kind])
    is_end = not bounds and len(entries) == sum(len(each.found) for each in stretches)
    return Scan(start, entries, ends, is_end)


_Timed = tuple[int, Entry]


def _timed(stretch: _Stretch) -> list[_Timed]:
    """The entries of one log, each with the latest time up to it: transactions do not end in the
    order of their clocks, and the order of the log is kept."""
    latest = accumulate(map(_when, stretch.found), max)
    return list(zip(latest, stretch.found, strict=True))


def _bound(stretch: _Stretch) -> int:
    """The latest time that was read of a log; never before an entry of it, so that a page always
    gets further."""
    until = _NO_TIME if stretch.read_until is None else stretch.read_until
    return max([until, *map(_when, stretch.found)])


def _behind(start: Places, entries: Sequence[Entry]) -> Places:
    """The places behind these entries."""
    return {**start, **{kind: position for kind, position, _ in entries}}


def _when(entry: Entry) -> int:
    event: Any = entry[2]
    occurred_at: int = event.occurred_at
    return occurred_at


async def _marks(reader: Reader, kinds: Sequence[EventKind]) -> dict[EventKind, LogMark]:
    """How far logs were trimmed."""
    names = {_LOGS[kind].name: kind for kind in kinds}
    marks = await reader.peek_rows(LOG_MARKS, [(name,) for name in sorted(names)])
    return {names[mark.log]: mark for mark in marks.values()}


def checked_kinds(kinds: Sequence[Any]) -> tuple[EventKind, ...]:
    """The kinds of a feed in their order; all of them where none is given."""
    several = check_list(kinds, field="kinds")
    given = {check_word(each, EventKind, field="kinds") for each in several}
    return tuple(kind for kind in EventKind if not given or kind in given)


def checked_filter(machine: Machine, wanted: object) -> EventFilter:
    """The filter of a feed."""
    if not isinstance(wanted, EventFilter):
        raise InvalidInput(
            f"filter: expected an EventFilter, got {type(wanted).__name__}", field="filter"
        )
    for field in ("namespace", "lane_id", "execution_kind"):
        if (value := getattr(wanted, field)) is not None:
            check_name(value, field=f"filter.{field}")
    if wanted.execution_id is not None:
        partitions = machine.store.partitions
        check_execution_id(wanted.execution_id, partitions=partitions, field="filter.execution_id")
    if wanted.flow_id is not None:
        check_uuid(wanted.flow_id, field="filter.flow_id")
    if wanted.tag is not None:
        key, value = wanted.tag
        check_tag_key(key)
        check_text(value, field="filter.tag", max_bytes=limits.TAG_VALUE_BYTES)
    for each in check_list(wanted.event_types, field="filter.event_types"):
        check_name(each, field="filter.event_types")
    return wanted
