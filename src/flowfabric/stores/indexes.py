"""Every index, declared once: the rows that belong to it, and their order.

SQL stores hold each as an index of the schema (a test compares the two, and `ff doctor` audits them
all); the memory store and the overlay of a transaction's pending writes evaluate the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from flowfabric.model.execution import Execution
from flowfabric.model.record import Record
from flowfabric.model.state import ID_OF_VECTOR
from flowfabric.model.suspension import WaitpointRow
from flowfabric.stores.logs import LOG_INDEXES, LogIndex
from flowfabric.stores.tables import (
    ADMISSIONS,
    ASKERS,
    ASKS,
    AUDIT,
    DEAD,
    EDGES,
    EDGES_AHEAD,
    FAILURE_GROUPS,
    FAIR,
    FLOWS,
    LEDGER,
    MEMBERS,
    SCHEDULES,
    SIGNALS,
    TABLES,
    WAITPOINTS,
    WATCHES,
    Key,
    Table,
)

R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=Record)

EXECUTIONS: Final = "ff_exec_core"


def uuid_of(execution_id: str) -> str:
    """The part of an id that orders and keys rows."""
    return execution_id[-36:]


def ready_order(execution: Execution) -> tuple[int, str]:
    """Best first."""
    return (execution.ready_rank, uuid_of(execution.execution_id))


def newest_first(execution: Execution) -> tuple[int, str]:
    """The order of listings, to be reversed."""
    return (execution.created_at, uuid_of(execution.execution_id))


class Index(Generic[R]):
    """Rows of a table in the order of some columns; the rest of their key breaks ties.

    A search gives values for the first columns, and gets the rows in the order of the others.
    `present`: only rows with a value in this column belong. `also`: columns that the schema adds
    behind these, to filter by. `is_total`: the columns alone identify a row.
    """

    def __init__(
        self,
        name: str,
        table: Table[R],
        *columns: str,
        present: str | None = None,
        also: tuple[str, ...] = (),
        is_total: bool = False,
    ) -> None:
        self.name = name
        self.table = table
        self.on = table.name
        self.columns = columns
        self.also = also
        ties = () if is_total else table.key_columns
        self.order = (*columns, *(each for each in ties if each not in columns))
        self.where = None if present is None else f"{present} IS NOT NULL"
        self._present = None if present is None else attrgetter(present)
        self._place = _tuple_of(self.order)

    def belongs(self, record: R) -> bool:
        """Whether the record is in the index."""
        return self._present is None or self._present(record) is not None

    def place(self, record: R) -> Key:
        """The values by which the record stands in the index."""
        return self._place(record)

    def value(self, record: R, column: str) -> Any:
        """The value of a column, as a search compares it."""
        return getattr(record, column)

    def reading(self, part: Table[P]) -> Index[P]:
        """The same index, of whose rows a search reads only some columns."""
        copy: Index[P] = Index(self.name, part, *self.columns, also=self.also)
        copy.order, copy.where = self.order, self.where
        copy._place = _tuple_of(self.order)
        return copy

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name or self.on})"


class ExecutionIndex(Index[Execution]):
    """Executions in an order. Columns are those of the hot row, or of `on`."""

    def __init__(
        self,
        name: str,
        *columns: str,
        where: str | None = None,
        belongs: Callable[[Execution], bool] | None = None,
        on: str = EXECUTIONS,
    ) -> None:
        self.name = name
        self.on = on
        self.columns = self.order = columns
        self.also = ()
        self.where = where
        self._belongs = belongs

    def belongs(self, record: Execution) -> bool:
        """Whether the execution is in the index."""
        return self._belongs is None or self._belongs(record)

    def place(self, record: Execution) -> Key:
        """The values by which the execution stands in the index."""
        return tuple([self.value(record, column) for column in self.order])

    def value(self, record: Execution, column: str) -> Any:
        """The value of a column; a route stands for its number."""
        if column == "execution_id":
            return uuid_of(record.execution_id)
        if column == "route_id":
            return record.route
        if column == "state_id":
            return ID_OF_VECTOR[record.state]
        return getattr(record, column)


def _tuple_of(names: tuple[str, ...]) -> Callable[[Any], Key]:
    get = attrgetter(*names)
    if len(names) > 1:
        return get
    return lambda record: (get(record),)


class Search(Record, Generic[R], frozen=True):
    """Rows by an index: equal values in its first columns, then in its order.

    With several prefixes, of one length, their rows are merged. Equal searches are equal values.
    """

    index: Index[R]
    prefixes: tuple[Key, ...] = ((),)
    after: Key | None = None  # the place of the last row seen, in the columns behind the prefix
    until: int | None = None  # the last value of the first column behind the prefix
    limit: int | None = None
    only: tuple[tuple[str, Any], ...] = ()  # further columns, and the value each must have
    is_backwards: bool = False
    # Lock the rows until the end of the transaction; rows locked elsewhere are left out.
    is_held: bool = False
    # With a limit: rows that cannot be decoded are left out, and later ones fill the page; or the
    # search fails.
    # Executions that cannot be decoded are always left out.
    skips_corrupt: bool = False

    @property
    def size(self) -> int:
        """How many columns the prefixes give."""
        return len(self.prefixes[0]) if self.prefixes else 0

    def passes(self, record: R) -> bool:
        """Whether the filter beside the index lets a record pass."""
        index = self.index
        return all(index.value(record, column) == value for column, value in self.only)

    def finds(self, record: R) -> bool:
        """Whether a record is among the rows, whatever the limit."""
        index = self.index
        if not index.belongs(record):
            return False
        place, size = index.place(record), self.size
        if place[:size] not in self.prefixes:
            return False
        rest = place[size:]
        if self.until is not None and (rest[0] is None or rest[0] > self.until):
            return False
        after = self.after
        if after is not None and (rest == after or (rest < after) is not self.is_backwards):
            return False
        return self.passes(record)

    def sorted(self, records: Iterable[R]) -> list[R]:
        """Records in the order of the search, cut to its limit."""
        index, size = self.index, self.size
        found = sorted(
            records, key=lambda each: index.place(each)[size:], reverse=self.is_backwards
        )
        return found if self.limit is None else found[: self.limit]


@cache
def by_key(table: Table[R]) -> Index[R]:
    """The order of a table's keys."""
    return Index("", table, *table.key_columns)


