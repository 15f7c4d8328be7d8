"""The protocol of a store. One suite proves the conformance of every store.

A transaction is handed to a coroutine that awaits nothing but the transaction's own methods. On
Postgres those really wait; on SQLite the whole coroutine runs inside the writer thread; in memory
it runs at once. So each operation is written once and no store knows any rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from flowfabric.errors import InvalidInput
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution, IdempotencyRecord
from flowfabric.model.flow_graph import EdgeFold, Folding, MemberFilter, MemberFold
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route
from flowfabric.model.state import BlockingReason, StateVector
from flowfabric.stores.execution_columns import keeps_cold, keeps_most, keeps_taken
from flowfabric.stores.indexes import Search
from flowfabric.stores.logs import LOG_OF, LOGS, Log, LogCount, LogQuery, LogTally, Position
from flowfabric.stores.tables import KEYS, Key, Table

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class StoreConflict(Exception):
    """Transactions collided (serialization, deadlock, busy, a key taken): nothing was written, run
    the whole transaction again.

    `about`: the records, or at least the tables, over which they collided, as far as the store can
    tell.
    """

    def __init__(self, detail: str, *, about: Sequence[str] = ()) -> None:
        named = f"{detail} ({', '.join(about)})" if about else detail
        super().__init__(named)
        self.about = tuple(about)


class Corrupt(Record, frozen=True):
    """A row that cannot be decoded. It takes the place of the record."""

    execution_id: str
    detail: str


class Standing(Record, frozen=True):
    """Executions of one route in one state."""

    route: Route
    state: StateVector
    count: int
    since: int  # when the first of them came into it


class RowChanges:
    """The writes of one transaction to a small table, each in the order of the keys."""

    __slots__ = ("alike", "deleted", "fields", "inserted", "updated")

    def __init__(self) -> None:
        self.inserted: list[Any] = []
        # Rows that all get the same values: field by field, and the keys. Disjoint from `updated`
        # and `inserted`.
        self.alike: list[tuple[dict[str, Any], list[Key]]] = []
        self.updated: list[Any] = []
        # the fields in which updated rows differ from the stored ones
        self.fields: set[str] = set()
        self.deleted: list[Key] = []

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.alike or self.deleted)


class Changes:
    """Everything one transaction writes: the last image of each record, and appended rows."""

    __slots__ = (
        "attempts",
        "cold",
        "created",
        "freed",
        "logged",
        "payloads",
        "rebound",
        "rerouted",
        "retagged",
        "rows",
        "taken",
        "updated",
    )

    def __init__(self) -> None:
        self.created: dict[str, tuple[Execution, Body]] = {}
        self.updated: dict[str, Execution] = {}
        self.taken: set[str] = set()  # ids among them with changed taken fields
        self.cold: set[str] = set()  # ids among them with changed cold fields
        # instead, ids with only those changed that change when dependencies release an execution: a
        # wide cascade does so to thousands
        self.freed: set[str] = set()
        self.retagged: set[str] = set()  # ids with tags changed after creation
        self.rebound: set[str] = set()  # ids with bounds changed after creation
        self.rerouted: set[str] = set()  # ids with a route changed after creation
        self.attempts: list[Attempt] = []
        # events by log
        self.logged: defaultdict[Log[Any], list[Any]] = defaultdict(list)
        # inputs that dependencies replaced: (payload, encoding)
        self.payloads: dict[str, tuple[bytes, str | None]] = {}
        self.rows: dict[Table[Any], RowChanges] = {}

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

    def update(self, before: Execution, after: Execution) -> None:
        """Write the next image of an execution; fields that most transitions leave alone are
        compared with those of the last."""
        key = after.execution_id
        self.updated[key] = after
        if not keeps_cold(before, after):
            (self.freed if keeps_most(before, after) else self.cold).add(key)
        if not keeps_taken(before, after):
            self.taken.add(key)

    def log(self, event: Record) -> None:
        """Append an event to its log."""
        self.logged[LOG_OF[type(event)]].append(event)

    def appended(self) -> list[tuple[Log[Any], list[Any]]]:
        """Logs with new events. Always in one order: a store makes one statement of several, and
        keeps those it has prepared."""
        return [(log, self.logged[log]) for log in LOGS if log in self.logged]


class ListFilter(Record, frozen=True, kw_only=True):
    """The filter of a listing. Empty parts do not filter."""

    routes: tuple[Route, ...] | None = None  # namespace, lane and kind, resolved by the catalog
    states: tuple[str, ...] = ()
    tag: tuple[str, str] | None = None
    created_after: int | None = None  # inclusive
    created_before: int | None = None  # exclusive
    partition: int | None = None
    before: tuple[int, str] | None = None  # the cursor: (created_at, uuid) of the last one shown
    reason: BlockingReason | None = None  # of those that are in these states
    is_oldest_first: bool = False  # then the cursor is followed by what was created later
    counted_to: int | None = None  # a count need not know of more


class Wanted:
    """Everything a batch names before its first command is decided."""

    __slots__ = ("catalog", "executions", "is_only_held", "keys", "rows", "searches")

    def __init__(self) -> None:
        self.catalog = False
        self.executions: Sequence[str] = ()  # held
        self.is_only_held = False  # nothing but new entries of their journals is written
        self.keys: Sequence[tuple[str, str]] = ()  # idempotency keys, held
        # Rows by their keys, not held: read when the executions are.
        self.rows: dict[Table[Any], Sequence[Key]] = {}
        self.searches: set[Search[Any]] = set()  # the same; equal ones are made once


class Found:
    """What a look has found."""

    __slots__ = ("catalog", "executions", "keys", "rows", "searches")

    def __init__(self) -> None:
        self.catalog: Catalog | None = None
        self.executions: dict[str, Execution | Corrupt] = {}
        self.keys: dict[Key, IdempotencyRecord] = {}
        self.rows: dict[Table[Any], dict[Key, Any]] = {}
        self.searches: dict[Search[Any], list[Any]] = {}


async def look_in_order(tx: Transaction, wanted: Wanted) -> Found:
    """A look that asks kind by kind: what is held comes first, so that what is only read belongs to
    the held state."""
    found = Found()
    if wanted.catalog:
        found.catalog = await tx.catalog()
    if wanted.executions:
        found.executions = await tx.load(wanted.executions)
    await look_further(tx, wanted, found)
    return found


async def look_further(tx: Transaction, wanted: Wanted, found: Found) -> None:
    """The part of a look behind the catalog and the executions."""
    if wanted.keys:
        found.keys = await tx.rows(KEYS, wanted.keys)
    for table, keys in wanted.rows.items():
        found.rows[table] = await tx.peek_rows(table, keys) if keys else {}
    for search in wanted.searches:
        found.searches[search] = await tx.search(search)


def within(
    found: Iterable[tuple[Execution, Body]], bytes_max: int | None
) -> list[tuple[Execution, Body]]:
    """Up to the one with which the inputs reach `bytes_max`; nothing behind it is read."""
    if bytes_max is None:
        return list(found)
    taken, left = [], bytes_max
    for pair in found:
        taken.append(pair)
        left -= len(pair[1].payload)
        if left <= 0:
            break
    return taken


class Reader(Protocol):
    """Reads of the committed state; nothing is locked."""

    @property
    def now(self) -> int:
        """The store's clock; in a transaction the same throughout. It is read along with the
        catalog or with executions: ask for one of them first."""
        ...

    async def catalog(self) -> Catalog:
        """The current routes and lanes."""
        ...

    async def get(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """The named executions that exist."""
        ...

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        """The parts written at creation."""
        ...

    async def attempts(self, execution_id: str) -> list[Attempt]:
        """The ended attempts, oldest first, without results."""
        ...

    async def result(self, execution_id: str, attempt_index: int) -> Attempt | None:
        """One ended attempt with its result."""
        ...

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        """The successful attempts of executions, with their results."""
        ...

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        """The sizes in bytes of the results of successful executions; those without a result are
        left out."""
        ...

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """Rows by their keys, or by equally long prefixes of keys."""
        ...

    async def search(self, search: Search[R]) -> list[R]:
        """Rows, or executions, by a declared index."""
        ...

    async def search_keys(self, search: Search[R]) -> list[Key]:
        """The keys of what a search finds, decodable or not; of an execution its id."""
        ...

    async def list_executions(self, wanted: ListFilter, limit: int) -> list[Execution | Corrupt]:
        """Executions, newest first."""
        ...

    async def count_listed(self, wanted: ListFilter) -> int:
        """How many executions a listing has."""
        ...

    async def ids_between(self, first: str, last: str, limit: int) -> list[str]:
        """Ids with UUIDs between these two, newest first."""
        ...

    async def ids_ending(self, ending: str, among: int, limit: int) -> list[str]:
        """Ids among the newest with UUIDs that end with this text, newest first."""
        ...

    async def count(self) -> list[tuple[Route, str, int]]:
        """How many executions per route and public state."""
        ...

    async def standing(self, most: int) -> list[Standing]:
        """The executions that wait for a worker, run, are suspended, or have no worker that could
        run them: by route and state, of each of the four at most so many."""
        ...

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        """How many members of a flow are in each public state."""
        ...

    async def fold_members(self, folding: Folding) -> list[MemberFold]:
        """How many members of a flow are alike, by level. They are counted where they are kept: a
        row is read for each fold, not for each member."""
        ...

    async def fold_edges(self, folding: Folding) -> list[EdgeFold]:
        """How many edges of a flow lead from members that are alike to members that are alike; the
        most first."""
        ...

    async def find_members(self, wanted: MemberFilter, limit: int) -> list[str]:
        """The ids of the members of a flow that fit, in their order."""
        ...

    async def next_due(self) -> int | None:
        """The earliest time at which something is due or to be purged."""
        ...

    async def read_log(self, log: Log[R], query: LogQuery) -> list[tuple[Position, R]]:
        """Events with their positions, in their order. Events that cannot be decoded are left out,
        and with a limit later ones fill the page."""
        ...

    async def read_about(self, log: Log[R], subject: str, limit: int) -> list[tuple[Position, R]]:
        """The events of a log about one subject that its index has, in their order."""
        ...

    async def log_ends(self) -> dict[Log[Any], Position]:
        """For each log the position up to which no further event can appear, all as of one
        instant: a transaction that is still open may write behind it, never before."""
        ...

    async def log_place(
        self, log: Log[Any], after: Position, until: Position, count: int
    ) -> Position:
        """A place that at most so many entries lie behind another, as far as the store can tell at
        little cost; `until` where there are not as many up to there."""
        ...

    async def count_log(self, log: Log[Any], tally: LogTally) -> list[LogCount]:
        """How many entries of a log are alike; those that cannot be read are left out."""
        ...

    async def log_front(self) -> int:
        """A number such that every transaction that has not begun to write yet draws later ones. 0
        where commits are serial: none is under way but this one."""
        ...

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        """Differences between indexes and records, as (index, difference); `quick`: only those
        found without reading every row."""
        ...

    async def odd_values(self) -> list[tuple[str, str]]:
        """Rows with values that no engine writes, as (row, defect)."""
        ...


class Transaction(Reader, Protocol):
    """One atomic step. What it locks stays held until its end.

    *Held* means: no other transaction commits a change to the record before this one does, or this
    one does not commit. A store with locks locks the row. A store without them checks at the commit
    that the version of every held record is the one that was read, and moves it, whether the record
    was changed or not: a held record is the lock of rows that are read without being held.
    """

    async def look(self, wanted: Wanted) -> Found:
        """Everything a batch names, in as few trips as the store can."""
        ...

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """The named executions that exist, held, locked in the order of the keys."""
        ...

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """As `load`, but skips rows locked elsewhere; never waits."""
        ...

    async def rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """As `peek_rows`, held, locked in the given order. An absent one cannot be locked: rivals
        collide when they insert it."""
        ...

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        """Waiting executions of these routes without a live grant, best first, held; rows locked
        elsewhere are skipped. Stops after the one with which the inputs reach `bytes_max`; those
        behind it are not read."""
        ...

    async def save(self, changes: Changes) -> None:
        """Write; later calls in this transaction see it."""
        ...

    async def purge(self, until: int, limit: int) -> int:
        """Delete executions past their purge time with everything that belongs to them."""
        ...

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        """Delete expired rows of the swept tables."""
        ...

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        """Delete events of a log from before an instant, oldest first; returns their positions."""
        ...


class Store(Protocol):
    """Keeps executions."""

    @property
    def family(self) -> str:
        """memory, sqlite or postgres."""
        ...

    @property
    def commits_at_once(self) -> bool:
        """Whether several transactions of one process can be under way at once."""
        ...

    @property
    def can_join(self) -> bool:
        """Whether it can work inside a caller's own transaction."""
        ...

    @property
    def partitions(self) -> int:
        """How many partitions ids are spread over; fixed at installation."""
        ...

    @property
    def schema_version(self) -> int:
        """The number of its schema, once it is open; 0 without one."""
        ...

    @property
    def hints(self) -> Hints:
        """Wake-up hints of this store."""
        ...

    def again(self) -> Store:
        """The same data for another event loop; not connected yet, and without hints."""
        ...

    async def open(self, *, migrate: bool) -> None:
        """Connect; migrate, or refuse an unknown or older schema and say what to do."""
        ...

    async def close(self) -> None:
        """Release every resource."""
        ...

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run one transaction once. Raises StoreConflict when it should be run again."""
        ...

    async def join(
        self,
        connection: object,
        work: Callable[[Transaction], Awaitable[tuple[T, Mapping[str, int]]]],
    ) -> T:
        """Work inside a transaction of the caller's own, which the caller commits; the topics it
        returns beside its result are published then. A store without such transactions refuses."""
        ...

    async def shares(self, connection: object) -> bool:
        """Whether a connection with an open transaction leads to the same tables, so that it can be
        joined."""
        ...

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Run reads."""
        ...

    async def intern_routes(self, routes: Sequence[Route]) -> None:
        """Register routes and lanes in a transaction of their own: they outlive any rollback."""
        ...

    async def migration_status(self) -> list[MigrationStatus]:
        """Every known migration and whether it is applied."""
        ...

    async def migrate(self) -> list[str]:
        """Apply missing migrations; returns their names."""
        ...

    def migration_sql(self) -> str:
        """The whole schema as SQL text."""
        ...

    async def facts(self) -> dict[str, Any]:
        """Facts about the store for doctor."""
        ...

    async def schema_differences(self) -> list[tuple[str, str]]:
        """Differences between the real schema and the declared one, as (part, difference)."""
        ...

    def measure(self, waited: Callable[[float], None]) -> None:
        """Tell how many seconds each use of a pooled connection waited for one. A store without a
        pool has nothing to tell."""
        ...

    async def upkeep(self) -> list[tuple[str, str, str]]:
        """Warnings for an operator of the database, as (code, subject, text)."""
        ...

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order: the oracle of parity tests and audits."""
        ...


def refuse_join(family: str) -> InvalidInput:
    """The error of a store that cannot join a caller's transaction."""
    return InvalidInput(
        f"connection: {family} cannot join a caller's transaction", field="connection"
    )


EVERY_END: Final = "done:*"  # executions ended
EVERY_FLOW_END: Final = "flow:*"  # flows ended
EVERY_LANE: Final = "lane:*"  # work became ready
EVERY_STREAM: Final = "stream:*"  # streams grew
# The topics of a message that cannot name them all.
EVERYBODY: Final[Mapping[str, int]] = {
    EVERY_END: 1,
    EVERY_FLOW_END: 1,
    EVERY_LANE: 1,
    EVERY_STREAM: 1,
}


class Hints(Protocol):
    """Wake-ups that shorten a wait. Losing all of them costs latency, never correctness."""

    def subscribe(self, callback: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call back with {topic: count} when something may have happened; returns a function that
        unsubscribes."""
        ...

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell listeners in this process and, as far as the store can, in others."""
        ...
