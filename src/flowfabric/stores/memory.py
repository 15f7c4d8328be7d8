"""The store in memory: the oracle of parity tests, and `memory://` for users' tests."""

from __future__ import annotations

import copy
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from itertools import islice
from operator import attrgetter, itemgetter
from typing import Any, TypeVar, cast

from flowfabric.clock import Clock, SystemClock
from flowfabric.limits import FLOW_PARTITIONS_DEFAULT
from flowfabric.model.attempt import Attempt, AttemptOutcome
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Body, Execution
from flowfabric.model.flow_graph import EdgeFold, Folding, MemberFilter, MemberFold
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.record import Record, replace
from flowfabric.model.route import Catalog, Lane, LaneState, Route
from flowfabric.model.state import StateVector
from flowfabric.stores.base import (
    Changes,
    Corrupt,
    Found,
    ListFilter,
    RowChanges,
    Standing,
    StoreConflict,
    Wanted,
    look_in_order,
    refuse_join,
    within,
)
from flowfabric.stores.drive import drive
from flowfabric.stores.folding import Members, find_members, fold_edges, fold_members
from flowfabric.stores.hints import LocalHints
from flowfabric.stores.indexes import (
    PURGE,
    ExecutionIndex,
    Search,
    due_search,
    newest_first,
    ready_order,
    uuid_of,
)
from flowfabric.stores.logs import BEFORE_ALL, LOGS, Log, LogCount, LogQuery, LogTally, Position
from flowfabric.stores.standing import part_of
from flowfabric.stores.tables import (
    EDGES,
    LANES,
    MEMBERS,
    SCOPES,
    SWEPT_TABLES,
    TABLES,
    TIMED_TABLES,
    Key,
    Table,
    scopes_of,
)

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class _Tables:
    """All data. Records are frozen, so a shallow copy is a snapshot."""

    def __init__(self) -> None:
        self.executions: dict[str, Execution] = {}
        self.live: dict[str, Execution] = {}  # those that have not ended
        self.bodies: dict[str, Body] = {}
        self.attempts: dict[str, list[Attempt]] = {}
        self.routes: dict[Route, None] = {}
        self.catalog_version = 0
        self.rows: dict[Table[Any], dict[Key, Any]] = {table: {} for table in TABLES}
        # events with their positions
        self.logs: dict[Log[Any], list[tuple[Position, Any]]] = {log: [] for log in LOGS}