def _due(table: Table[R], column: str) -> Index[R]:
    is_partial = any(each.name == column and each.is_optional for each in table.columns)
    ending = "due" if column == "due_at" else "expiry"
    return Index(f"{table.name}_{ending}", table, column, present=column if is_partial else None)


# Executions. The numbers are those of state vectors (`model/state.py`).
READY: Final = ExecutionIndex(
    "ff_exec_ready",
    *("route_id", "ready_rank", "execution_id"),
    where="state_id < 10",
    belongs=lambda each: each.is_waiting,
)
DUE: Final = ExecutionIndex(
    "ff_exec_due",
    *("due_at", "execution_id"),
    where="due_at IS NOT NULL",
    belongs=lambda each: each.due_at is not None,
)
PURGE: Final = ExecutionIndex(
    "ff_exec_purge",
    *("purge_at", "execution_id"),
    where="purge_at IS NOT NULL",
    belongs=lambda each: each.purge_at is not None,
)
BLOCKED: Final = ExecutionIndex(
    "ff_exec_blocked",
    *("blocked_on", "ready_rank", "execution_id"),
    where="blocked_on IS NOT NULL",
    belongs=lambda each: each.blocked_on is not None,
)
# Listings: by state, by creation, by route, by tag. Listings merge pages of these themselves
# (`listing.py`).
IN_STATE: Final = ExecutionIndex(
    "ff_exec_state",
    *("state_id", "created_at", "execution_id"),
    # SQLite builds a list of more than two numbers anew for every row that is written.
    where="state_id <> 1 AND state_id <> 60 AND state_id <> 80 AND state_id <> 81",
)
_WAITING: Final = ExecutionIndex(
    "ff_exec_waiting", "created_at", "execution_id", where="state_id = 1"
)
_RUNNING: Final = ExecutionIndex(
    "ff_exec_running", "created_at", "execution_id", where="state_id = 60"
)
_CREATED: Final = ExecutionIndex(
    "ff_exec_body_created", "created_at", "execution_id", on="ff_exec_body"
)
_ROUTE: Final = ExecutionIndex(
    "ff_exec_body_route", "route_id", "created_at", "execution_id", on="ff_exec_body"
)
_TAG: Final = ExecutionIndex(
    "ff_exec_tag_value", "tag_key", "tag_value", "execution_id", on="ff_exec_tag"
)

# Flows
FLOWS_OF_NAMESPACE: Final = Index("ff_flow_core_namespace", FLOWS, "namespace", "flow_id")
FLOWS_IN_STATE: Final = Index("ff_flow_core_state", FLOWS, "public_flow_state", "flow_id")
FLOWS_OF_BOTH: Final = Index(
    "ff_flow_core_both", FLOWS, "namespace", "public_flow_state", "flow_id"
)
CHILDREN: Final = Index("ff_flow_member_parent", MEMBERS, "parent_id", present="parent_id")
EDGES_FROM: Final = Index(
    "ff_edge_upstream", EDGES, "upstream_execution_id", "edge_id", is_total=True
)
EDGES_TO: Final = Index(
    "ff_edge_downstream", EDGES, "downstream_execution_id", "edge_id", is_total=True
)
EDGES_AHEAD_FROM: Final = EDGES_FROM.reading(EDGES_AHEAD)
EDGES_AHEAD_TO: Final = EDGES_TO.reading(EDGES_AHEAD)

# Dead letters that are not dismissed
DEAD_LETTERS: Final = Index(
    "ff_dead_letter_open", DEAD, "namespace", "open_at", present="open_at", also=("execution_id",)
)
DEAD_OF_KIND: Final = Index(
    "ff_dead_letter_kind",
    DEAD,
    *("namespace", "execution_kind", "open_at"),
    present="open_at",
    also=("execution_id",),
)
DEAD_OF_CATEGORY: Final = Index(
    "ff_dead_letter_category",
    DEAD,
    *("namespace", "category", "open_at"),
    present="open_at",
    also=("execution_id",),
)

