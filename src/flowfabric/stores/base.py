"""The protocol of a store. One suite proves the conformance of every store.

A transaction is handed to a coroutine that awaits nothing but the transaction's own methods. On
Postgres those really wait; on SQLite the whole coroutine runs inside the writer thread; in memory
it runs at once. So each operation is written once and no store knows any rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.record import Record
from flowfabric.model.route import Catalog, Route
from flowfabric.stores.logs import LOG_OF, LOGS, Log
from flowfabric.stores.tables import Key, Table

T = TypeVar("T")
R = TypeVar("R", bound=Record)


class StoreConflict(Exception):
    """Transactions collided (serialization, deadlock, busy, a key taken): nothing was written, run
    the whole transaction again."""


class Corrupt(Record, frozen=True):
    """A row that cannot be decoded. It takes the place of the record."""

    execution_id: str
    detail: str


# The fields of an execution that change now and then. A store writes them only when they did: most
# transitions (claim, renew, complete) touch none, and columns are the cost of a row write.
COLD_FIELDS: Final = (
    "priority",
    "eligible_at",
    "blocking_detail",
    "flow_id",
    "reclaim_at",
    "attempt_spent_ms",
    "next_attempt_type",
    "retry_count",
    "replay_count",
    "reclaim_count",
    "deadline_at",
    "failure_reason",
    "failure_category",
    "cancellation_reason",
    "cancelled_by",
    "progress_pct",
    "progress_message",
    "progress_updated_at",
    "blocked_on",
    "blocked_until",
    "suspension_id",
    "signal_count",
    "signal_bytes",
    "side_holds",
    "open_group",
    "grant",
)
cold_of: Final = attrgetter(*COLD_FIELDS)
# Of these, the fields that change when dependencies release an execution: a wide cascade does so to
# thousands.
FREED_FIELDS: Final = ("blocking_detail", "open_group")
# The fields that change when a lease is taken and stay until the next one: renewals and ends keep
# them.
TAKEN_FIELDS: Final = (
    "attempt_index",
    "attempt_type",
    "attempt_started_at",
    "total_attempt_count",
    "started_at",
    "lease_id",
    "attempt_id",
)


def _keeps(fields: Sequence[str]) -> Callable[[Execution, Execution], bool]:
    """A test whether a transition left fields alone: a copy shares the values it does not change.

    Spelled out from the list, one comparison per field: each transition asks, and collecting the
    values first takes three times as long.
    """
    source = " and ".join(f"before.{name} is after.{name}" for name in fields)
    test: Callable[[Execution, Execution], bool] = eval(f"lambda before, after: {source}")  # noqa: S307
    return test


keeps_cold: Final = _keeps(COLD_FIELDS)
keeps_taken: Final = _keeps(TAKEN_FIELDS)
keeps_most: Final = _keeps([name for name in COLD_FIELDS if name not in FREED_FIELDS])


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
        "retagged",
        "rows",
        "taken",
        "updated",
    )

    def __init__(self) -> None:
        self.created: dict[str, tuple[Execution, Body]] = {}
        self.updated: dict[str, Execution] = {}
        self.cold: set[str] = set()  # ids among them with changed cold fields
        self.taken: set[str] = set()  # ids among them with changed taken fields
        # ids among them with only freed ones of the cold fields changed
        self.freed: set[str] = set()
        self.retagged: set[str] = set()  # ids with tags changed after creation
        self.rebound: set[str] = set()  # ids with bounds changed after creation
        self.attempts: list[Attempt] = []
        # events by log
        self.logged: defaultdict[Log[Any], list[Any]] = defaultdict(list)
        # inputs that dependencies replaced: (payload, encoding)
        self.payloads: dict[str, tuple[bytes, str | None]] = {}
        self.rows: dict[Table[Any], RowChanges] = {}

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in self.__slots__)

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


class Transaction(Protocol):
    """One atomic step. Rows returned by `load`, `ready` and `due` stay locked until its end."""

    @property
    def now(self) -> int:
        """The store's clock, the same throughout the transaction."""
        ...

    async def catalog(self) -> Catalog:
        """The current routes and lanes."""
        ...

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """The named executions that exist, locked in the order of the keys."""
        ...

    async def load_free(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """As `load`, but skips rows locked elsewhere; never waits."""
        ...

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        """The parts written at creation."""
        ...

    async def results(self, ids: Sequence[str]) -> dict[str, Attempt]:
        """The successful attempts of executions, with their results, not locked."""
        ...

    async def result_sizes(self, ids: Sequence[str]) -> dict[str, int]:
        """The sizes in bytes of the results of successful executions; those without a result are
        left out."""
        ...

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        """Waiting executions of these routes without a live grant, best first, locked; rows locked
        elsewhere are skipped. Stops after the one with which the inputs reach `bytes_max`; those
        behind it are not read."""
        ...

    async def due(self, until: int, limit: int) -> list[Execution]:
        """Executions that are due, earliest first, locked; rows locked elsewhere are skipped."""
        ...

    # --- small tables --------------------------------------------------------------------------

    async def rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """Rows by their keys, or by equally long prefixes of keys, locked in the given order. An
        absent one cannot be locked: rivals collide when they insert it."""
        ...

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """As `rows`, not locked: the committed state."""
        ...

    async def rows_of(
        self, table: Table[R], execution_ids: Sequence[str], *, is_open: bool = False
    ) -> list[R]:
        """Rows that belong to executions, not locked; all, or those without a `closed_at`."""
        ...

    async def list_rows(self, table: Table[R], after: Key | None, limit: int) -> list[R]:
        """A table's rows by key, after the given one, not locked."""
        ...

    async def rows_by(
        self,
        table: Table[R],
        column: str,
        values: Sequence[str],
        *,
        only: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[R]:
        """Rows with one of these values in an indexed column, by the last part of their key, not
        locked; `only`: and with this value in that column."""
        ...

    async def oldest_rows(self, table: Table[R], owner: Key, limit: int) -> list[R]:
        """One owner's rows by the table's ordering column, oldest first; those without are left
        out. A transaction that may change them has locked their owner."""
        ...

    async def due_keys(self, table: Table[R], until: int, limit: int) -> list[Key]:
        """Keys of due rows, earliest first, not locked."""
        ...

    async def blocked(self, blocked_on: str, limit: int) -> list[Execution]:
        """Executions that wait for this, best first, locked; rows locked elsewhere are skipped."""
        ...

    async def is_blocked(self, blocked_on: str) -> bool:
        """Whether any execution waits for this."""
        ...

    async def attached(self, budget_id: str, limit: int) -> list[Execution]:
        """Executions of a budget that neither run nor have ended, locked; rows locked elsewhere are
        skipped."""
        ...

    async def save(self, changes: Changes) -> None:
        """Write; later calls in this transaction see it."""
        ...

    async def purge(self, until: int, limit: int) -> int:
        """Delete executions past their purge time with everything that belongs to them."""
        ...

    async def sweep(self, *, keys_until: int, events_until: int, limit: int) -> int:
        """Delete expired rows of the swept tables, and old events."""
        ...

    async def owned_by(self, namespace: str, worker_instance_id: str, limit: int) -> list[str]:
        """Ids of executions leased by a worker instance."""
        ...


class Reader(Protocol):
    """Reads outside a transaction; nothing is locked."""

    @property
    def now(self) -> int:
        """The store's clock."""
        ...

    async def catalog(self) -> Catalog:
        """The current routes and lanes."""
        ...

    async def get(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        """The named executions that exist."""
        ...

    async def bodies(self, ids: Sequence[str]) -> dict[str, Body]:
        """The immutable parts."""
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

    async def peek_ready(self, routes: Sequence[Route], limit: int) -> list[str]:
        """Ids of waiting executions, best first."""
        ...

    async def expired_leases(
        self,
        routes: Sequence[Route] | None,
        until: int,
        after: tuple[int, str] | None,
        limit: int,
    ) -> list[Execution]:
        """Leased executions of these routes, or of all, past their expiry, by (expiry, uuid)."""
        ...

    async def next_due(self) -> int | None:
        """The earliest time at which something is due or to be purged."""
        ...

    async def due_keys(self, table: Table[R], until: int, limit: int) -> list[Key]:
        """Keys of due rows, earliest first."""
        ...

    async def peek_rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """Rows by their keys, or by equally long prefixes of keys."""
        ...

    async def list_rows(self, table: Table[R], after: Key | None, limit: int) -> list[R]:
        """A table's rows by key, after the given one."""
        ...

    async def rows_of(
        self, table: Table[R], execution_ids: Sequence[str], *, is_open: bool = False
    ) -> list[R]:
        """Rows that belong to executions; all, or those without a `closed_at`."""
        ...

    async def rows_by(
        self,
        table: Table[R],
        column: str,
        values: Sequence[str],
        *,
        only: tuple[str, str] | None = None,
        limit: int | None = None,
    ) -> list[R]:
        """Rows with one of these values in an indexed column, by key."""
        ...

    async def page_rows(
        self,
        table: Table[R],
        equal: Mapping[str, str],
        after: Key | None,
        limit: int,
        *,
        newest_first: bool,
    ) -> list[R]:
        """Rows by key, or backwards, after the given one, with these values in these columns. Rows
        that cannot be decoded are left out, and later ones fill the page."""
        ...

    async def read_log(self, log: Log[R], after: int | None, limit: int) -> list[tuple[int, R]]:
        """Events with their positions, which grow, after the given one. Events that cannot be
        decoded are left out, and later ones fill the page. Transactions that run at once commit in
        any order: an event may appear later than one behind it."""
        ...

    async def count_members(self, flow_id: str) -> list[tuple[str, int]]:
        """How many members of a flow are in each public state."""
        ...

    async def audit(self, *, quick: bool = False) -> list[tuple[str, str]]:
        """Differences between indexes and records, as (index, difference); `quick`: only those
        found without reading every row."""
        ...

    async def odd_values(self) -> list[tuple[str, str]]:
        """Rows with values that no engine writes, as (row, defect)."""
        ...


class Store(Protocol):
    """Keeps executions."""

    @property
    def family(self) -> str:
        """memory, sqlite or postgres."""
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

    async def upkeep(self) -> list[tuple[str, str, str]]:
        """Warnings for an operator of the database, as (code, subject, text)."""
        ...

    async def dump(self) -> dict[str, list[Any]]:
        """Everything stored, in a comparable order: the oracle of parity tests and audits."""
        ...


EVERY_END: Final = "done:*"  # executions ended
EVERY_FLOW_END: Final = "flow:*"  # flows ended
EVERY_LANE: Final = "lane:*"  # work became ready
# The topics of a message that cannot name them all.
EVERYBODY: Final[Mapping[str, int]] = {EVERY_END: 1, EVERY_FLOW_END: 1, EVERY_LANE: 1}


class Hints(Protocol):
    """Wake-ups that shorten a wait. Losing all of them costs latency, never correctness."""

    def subscribe(self, callback: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call back with {topic: count} when something may have happened; returns a function that
        unsubscribes."""
        ...

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell listeners in this process and, as far as the store can, in others."""
        ...