class MemoryView:
    """Reads and transactions over the same tables; each change remembers how to undo it."""

    def __init__(self, tables: _Tables, now: int) -> None:
        self._tables = tables
        self._undo: list[Callable[[], object]] = []
        self.now = now

    def undo(self) -> None:
        """Undo every change, last first."""
        while self._undo:
            self._undo.pop()()

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if key in table:
            old = table[key]
            self._undo.append(lambda: table.__setitem__(key, old))
        else:
            self._undo.append(lambda: table.pop(key))
        table[key] = value

    def _pop(self, table: dict[Any, Any], key: Any) -> None:
        if key in table:
            old = table.pop(key)
            self._undo.append(lambda: table.__setitem__(key, old))

    def _append(self, table: list[Any], values: Iterable[Any]) -> None:
        size = len(table)
        table.extend(values)
        self._undo.append(lambda: table.__delitem__(slice(size, None)))

    def _drop_first(self, table: list[Any], count: int) -> None:
        gone = table[:count]
        del table[:count]
        self._undo.append(lambda: table.__setitem__(slice(0, 0), gone))

    # --- shared by readers and transactions ------------------------------------------------------

    async def catalog(self) -> Catalog:
        tables = self._tables
        lanes = {lane.lane_id: lane for lane in tables.rows[LANES].values()}
        scopes = scopes_of(tables.rows[SCOPES].values())
        return Catalog(tables.catalog_version, tuple(tables.routes), lanes, scopes)

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        found = self._tables.executions
        return {key: found[key] for key in ids if key in found}

    get = load_free = load

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        return {each.execution_id: each for each in self._successes(ids)}

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        return {
            each.execution_id: len(each.result)
            for each in self._successes(ids)
            if each.result is not None
        }

    def _successes(self, ids: Sequence[str]) -> Iterable[Attempt]:
        for key in ids:
            execution = self._tables.executions.get(key)
            for attempt in self._tables.attempts.get(key, ()):
                is_last = execution is not None and execution.attempt_index == attempt.attempt_index
                if is_last and attempt.outcome is AttemptOutcome.ENDED_SUCCESS:
                    yield attempt

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        return {key: self._tables.bodies[key] for key in ids if key in self._tables.bodies}

    # --- transaction ---------------------------------------------------------------------------

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        bodies = self._tables.bodies
        found = ((e, bodies[e.execution_id]) for e in self._waiting(routes)[:limit])
        return within(found, bytes_max)

    def _waiting(self, routes: Sequence[Route]) -> list[Execution]:
        wanted = frozenset(routes)
        waiting = (
            execution
            for execution in self._tables.live.values()
            if execution.is_waiting
            and execution.route in wanted
            and not execution.granted_to_other(self.now)
            and (execution.deadline_at is None or execution.deadline_at > self.now)
        )
        return sorted(waiting, key=ready_order)

    async def look(self, wanted: Wanted) -> Found:
        return await look_in_order(self, wanted)

    async def search(self, search: Search[R]) -> list[R]:
        return search.sorted(each for each in self._indexed(search) if search.finds(each))

    async def search_keys(self, search: Search[R]) -> list[Key]:
        found = await self.search(search)
        if isinstance(search.index, ExecutionIndex):
            return [(each.execution_id,) for each in found if isinstance(each, Execution)]
        return list(map(search.index.table.key_of, found))

    def _indexed(self, search: Search[R]) -> Iterable[R]:
        """The records among which those of a search are."""
        index = search.index
        if isinstance(index, ExecutionIndex):
            tables = self._tables
            found = tables.executions if index is PURGE else tables.live
            return cast("Iterable[R]", found.values())
        rows: Iterable[Any] = self._tables.rows[index.table.whole].values()
        if search.size:  # one comparison leaves most of them out
            first = attrgetter(index.order[0])
            wanted = {prefix[0] for prefix in search.prefixes}
            rows = [each for each in rows if first(each) in wanted]
        if index.table.whole is index.table:
            return rows
        return map(index.table.part_from, rows)

    async def save(self, changes: Changes) -> None:
        tables = self._tables
        for key, (execution, body) in changes.created.items():
            if key in tables.executions:
                raise StoreConflict("the id is taken", about=[key])
            self._put_execution(execution)
            self._put(tables.bodies, key, body)
        for execution in changes.updated.values():
            self._put_execution(execution)
        for attempt in changes.attempts:
            history = tables.attempts.setdefault(attempt.execution_id, [])
            self._append(history, (attempt,))
        for log, events in changes.appended():
            entries = tables.logs[log]
            first = entries[-1][0] + 1 if entries else 1
            self._append(entries, enumerate(events, first))
        for key, (payload, encoding) in changes.payloads.items():
            body = replace(tables.bodies[key], payload=payload, payload_encoding=encoding)
            self._put(tables.bodies, key, body)
        for table, written in changes.rows.items():
            self._write_rows(table, written)

    def _write_rows(self, table: Table[Any], written: RowChanges) -> None:
        rows = self._tables.rows[table]
        for key in written.deleted:
            self._pop(rows, key)
        for record in written.updated:
            self._put(rows, table.key_of(record), record)
        for values, keys in written.alike:
            for key in keys:
                if key in rows:
                    self._put(rows, key, replace(rows[key], **values))
        for record in written.inserted:
            key = table.key_of(record)
            if key in rows:
                raise StoreConflict("the key is taken", about=[f"{table.name} {key}"])
            self._put(rows, key, record)
        if table.in_catalog:
            self._tables.catalog_version += 1

    # --- small tables --------------------------------------------------------------------------

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        rows, size = self._tables.rows[table], len(keys[0]) if keys else 0
        if size == len(table.key_columns):
            return {key: rows[key] for key in keys if key in rows}
        wanted = set(keys)
        return {key: rows[key] for key in sorted(rows) if key[:size] in wanted}

    rows = peek_rows

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        executions = self._tables.executions
        keys = [key[1] for key in self._tables.rows[MEMBERS] if key[0] == flow_id]
        states = Counter(executions[key].public_state.value for key in keys if key in executions)
        return sorted(states.items())

    async def fold_members(self, folding: Folding) -> list[MemberFold]:
        return fold_members(self._members_of(folding.flow_id), folding)

    async def fold_edges(self, folding: Folding) -> list[EdgeFold]:
        flow_id = folding.flow_id
        edges = [row for key, row in self._tables.rows[EDGES].items() if key[0] == flow_id]
        return fold_edges(self._members_of(flow_id), edges, folding)

    async def find_members(self, wanted: MemberFilter, limit: int) -> list[str]:
        return find_members(self._members_of(wanted.flow_id), wanted)[:limit]

    def _members_of(self, flow_id: str) -> Members:
        executions = self._tables.executions
        return {
            key[1]: (row, executions[key[1]])
            for key, row in sorted(self._tables.rows[MEMBERS].items())
            if key[0] == flow_id and key[1] in executions
        }

    def _put_execution(self, execution: Execution) -> None:
        self._put(self._tables.executions, execution.execution_id, execution)
        if execution.is_terminal:
            self._pop(self._tables.live, execution.execution_id)
        else:
            self._put(self._tables.live, execution.execution_id, execution)

    async def purge(self, until: int, limit: int) -> int:
        gone = await self.search(Search(PURGE, until=until, limit=limit))
        for execution in gone:
            key = execution.execution_id
            self._pop(self._tables.executions, key)
            self._pop(self._tables.bodies, key)
            self._pop(self._tables.attempts, key)
            for table in TABLES:
                if table.of_execution:
                    rows = self._tables.rows[table]
                    for row in [
                        each for each, record in rows.items() if record.execution_id == key
                    ]:
                        self._pop(rows, row)
        return len(gone)

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        swept = 0
        for table in SWEPT_TABLES:
            forgotten = await self.search_keys(due_search(table, keys_until, limit))
            for key in forgotten:
                self._pop(self._tables.rows[table], key)
            swept += len(forgotten)
        return swept

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        entries, old = self._tables.logs[log], 0
        # The newest stays, as in the SQL stores, where positions continue from it.
        while old < min(limit, len(entries) - 1) and entries[old][1].occurred_at < until:
            old += 1
        gone = [position for position, _ in entries[:old]]
        self._drop_first(entries, old)
        return gone

    # --- reader --------------------------------------------------------------------------------

    async def attempts(self, execution_id: str) -> list[Attempt]:
        history = self._tables.attempts.get(execution_id, [])
        return [replace(attempt, result=None, result_encoding=None) for attempt in history]

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        for attempt in self._tables.attempts.get(execution_id, []):
            if attempt.attempt_index == attempt_index:
                return attempt
        return None

    async def list_executions(self, wanted: ListFilter, limit: int) -> list[Execution | Corrupt]:
        chosen = (e for e in self._tables.executions.values() if _shows(wanted, e))
        found: list[Execution | Corrupt] = []
        is_reverse = not wanted.is_oldest_first
        found.extend(sorted(chosen, key=newest_first, reverse=is_reverse)[:limit])
        return found

    async def count_listed(self, wanted: ListFilter) -> int:
        shown = (1 for each in self._tables.executions.values() if _shows(wanted, each))
        return sum(islice(shown, wanted.counted_to))

    async def ids_between(self, first: str, last: str, limit: int) -> list[str]:
        found = (key for key in self._tables.executions if first <= uuid_of(key) <= last)
        return sorted(found, key=uuid_of, reverse=True)[:limit]

    async def ids_ending(self, ending: str, among: int, limit: int) -> list[str]:
        newest = sorted(self._tables.executions, key=uuid_of, reverse=True)[:among]
        return [key for key in newest if key.endswith(ending)][:limit]

    async def count(self) -> list[tuple[Route, str, int]]:
        counted: dict[tuple[Route, str], int] = {}
        for execution in self._tables.executions.values():
            key = (execution.route, execution.public_state.value)
            counted[key] = counted.get(key, 0) + 1
        return [(route, state, number) for (route, state), number in counted.items()]

    async def standing(self, most: int) -> list[Standing]:
        parts, found = Counter[str](), dict[tuple[Route, StateVector], tuple[int, int]]()
        for each in self._tables.executions.values():
            part, key = part_of(each.state), (each.route, each.state)
            if part is None or parts[part] >= most:
                continue
            parts[part] += 1
            number, since = found.get(key, (0, each.last_transition_at))
            found[key] = (number + 1, min(since, each.last_transition_at))
        return [Standing(*key, *told) for key, told in found.items()]

    async def next_due(self) -> int | None:
        executions = self._tables.executions.values()
        times = [when for e in executions if (when := e.due_at or e.purge_at) is not None]
        for table in TIMED_TABLES:
            due = map(table.due_of, self._tables.rows[table].values())
            times += [when for when in due if when is not None]
        return min(times, default=None)

    async def read_log(self, log: Log[R], query: LogQuery) -> list[tuple[Position, R]]:
        entries = self._tables.logs[log]
        first = bisect_right(entries, query.after, key=itemgetter(0))
        last = bisect_right(entries, query.until, key=itemgetter(0))
        found = (
            entry
            for entry in islice(entries, first, last)
            if all(getattr(entry[1], column) in several for column, several in query.only)
        )
        return list(islice(found, query.limit))

    async def read_about(self, log: Log[R], subject: str, limit: int) -> list[tuple[Position, R]]:
        if log.about is None:
            raise LookupError(f"{log.name} has no index of subjects")
        column = log.about.columns[0]
        found = (
            entry
            for entry in self._tables.logs[log]
            if getattr(entry[1], column) == subject and _is_indexed(entry[1])
        )
        return list(islice(found, limit))

    async def log_ends(self) -> dict[Log[Any], Position]:
        logs = self._tables.logs
        return {log: logs[log][-1][0] if logs[log] else BEFORE_ALL for log in LOGS}

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        page = await self.read_log(log, LogQuery(after=after, until=until, limit=count))
        return page[-1][0] if len(page) == count else until

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        found: dict[tuple[Any, ...], list[int]] = {}
        query = LogQuery(after=tally.after, until=tally.until)
        for _, event in await self.read_log(log, query):
            took = getattr(event, tally.duration)
            bucket = None if took is None else bisect_left(tally.bounds, took)
            values = tuple([_word(getattr(event, name)) for name in tally.by])
            step = event.occurred_at // tally.step_ms
            counts = found.setdefault((values, step, bucket), [0, 0])
            counts[0] += 1
            counts[1] += took or 0
        return [LogCount(*key, *counts) for key, counts in found.items()]

    async def log_front(self) -> int:
        return 0

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        live = {key for key, e in self._tables.executions.items() if not e.is_terminal}
        return [("live", key) for key in live ^ set(self._tables.live)]

    async def odd_values(self) -> list[tuple[str, str]]:
        return []  # records are never stored in another form