DEAD_OF_GROUP: Final = Index(
    "ff_dead_letter_fingerprint",
    DEAD,
    *("namespace", "fingerprint", "open_at"),
    present="open_at",
    also=("execution_id",),
)
# Groups of failures, by the latest of each.
FAILURES_SEEN: Final = Index(
    "ff_failure_group_seen", FAILURE_GROUPS, "namespace", "last_seen_at", "fingerprint"
)

# Limits
LEDGER_OF: Final = Index("ff_budget_usage_by_exec_execution", LEDGER, "execution_id")
ASKS_OPEN: Final = Index("ff_budget_ask_open", ASKS, "open_since", present="open_since")
ASKERS_OF: Final = Index("ff_budget_asker_execution", ASKERS, "execution_id")
WINDOW: Final = Index(
    "ff_quota_admitted_window",
    ADMISSIONS,
    *("quota_policy_id", "dimension", "counted_at", "execution_id"),
    present="counted_at",
)
ADMISSIONS_OF: Final = Index("ff_quota_admitted_execution", ADMISSIONS, "execution_id")

# Waits
WAITPOINTS_OF: Final = Index(
    "ff_waitpoint_execution", WAITPOINTS, "execution_id", also=("closed_at",)
)
SIGNALS_OF: Final = Index("ff_signal_execution", SIGNALS, "execution_id")
WATCHES_OF: Final = Index("ff_watch_watcher", WATCHES, "watcher_id", "waitpoint_id")

# Fair keys: the clock of a queue, and the last of a key.
FAIR_TAGS: Final = Index(
    "ff_fair_tag",
    FAIR,
    *("namespace", "lane_id", "priority", "phase", "tag"),
    also=("execution_id",),
)
FAIR_KEYS: Final = Index(
    "ff_fair_key",
    FAIR,
    *("namespace", "lane_id", "priority", "fair_key", "finish"),
    also=("execution_id",),
)

# The audit trail, by time
AUDIT_BY_ACTOR: Final = Index("ff_audit_actor", AUDIT, "actor", "occurred_at", also=("audit_id",))
AUDIT_BY_ACTION: Final = Index(
    "ff_audit_action", AUDIT, "action", "occurred_at", also=("audit_id",)
)
AUDIT_BY_SUBJECT: Final = Index(
    "ff_audit_subject", AUDIT, "subject", "occurred_at", also=("audit_id",)
)
AUDIT_BY_NAMESPACE: Final = Index(
    "ff_audit_namespace", AUDIT, "namespace", "occurred_at", also=("audit_id",)
)

# Schedules
SCHEDULES_OF_ORIGIN: Final = Index(
    "ff_schedule_origin", SCHEDULES, "namespace", "origin", present="origin"
)

# Rows by the time at which the loop acts on them, or at which they expire.
DUE_OF: Final[dict[Table[Any], Index[Any]]] = {
    table: _due(table, table.due) for table in TABLES if table.due is not None
}
INDEXES: Final[tuple[Index[Any], ...]] = (
    READY,
    DUE,
    PURGE,
    BLOCKED,
    IN_STATE,
    _WAITING,
    _RUNNING,
    _CREATED,
    _ROUTE,
    _TAG,
    FLOWS_OF_NAMESPACE,
    FLOWS_IN_STATE,
    FLOWS_OF_BOTH,
    CHILDREN,
    EDGES_FROM,
    EDGES_TO,
    LEDGER_OF,
    ASKS_OPEN,
    ASKERS_OF,
    WINDOW,
    ADMISSIONS_OF,
    WAITPOINTS_OF,
    SIGNALS_OF,
    WATCHES_OF,
    DEAD_LETTERS,
    DEAD_OF_KIND,
    DEAD_OF_CATEGORY,
    DEAD_OF_GROUP,
    FAILURES_SEEN,
    FAIR_TAGS,
    FAIR_KEYS,
    SCHEDULES_OF_ORIGIN,
    AUDIT_BY_ACTOR,
    AUDIT_BY_ACTION,
    AUDIT_BY_SUBJECT,
    AUDIT_BY_NAMESPACE,
    *DUE_OF.values(),
)


# Every index of the schema that is no constraint.
EVERY_INDEX: Final[tuple[Index[Any] | LogIndex, ...]] = (*INDEXES, *LOG_INDEXES)


def open_waitpoints(execution_ids: Sequence[str]) -> Search[WaitpointRow]:
    """The waitpoints of executions that are not closed."""
    owners = tuple((each,) for each in execution_ids)
    return Search(WAITPOINTS_OF, owners, only=(("closed_at", None),))


def due_search(
    table: Table[R], until: int, limit: int | None = None, after: Key | None = None
) -> Search[R]:
    """Rows of a table that are due, earliest first."""
    return Search(DUE_OF[table], until=until, limit=limit, after=after)
