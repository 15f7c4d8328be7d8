"""The feed of events: pages of all logs, merged, and waiting for more."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.api import events as api
from flowfabric.api.page import decode_cursor, encode_cursor
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.waiting import left_s, wait_until
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
from flowfabric.model.event import OperatorEventType
from flowfabric.model.feed import Event, EventFilter, EventKind, EventPage
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record, replace
from flowfabric.stores.base import Reader
from flowfabric.stores.logs import BEFORE_ALL, LOG_OF, NUMBER_MAX, Log, LogQuery, Position
from flowfabric.stores.tables import LOG_MARKS

Places = dict[EventKind, Position]  # how far each log was read

_FEED: Final = "events"
_LOGS: Final[Mapping[EventKind, Log[Any]]] = {
    kind: LOG_OF[record] for kind, (record, _) in SUBJECTS.items()
}
# The column with the execution an event is about; flows and workers are about none.
_EXECUTION: Final = {
    kind: SUBJECTS[kind][1] if kind not in (EventKind.FLOW, EventKind.WORKER) else "none"
    for kind in EventKind
}
_TAGGED: Final = (OperatorEventType.TAGGED.value,)


@answers(api.ReadEvents)
async def read_events(machine: Machine, request: api.ReadEvents) -> EventPage:
    """One page, at once."""
    feed = _Feed(machine, request.kinds, request.filter, request.limit)
    return await feed.page(feed.start(request.after))


@answers(api.SubscribeEvents)
async def subscribe_events(machine: Machine, request: api.SubscribeEvents) -> EventPage:
    """The next page, when there is one."""
    return await _subscribe(machine, request, request.kinds, request.filter)


@answers(api.SubscribeCompletion)
async def subscribe_completion(machine: Machine, request: api.SubscribeCompletion) -> EventPage:
    """Ends."""
    return await _subscribe(machine, request, (EventKind.COMPLETION,), request.filter)


@answers(api.SubscribeLeaseHistory)
async def subscribe_lease_history(
    machine: Machine, request: api.SubscribeLeaseHistory
) -> EventPage:
    """Changes of ownership."""
    return await _subscribe(machine, request, (EventKind.LEASE,), request.filter)


@answers(api.SubscribeSignalDelivery)
async def subscribe_signal_delivery(
    machine: Machine, request: api.SubscribeSignalDelivery
) -> EventPage:
    """Signals."""
    return await _subscribe(machine, request, (EventKind.SIGNAL,), request.filter)


@answers(api.SubscribeInstanceTags)
async def subscribe_instance_tags(
    machine: Machine, request: api.SubscribeInstanceTags
) -> EventPage:
    """Tags, which the audit trail has."""
    wanted = _checked_filter(machine, request.filter)
    wanted = replace(wanted, event_types=_TAGGED)
    return await _subscribe(machine, request, (EventKind.OPERATOR,), wanted)


async def _subscribe(
    machine: Machine, request: Any, kinds: Sequence[Any], wanted: EventFilter
) -> EventPage:
    """Read, and read again when the logs have grown, until there is an event or the time is up."""
    feed = _Feed(machine, kinds, wanted, request.limit)
    most = limits.SUBSCRIBE_WAIT_MS_MAX
    check_integer(request.wait_ms, field="wait_ms", least=0, most=most)
    until = wait_until(request.wait_ms)
    after = feed.start(request.after)
    with machine.feed.watching() as watch:
        page = await feed.page(after)
        while not page.events and request.limit and (pause := left_s(until)) > 0:
            if page.is_end:
                await watch.changed(pause)
            page = await feed.page(feed.start(page.cursor))
        return page


class _Feed:
    """What one call reads: kinds, filter, page size."""

    def __init__(
        self, machine: Machine, kinds: Sequence[Any], wanted: EventFilter, limit: int
    ) -> None:
        self._machine = machine
        self._filter = _checked_filter(machine, wanted)
        self._kinds = _checked_kinds(kinds)
        self._limit = check_limit(limit)

    def start(self, after: str | None) -> Places | None:
        """The places to read from; None for the end of each log."""
        if after is None:
            return dict.fromkeys(self._kinds, BEFORE_ALL)
        if after == api.NOW:
            return None
        kinds = self._kinds

        def check(*parts: object) -> tuple[Places]:
            if len(parts) != 3 * len(kinds) or parts[::3] != tuple(each.value for each in kinds):
                raise InvalidInput("after: a cursor of other kinds", field="after")
            numbers = [
                check_integer(each, field="after", least=0, most=NUMBER_MAX)
                for at, each in enumerate(parts)
                if at % 3
            ]
            return (dict(zip(kinds, zip(*[iter(numbers)] * 2, strict=True), strict=True)),)

        found = decode_cursor(_FEED, after, check)
        return None if found is None else found[0]

    async def page(self, places: Places | None) -> EventPage:
        """The events behind these places, merged by the time at which they happened."""
        limit = self._limit

        async def work(reader: Reader) -> tuple[Places, dict[EventKind, list[Entry]], Places]:
            ends = await reader.log_ends()
            until = {kind: ends[_LOGS[kind]] for kind in self._kinds}
            start = until if places is None else places
            found, reached = {}, {}
            for kind in self._kinds:
                found[kind], reached[kind] = await self._read(
                    reader, kind, start[kind], until[kind]
                )
            if places is not None:
                await _refuse_lost(reader, places)
            return start, found, reached

        start, found, reached = await self._machine.read(work)
        at = dict(start)
        events: list[Event] = []
        for kind, position, event in _merged(found):
            if len(events) == limit:
                return EventPage(tuple(events), self._cursor(at), is_end=False)
            at[kind] = position
            events.append(shown(kind, event, self._cursor(at)))
        is_end = limit > 0 and all(reached[kind] >= at[kind] for kind in self._kinds)
        at = {kind: max(at[kind], reached[kind]) for kind in self._kinds}
        return EventPage(tuple(events), self._cursor(at), is_end=is_end)

    async def _read(
        self, reader: Reader, kind: EventKind, after: Position, until: Position
    ) -> tuple[list[Entry], Position]:
        """Events of one kind that pass the filter, and how far the log was read."""
        log, only = _LOGS[kind], self._columns(kind)
        found: list[Entry] = []
        if only is None or not self._limit:
            return found, until if only is None else after
        for _ in range(limits.FEED_PAGES_MAX):
            query = LogQuery(after=after, until=until, limit=self._limit, only=only)
            page = await reader.read_log(log, query)
            found += [(kind, at, each) for at, each in page if passes(each, self._filter)]
            if len(page) < self._limit:
                return found, until
            after = page[-1][0]
            if len(found) >= self._limit:
                break
        return found, after

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

    def _cursor(self, places: Places) -> str:
        parts: list[int | str] = []
        for kind in self._kinds:
            parts += [kind.value, *places[kind]]
        return encode_cursor(_FEED, parts)


Entry = tuple[EventKind, Position, Record]


def _merged(found: Mapping[EventKind, list[Entry]]) -> Iterator[Entry]:
    """Events of all kinds by time and transaction, those of each kind in the order of their log."""
    return heapq.merge(*found.values(), key=_when)


def _when(entry: Entry) -> tuple[int, int]:
    event: Any = entry[2]
    return event.occurred_at, entry[1][0]


async def _refuse_lost(reader: Reader, places: Places) -> None:
    """Events behind a cursor that are no longer kept cannot be read. Asked after the page was read:
    what was trimmed meanwhile counts, too."""
    names = {_LOGS[kind].name: kind for kind in places if places[kind] != BEFORE_ALL}
    marks = await reader.peek_rows(LOG_MARKS, [(name,) for name in sorted(names)])
    for mark in marks.values():
        kind = names[mark.log]
        if places[kind] < (mark.trimmed_xact, mark.trimmed_id):
            raise CursorExpired(
                f"after: {kind.value} events from before {mark.trimmed_at} are gone, and not all "
                "of them were read",
                field="after",
                kind=kind.value,
                lost_until=mark.trimmed_at,
            )


def _checked_kinds(kinds: Sequence[Any]) -> tuple[EventKind, ...]:
    several = check_list(kinds, field="kinds")
    given = {check_word(each, EventKind, field="kinds") for each in several}
    return tuple(kind for kind in EventKind if not given or kind in given)


def _checked_filter(machine: Machine, wanted: object) -> EventFilter:
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