def _word(value: Any) -> Any:
    """A value of an event as a store with columns has it."""
    return value.value if isinstance(value, Enum) else value


def _is_indexed(event: Any) -> bool:
    """Whether the index of subjects has an event: leases that were simply taken are not in it."""
    return getattr(event, "event_type", None) is not LeaseEventType.ACQUIRED


def _shows(wanted: ListFilter, execution: Execution) -> bool:
    tag, after, before = wanted.tag, wanted.created_after, wanted.created_before
    place, is_forwards = newest_first(execution), wanted.is_oldest_first
    return (
        (wanted.routes is None or execution.route in wanted.routes)
        and (not wanted.states or execution.public_state.value in wanted.states)
        and (tag is None or execution.tags.get(tag[0]) == tag[1])
        and (after is None or execution.created_at >= after)
        and (before is None or execution.created_at < before)
        and (wanted.reason is None or execution.state.blocking_reason is wanted.reason)
        and (
            wanted.before is None
            or (place > wanted.before if is_forwards else place < wanted.before)
        )
        and (
            wanted.partition is None
            or execution.execution_id.startswith(f"{{fp:{wanted.partition}}}:")
        )
    )


class MemoryStore:
    """Keeps everything in this process and loses it at the end."""

    family = "memory"
    commits_at_once = False
    can_join = False

    def __init__(
        self, *, clock: Clock | None = None, partitions: int = FLOW_PARTITIONS_DEFAULT
    ) -> None:
        self._tables = _Tables()
        self._one_at_a_time = threading.Lock()  # no transaction waits, but threads take turns
        self._clock = clock or SystemClock()
        self.partitions = partitions
        self.hints = LocalHints()

    def again(self) -> MemoryStore:
        """The same memory for another event loop."""
        twin = copy.copy(self)
        twin.hints = LocalHints()  # callbacks belong to the loop that subscribed them
        return twin

    async def open(self, *, migrate: bool) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Nothing to close: the data stays until the object is gone."""

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run at once; an error undoes every change."""
        with self._one_at_a_time:
            view = MemoryView(self._tables, self._clock.now_ms())
            try:
                return drive(work(view))
            except BaseException:
                view.undo()
                raise

    async def join(self, connection: object, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """There is no transaction of a caller's own to join."""
        raise refuse_join(self.family)

    async def shares(self, connection: object) -> bool:
        """No connection can be joined."""
        return False

    async def read(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Run reads."""
        with self._one_at_a_time:
            return drive(work(MemoryView(self._tables, self._clock.now_ms())))

    async def intern_routes(self, routes: Sequence[Route]) -> None:
        """Register routes and lanes."""
        tables, now = self._tables, self._clock.now_ms()
        with self._one_at_a_time:
            for route in routes:
                if route not in tables.routes:
                    tables.routes[route] = None
                    tables.catalog_version += 1
                lane = Lane(route.lane_id, LaneState.ACTIVE, now, now)
                tables.rows[LANES].setdefault(LANES.key_of(lane), lane)

    @property
    def schema_version(self) -> int:
        """There is no schema."""
        return 0

    async def migration_status(self) -> list[MigrationStatus]:
        """There is no schema."""
        return []

    async def migrate(self) -> list[str]:
        """There is no schema."""
        return []

    def migration_sql(self) -> str:
        """There is no schema."""
        return ""

    async def facts(self) -> dict[str, Any]:
        """Facts for doctor."""
        return {"executions": len(self._tables.executions)}

    async def schema_differences(self) -> list[tuple[str, str]]:
        """There is no schema."""
        return []

    def measure(self, waited: Callable[[float], None]) -> None:
        """There is no pool."""

    async def upkeep(self) -> list[tuple[str, str, str]]:
        """There is nothing to warn about."""
        return []

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored."""
        with self._one_at_a_time:
            return self._dumped()

    def _dumped(self) -> dict[str, list[Any]]:
        tables = self._tables
        small = tables.rows.items()
        return {
            "executions": sorted(tables.executions.values(), key=lambda e: e.execution_id),
            "bodies": [tables.bodies[key] for key in sorted(tables.bodies)],
            "attempts": [a for key in sorted(tables.attempts) for a in tables.attempts[key]],
            **{table.name: [rows[key] for key in sorted(rows)] for table, rows in small},
            **{log.dumped_as: [event for _, event in tables.logs[log]] for log in LOGS},
        }
