"""Small tables, declared once: a record's fields are its columns, the first ones its key.

A rule that needs new rows declares a table here and a migration beside it; loading, locking,
writing, purging, dumping and due times then work on every store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from flowfabric.errors import Corruption, FlowFabricError, InvalidInput
from flowfabric.model.access import AccessTokenRow
from flowfabric.model.answer import AnswerRow
from flowfabric.model.ask import AllowanceRow, AskerRow, AskRow
from flowfabric.model.audit import AuditRow
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.budget import (
    AttachmentRow,
    BudgetRow,
    DedupRow,
    HoldRow,
    LedgerRow,
    ScopeRow,
    ScopeType,
    TotalRow,
    UsageRow,
)
from flowfabric.model.bulk import OperationRow
from flowfabric.model.columns import Text, held
from flowfabric.model.dead import DeadRow
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.fair import FairRow
from flowfabric.model.feed import LogMark
from flowfabric.model.flow import EdgeAhead, EdgeRow, FlowRow, MemberRow, TaskRow
from flowfabric.model.group import DeliveryRow, GroupRow
from flowfabric.model.journal import EntryMark, EntryRow, PublishedRow, RunningRow
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.model.log_lines import LineChunk, RunLogRow
from flowfabric.model.mailbox import MailboxRow, MessageKeyRow, MessageRow
from flowfabric.model.quota import AdmissionRow, GateRow, QuotaPolicy
from flowfabric.model.record import Record, from_json, to_json, values_of
from flowfabric.model.route import Lane
from flowfabric.model.schedule import ScheduleRow, TickRow
from flowfabric.model.session import SessionRow
from flowfabric.model.statistic import NOTHING, MinuteRow, RollUpRow, SeenUsage, SpendRow
from flowfabric.model.stream import FrameMark, FrameRow, StreamRow, SummaryRow
from flowfabric.model.suspension import (
    SecretRow,
    SignalKeyRow,
    SignalRow,
    SuspendKeyRow,
    SuspensionRow,
    WaitpointRow,
)
from flowfabric.model.unique import UniqueRow
from flowfabric.model.watch import WatchRow
from flowfabric.model.worker import ClaimRow, Worker
from flowfabric.stores.spoiled import SpoiledRow, intact

R = TypeVar("R", bound=Record)
Key = tuple[Any, ...]
Row = tuple[Any, ...]
Columns = Sequence[Sequence[Any]]  # rows, column by column

COLUMNWISE_FROM_ROWS: Final = 8
KEPT: Final = object()  # every value is written


class Column:
    """One column: its name, its SQL type and how its values are written and read.

    `absent`: the value of a field that is stored as no value at all.
    """

    __slots__ = (
        *("absent", "held", "is_document", "is_optional"),
        *("kind", "name", "omitted", "read", "write"),
    )

    def __init__(self, name: str, annotation: Any, *, absent: Any = None) -> None:
        self.name = name
        self.absent = absent
        self.held = held(annotation)
        plain, self.is_optional, marks = self.held
        self.omitted = None if self.is_optional else KEPT  # the value that is not written at all
        self.kind, self.write, self.read = "text", None, None
        self.is_document = False  # equal ones may differ as text: 1 and 1.0
        if plain is int:
            numbers = self.held.numbers
            self.kind = "small" if numbers is not None and numbers.are_small else "integer"
        elif plain is bytes:
            self.kind = "blob"
        elif isinstance(plain, type) and issubclass(plain, Enum):
            self.write, self.read = _word, _word_reader(plain, name)
        elif Text.WORDS in marks:
            self.write, self.read = ",".join, words_of
        elif plain is not str:
            self.write, self.read, self.is_document = _json, _json_reader(plain, name), True
            if absent is not None:
                self.write = _json_unless(absent)
                if isinstance(absent, Record):  # mostly the very same one
                    self.omitted = absent

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None

    def stored(self, values: Sequence[Any]) -> Sequence[Any]:
        """The values of many records, as stored. Mostly all are the same: then one is written."""
        if (write := self.write) is None:
            return values
        omitted, first, count = self.omitted, values[0], len(values)
        if self.absent == {} and not any(values):
            return [None] * count
        is_sure = first is omitted or not self.is_document
        if is_sure and first is values[-1] and values.count(first) == count:
            return [None if first is omitted else write(first)] * count
        if omitted is KEPT:
            return list(map(write, values))
        return [None if value is omitted else write(value) for value in values]


class Part:
    """Columns that are written together, of one kind of record.

    `sources`: the fields or properties that the columns are written from, if not those of their
    names.
    """

    def __init__(
        self, record: type[Record], columns: Sequence[Column], sources: Sequence[str] = ()
    ) -> None:
        self.columns = tuple(columns)
        self.names = names_of(columns)
        sources, fields = tuple(sources or self.names), record.__struct_fields__
        self._values = values_of if sources == fields else attrgetter(*sources)
        self._width = len(fields)
        self._sources = tuple(
            fields.index(name) if name in fields else attrgetter(name) for name in sources
        )
        # Most columns are stored as they are; only the others are converted one by one.
        self._written = tuple(
            (at, column.write, column.omitted)
            for at, column in enumerate(self.columns)
            if column.write is not None
        )

    def to_columns(self, records: Sequence[Any]) -> list[Sequence[Any]]:
        """Records as stored, column by column, many mostly in C; no columns of no records."""
        if len(records) < COLUMNWISE_FROM_ROWS:
            return list(zip(*map(self.to_row, records), strict=True))
        columns = self._taken_off(records)
        for at, *_ in self._written:
            columns[at] = self.columns[at].stored(columns[at])
        return columns

    def _taken_off(self, records: Sequence[Any]) -> list[Sequence[Any]]:
        """The values of each column. A record gives all of its values at once in less time than
        some of them by name, and a slice with a step is a column."""
        values: list[Any] = []
        for record in records:
            values += values_of(record)
        width = self._width
        return [
            values[source::width] if isinstance(source, int) else list(map(source, records))
            for source in self._sources
        ]

    def to_row(self, record: Any) -> list[Any]:
        """A record as stored."""
        values = list(self._values(record))
        for at, write, omitted in self._written:
            if (value := values[at]) is omitted:
                values[at] = None
            else:
                values[at] = write(value)
        return values


def names_of(columns: Iterable[Column]) -> tuple[str, ...]:
    """The names of columns."""
    return tuple(column.name for column in columns)


class Layout(Part, Generic[R]):
    """One kind of record as rows: a column for each field.

    `absent`: values of fields that are stored as no value at all. `derived`: properties that are
    stored beside the fields, to be searched.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        *,
        absent: Mapping[str, Any] | None = None,
        derived: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.record = record
        self.fields = record.__struct_fields__  # the columns that are read
        self.derived = tuple(derived)
        hints, absent = hints_of(record), absent or {}
        columns = [Column(each, hints[each], absent=absent.get(each)) for each in self.fields]
        columns += [property_column(record, each) for each in derived]
        super().__init__(record, columns)
        self._read = tuple(
            (at, column.read, column.absent)
            for at, column in enumerate(self.columns)
            if column.read is not None
        )

    def decoded(self, values: list[Any]) -> R:
        """The record of a row's values, which are replaced; raises an error if one is corrupt."""
        for at, read, absent in self._read:
            value = values[at]
            values[at] = absent if value is None else read(value)
        return self.record(*values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Table(Layout[R]):
    """Rows that are found by a key and change; `stored`: as a layout takes it."""

    def __init__(
        self,
        name: str,
        record: type[R],
        key: int,
        *,
        due: str | None = None,
        of_execution: bool = False,
        in_catalog: bool = False,
        is_mostly_new: bool = False,
        whole: Table[Any] | None = None,
        **stored: Any,
    ) -> None:
        super().__init__(name, record, **stored)
        self.whole: Table[Any] = whole or self  # this one reads only some columns of it
        self.key_columns = record.__struct_fields__[:key]
        # the instant at which a row is due, or expires
        self.due = due or ("due_at" if "due_at" in record.__struct_fields__ else None)
        self.has_values = len(self.columns) > key  # or there is nothing to update
        self.of_execution = of_execution  # rows are deleted when their execution is purged
        self.in_catalog = in_catalog  # a write raises the version of the catalog
        self.is_mostly_new = is_mostly_new  # a row is mostly looked for in vain, then inserted
        self._key = attrgetter(*self.key_columns)
        self._parts: dict[frozenset[str], Part] = {}

    def key_of(self, record: R) -> Key:
        """The key of the record's row."""
        key = self._key(record)
        return key if len(self.key_columns) > 1 else (key,)

    def part_from(self, record: Record) -> R:
        """This table's record of a row, from a record of the whole row."""
        if type(record) is self.record:
            return record
        return self.record(*[getattr(record, name) for name in self.fields])

    def due_of(self, record: R) -> int | None:
        """When the record's row is due, or expires."""
        when: int | None = None if self.due is None else getattr(record, self.due)
        return when

    def part_of(self, fields: frozenset[str]) -> Part:
        """The key and these fields, or all."""
        if (known := self._parts.get(fields)) is not None:
            return known
        size = len(self.key_columns)
        wanted = fields.union(self.derived) if fields else frozenset(self.names)
        chosen = [each for each in self.columns[size:] if each.name in wanted]
        columns = (*self.columns[:size], *chosen)
        part = self._parts[fields] = Part(self.record, columns)
        return part

    def stored(self, values: Mapping[str, Any]) -> list[Any]:
        """Values of fields as stored."""
        write = {column.name: column.write for column in self.columns}
        return [
            value if value is None or (to_stored := write[name]) is None else to_stored(value)
            for name, value in values.items()
        ]

    def from_rows(self, rows: Sequence[Sequence[Any]]) -> list[R]:
        """Records as read; many are built column by column, mostly in C."""
        if len(rows) < COLUMNWISE_FROM_ROWS:
            return list(map(self.from_row, rows))
        if SpoiledRow in set(map(type, rows)):
            return list(map(self.from_row, rows))  # so that the error names the corrupt row
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        try:
            for at, read, absent in self._read:
                columns[at] = [absent if value is None else read(value) for value in columns[at]]
        except FlowFabricError:
            return list(map(self.from_row, rows))
        return list(map(self.record, *columns))

    def from_row(self, row: Sequence[Any]) -> R:
        """The record as read; raises Corruption naming the row if it cannot be decoded."""
        if not self._read and type(row) is not SpoiledRow:
            return self.record(*row)
        try:
            return self.decoded(list(intact(row, "the row")))
        except FlowFabricError as error:
            key = "/".join(map(str, row[: len(self.key_columns)]))
            raise Corruption(f"{self.name} {key}: {error.detail}") from None


def hints_of(record: type[Record]) -> dict[str, Any]:
    """The annotations of a record's fields, with their markers."""
    return get_type_hints(record, include_extras=True)


def property_column(record: type[Record], name: str) -> Column:
    """The column of a property."""
    return Column(name, get_type_hints(getattr(record, name).fget, include_extras=True)["return"])


_word: Final = attrgetter("_value_")  # the same as .value, without a Python call


def _word_reader(kind: type[Enum], name: str) -> Callable[[Any], Any]:
    words = {each.value: each for each in kind}

    def read(text: str) -> Any:
        try:
            return words[text]
        except KeyError:
            raise Corruption(f"{name}: {text!r:.40} is not a known word", field=name) from None

    return read


def _json(value: Any) -> str:
    return to_json(value).decode()


def _json_unless(absent: Any) -> Callable[[Any], str | None]:
    return lambda value: None if value == absent else to_json(value).decode()


def words_of(text: str) -> tuple[str, ...]:
    """Words with commas between them, as read."""
    return tuple(text.split(",")) if text else ()


def _json_reader(kind: Any, name: str) -> Callable[[Any], Any]:
    target: Any = dict[get_args(kind)] if get_origin(kind) is Mapping else kind  # type: ignore[misc]

    def read(text: str) -> Any:
        try:
            return from_json(text, target, field=name)
        except InvalidInput as error:  # not a caller's input: it was stored
            raise Corruption(error.detail, field=name) from None

    return read


AnyTable = Table[Any]

BUDGETS: Final = Table("ff_budget_policy", BudgetRow, 1)
USAGE: Final = Table("ff_budget_usage", UsageRow, 2)
LEDGER: Final = Table("ff_budget_usage_by_exec", LedgerRow, 3, of_execution=True)
# The totals of flows and kinds. Those of a flow are deleted with it.
TOTALS: Final = Table("ff_spend_total", TotalRow, 5)
DEDUP: Final = Table("ff_budget_usage_dedup", DedupRow, 4)
HOLDS: Final = Table("ff_budget_hold", HoldRow, 3, of_execution=True, absent={"allowed": {}})
SCOPES: Final = Table("ff_budget_scope", ScopeRow, 3, in_catalog=True)
# Deleted when the execution ends, long before it is purged.
ATTACHMENTS: Final = Table("ff_budget_attachment", AttachmentRow, 2)
# Written under the lock of their budget. Spenders that have ended are noticed by the loop.
ASKS: Final = Table("ff_budget_ask", AskRow, 3)
ASKERS: Final = Table("ff_budget_asker", AskerRow, 4)
ALLOWANCES: Final = Table("ff_budget_allowance", AllowanceRow, 4, of_execution=True)
QUOTAS: Final = Table("ff_quota_policy", QuotaPolicy, 1)
GATES: Final = Table("ff_quota_gate", GateRow, 2)
# A start stays in its window even when its execution is purged, so the gate's trimming removes it.
ADMISSIONS: Final = Table("ff_quota_admitted", AdmissionRow, 3)

SUSPENSIONS: Final = Table("ff_suspension", SuspensionRow, 2, of_execution=True)
WAITPOINTS: Final = Table("ff_waitpoint", WaitpointRow, 1, of_execution=True)
SIGNALS: Final = Table("ff_signal", SignalRow, 2, of_execution=True)
SIGNAL_KEYS: Final = Table("ff_signal_dedup", SignalKeyRow, 2)
SUSPEND_KEYS: Final = Table("ff_suspend_dedup", SuspendKeyRow, 2, of_execution=True)
# Not deleted with the execution they name: an end must reach all that wait for it.
WATCHES: Final = Table("ff_watch", WatchRow, 2)
# The row of a line is the lock of its places.
LINE_ROWS: Final = Table("ff_serial", LineRow, 2)
PLACES: Final = Table("ff_serial_line", PlaceRow, 3)
UNIQUES: Final = Table("ff_unique", UniqueRow, 3)
# Only of executions with a fair key that have not ended.
FAIR: Final = Table("ff_fair", FairRow, 1, of_execution=True)
# Replies to owners at the end of leases, for executions that go on.
ANSWERS: Final = Table("ff_lease_answer", AnswerRow, 2, of_execution=True)
SECRETS: Final = Table("ff_waitpoint_hmac", SecretRow, 1)

ACCESS_TOKENS: Final = Table("ff_access_token", AccessTokenRow, 1)
SESSIONS: Final = Table("ff_session", SessionRow, 1)
# Rows are only ever added.
AUDIT: Final = Table("ff_audit", AuditRow, 2, due="expires_at", absent={"details": {}})

LANES: Final = Table(
    "ff_lane_registry",
    Lane,
    1,
    in_catalog=True,
    absent={"bounds": UNBOUNDED, "tenant_weights": {}, "fair_weights": {}},
)
KEYS: Final = Table("ff_idempotency", IdempotencyRecord, 2, due="expires_at", is_mostly_new=True)
# Workers are searched by the instant at which they count as gone.
WORKERS: Final = Table(
    "ff_worker_registry",
    Worker,
    2,
    due="expires_at",
    derived=("expires_at",),
)
# The last claim of each worker that may have to repeat it.
CLAIMS: Final = Table("ff_claim", ClaimRow, 1)

# The row of a flow is the lock of everything that belongs to it.
FLOWS: Final = Table("ff_flow_core", FlowRow, 1)
MEMBERS: Final = Table("ff_flow_member", MemberRow, 2)
EDGES: Final = Table("ff_edge", EdgeRow, 2)
EDGES_AHEAD: Final = Table("ff_edge", EdgeAhead, 2, whole=EDGES)
FLOW_TASKS: Final = Table("ff_flow_task", TaskRow, 3)

# The row of a bulk operation is the lock of its progress.
OPERATIONS: Final = Table("ff_operation", OperationRow, 1)

# Written under the lock of their execution, from its end to its replay.
DEAD: Final = Table("ff_dead_letter", DeadRow, 1, of_execution=True)

# How far each log was trimmed.
LOG_MARKS: Final = Table("ff_log_mark", LogMark, 1)
# The row of a group is the lock of its deliveries.
GROUPS: Final = Table("ff_consumer_group", GroupRow, 1)
DELIVERIES: Final = Table("ff_group_delivery", DeliveryRow, 2)
# Written under the lock of their execution. The mode is a part of a frame's key.
STREAMS: Final = Table("ff_stream_meta", StreamRow, 2, of_execution=True)
SUMMARIES: Final = Table("ff_stream_summary", SummaryRow, 2, of_execution=True)
FRAMES: Final = Table("ff_stream_frame", FrameRow, 5, of_execution=True)
FRAME_MARKS: Final = Table("ff_stream_frame", FrameMark, 5, whole=FRAMES)
# Likewise. The number of the last line of a chunk is a part of its key.
RUN_LOGS: Final = Table("ff_run_log", RunLogRow, 2, of_execution=True)
LINES: Final = Table("ff_run_log_chunk", LineChunk, 3, of_execution=True)
# Likewise. Rows are only ever added, and go with their chapter.
JOURNAL: Final = Table("ff_journal", EntryRow, 4, of_execution=True)
# Likewise: what an execution has published last.
PUBLISHED: Final = Table("ff_published", PublishedRow, 1, of_execution=True)
# Likewise: which step of an execution runs, where renewals of its lease told.
RUNNING: Final = Table("ff_running", RunningRow, 1, of_execution=True)
ENTRY_MARKS: Final = Table("ff_journal", EntryMark, 4, whole=JOURNAL)

# Likewise.
MAILBOXES: Final = Table("ff_mailbox", MailboxRow, 2, of_execution=True)
MESSAGES: Final = Table("ff_message", MessageRow, 3, of_execution=True)
MESSAGE_KEYS: Final = Table("ff_message_dedup", MessageKeyRow, 3, of_execution=True)

# The row of a schedule is the lock of its ticks; the key of a tick makes one run of it.
SCHEDULES: Final = Table("ff_schedule", ScheduleRow, 2, due="next_at")
TICKS: Final = Table("ff_schedule_tick", TickRow, 3, due="expires_at")

# The row of the roll-up is the lock of the other three.
ROLL_UP: Final = Table("ff_statistic_roll_up", RollUpRow, 1)
SEEN_USAGE: Final = Table("ff_statistic_usage", SeenUsage, 2)
MINUTES: Final = Table(
    "ff_statistic_minute",
    MinuteRow,
    4,
    due="expires_at",
    absent={"pickup": NOTHING, "run": NOTHING},
)
SPEND_MINUTES: Final = Table("ff_statistic_spend", SpendRow, 3, due="expires_at")

# Every write to these comes with a new version of their execution.
EPISODE_TABLES: Final[tuple[Table[Any], ...]] = (
    SUSPENSIONS,
    WAITPOINTS,
    SIGNALS,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
)
# The loop works on these when they are due; rows of the next list only expire.
TIMED_TABLES: Final[tuple[Table[Any], ...]] = (
    BUDGETS,
    HOLDS,
    GATES,
    ADMISSIONS,
    WAITPOINTS,
    FLOWS,
    FLOW_TASKS,
    WATCHES,
    SCHEDULES,
    LINE_ROWS,
    OPERATIONS,
    ASKS,
)
SWEPT_TABLES: Final[tuple[Table[Any], ...]] = (
    KEYS,
    CLAIMS,
    DEDUP,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
    SECRETS,
    MESSAGES,
    MESSAGE_KEYS,
    FRAMES,
    MINUTES,
    SPEND_MINUTES,
    TICKS,
    SESSIONS,
    AUDIT,
)
TABLES: Final[tuple[Table[Any], ...]] = (
    BUDGETS,
    USAGE,
    LEDGER,
    TOTALS,
    DEDUP,
    HOLDS,
    SCOPES,
    ATTACHMENTS,
    ASKS,
    ASKERS,
    ALLOWANCES,
    QUOTAS,
    GATES,
    ADMISSIONS,
    SUSPENSIONS,
    WAITPOINTS,
    SIGNALS,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    WATCHES,
    LINE_ROWS,
    PLACES,
    UNIQUES,
    FAIR,
    ANSWERS,
    SECRETS,
    ACCESS_TOKENS,
    SESSIONS,
    AUDIT,
    FLOWS,
    MEMBERS,
    EDGES,
    FLOW_TASKS,
    OPERATIONS,
    DEAD,
    LOG_MARKS,
    GROUPS,
    DELIVERIES,
    KEYS,
    LANES,
    WORKERS,
    CLAIMS,
    STREAMS,
    SUMMARIES,
    FRAMES,
    RUN_LOGS,
    LINES,
    JOURNAL,
    PUBLISHED,
    RUNNING,
    MAILBOXES,
    MESSAGES,
    MESSAGE_KEYS,
    ROLL_UP,
    SEEN_USAGE,
    MINUTES,
    SPEND_MINUTES,
    SCHEDULES,
    TICKS,
)
TABLE_OF: Final[dict[type[Record], AnyTable]] = {table.record: table for table in TABLES}


def scopes_of(rows: Iterable[ScopeRow]) -> dict[tuple[ScopeType, str], tuple[str, ...]]:
    """Budgets by the lane or namespace they apply to."""
    found: dict[tuple[ScopeType, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.scope_type, row.scope_id), []).append(row.budget_id)
    return {scope: tuple(sorted(names)) for scope, names in found.items()}


def every_row_sql(table: Table[Any]) -> str:
    """A whole table by key."""
    names, keys = ", ".join(table.fields), ", ".join(table.key_columns)
    return f"SELECT {names} FROM {table.name} ORDER BY {keys}"


def next_row_due(table: Table[Any]) -> str:
    """The earliest due time in a table, as a part of a statement."""
    return f"(SELECT min({table.due}) FROM {table.name} WHERE {table.due} IS NOT NULL)"
