"""Small tables, declared once: a record's fields are its columns, the first ones its key.

A rule that needs new rows declares a table here and a migration beside it; loading, locking,
writing, purging, dumping and due times then work on every store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from flowfabric.errors import Corruption, FlowFabricError, InvalidInput
from flowfabric.model.answer import AnswerRow
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.budget import (
    AttachmentRow,
    BudgetRow,
    DedupRow,
    HoldRow,
    LedgerRow,
    ScopeRow,
    ScopeType,
    UsageRow,
)
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.feed import LogMark
from flowfabric.model.flow import EdgeAhead, EdgeRow, FlowRow, MemberRow, TaskRow
from flowfabric.model.group import DeliveryRow, GroupRow
from flowfabric.model.quota import AdmissionRow, GateRow, QuotaPolicy
from flowfabric.model.record import Record, from_json, to_json, values_of
from flowfabric.model.route import Lane
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
from flowfabric.model.worker import Worker
from flowfabric.stores.spoiled import SpoiledRow, intact

R = TypeVar("R", bound=Record)
Key = tuple[Any, ...]
Row = tuple[Any, ...]

COLUMNWISE_FROM_ROWS: Final = 8


class Column:
    """One column: its name, its SQL type and how its values are written and read."""

    __slots__ = ("absent", "annotation", "is_optional", "kind", "name", "read", "write")

    def __init__(
        self, name: str, annotation: Any, *, is_words: bool = False, absent: Any = None
    ) -> None:
        self.name = name
        self.absent = absent  # the value of a column that holds none
        self.annotation = str if is_words else annotation  # any text is a list of words
        plain = _without_none(annotation)
        self.is_optional = NoneType in get_args(annotation)
        if plain is int:
            self.kind, self.write, self.read = "integer", None, None
        elif plain is str:
            self.kind, self.write, self.read = "text", None, None
        elif plain is bytes:
            self.kind, self.write, self.read = "blob", None, None
        elif isinstance(plain, type) and issubclass(plain, Enum):
            self.kind, self.write, self.read = "text", _word, _word_reader(plain, name)
        elif is_words:
            self.kind, self.write, self.read = "text", ",".join, _words
        else:
            self.kind, self.read = "text", _json_reader(plain, name)
            self.write = _json if absent is None else _json_unless(absent)

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any] | None


class Layout(Generic[R]):
    """One kind of record as rows: a column for each field.

    `absent`: values of fields that are stored as no value at all. `words`: fields that are stored
    as words with commas. `derived`: properties that are stored beside the fields, to be searched.
    """

    def __init__(
        self,
        name: str,
        record: type[R],
        *,
        absent: Mapping[str, Any] | None = None,
        words: Sequence[str] = (),
        derived: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.record = record
        hints, absent = get_type_hints(record), absent or {}
        self.names: tuple[str, ...] = record.__struct_fields__  # of the columns that are read
        self.derived = tuple(derived)
        self.columns = (
            *(
                Column(each, hints[each], is_words=each in words, absent=absent.get(each))
                for each in self.names
            ),
            *(Column(each, _type_of(record, each)) for each in derived),
        )
        self.written_names = tuple(column.name for column in self.columns)
        # Most columns are stored as they are; only the others are converted one by one.
        self._written = tuple(
            (at, column.write, column.is_optional)
            for at, column in enumerate(self.columns)
            if column.write is not None
        )
        self._read = tuple(
            (at, column.read, column.absent)
            for at, column in enumerate(self.columns)
            if column.read is not None
        )

    def to_columns(self, records: Sequence[R]) -> list[Sequence[Any]]:
        """Records as stored, column by column: most of that happens in C."""
        columns: list[Sequence[Any]] = list(zip(*map(values_of, records), strict=True))
        columns += [list(map(attrgetter(name), records)) for name in self.derived]
        for at, write, is_optional in self._written:
            if is_optional:
                columns[at] = [None if value is None else write(value) for value in columns[at]]
            else:
                columns[at] = list(map(write, columns[at]))
        return columns

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
        self._parts: dict[frozenset[str], tuple[tuple[str, ...], Callable[[R], Row]]] = {}

    def key_of(self, record: R) -> Key:
        """The key of the record's row."""
        key = self._key(record)
        return key if len(self.key_columns) > 1 else (key,)

    def part_from(self, record: Record) -> R:
        """This table's record of a row, from a record of the whole row."""
        if type(record) is self.record:
            return record
        return self.record(*[getattr(record, name) for name in self.names])

    def due_of(self, record: R) -> int | None:
        """When the record's row is due, or expires."""
        when: int | None = None if self.due is None else getattr(record, self.due)
        return when

    def part_of(self, fields: frozenset[str]) -> tuple[tuple[str, ...], Callable[[R], Row]]:
        """The key and these fields, or all: their names, and a function that reads them off a
        record as stored."""
        if (known := self._parts.get(fields)) is not None:
            return known
        size = len(self.key_columns)
        wanted = fields.union(self.derived) if fields else frozenset(self.written_names)
        chosen = [each for each in self.columns[size:] if each.name in wanted]
        columns = (*self.columns[:size], *chosen)
        names = tuple(each.name for each in columns)
        coded = [(at, each.write) for at, each in enumerate(columns) if each.write is not None]
        read = attrgetter(*names)

        def part(record: R) -> Row:
            values = list(read(record))
            for at, write in coded:
                if values[at] is not None:
                    values[at] = write(values[at])
            return tuple(values)

        self._parts[fields] = names, part
        return names, part

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


def _without_none(annotation: Any) -> Any:
    if get_origin(annotation) is UnionType:
        parts = [part for part in get_args(annotation) if part is not NoneType]
        return parts[0] if len(parts) == 1 else annotation
    return annotation


def _type_of(record: type[Record], name: str) -> Any:
    """The type of a property."""
    return get_type_hints(getattr(record, name).fget)["return"]


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


def _words(text: str) -> tuple[str, ...]:
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
DEDUP: Final = Table("ff_budget_usage_dedup", DedupRow, 4)
HOLDS: Final = Table("ff_budget_hold", HoldRow, 3, of_execution=True)
SCOPES: Final = Table("ff_budget_scope", ScopeRow, 3, in_catalog=True)
# Deleted when the execution ends, long before it is purged.
ATTACHMENTS: Final = Table("ff_budget_attachment", AttachmentRow, 2)
QUOTAS: Final = Table("ff_quota_policy", QuotaPolicy, 1)
GATES: Final = Table("ff_quota_gate", GateRow, 2)
# A start stays in its window even when its execution is purged, so the gate's trimming removes it.
ADMISSIONS: Final = Table("ff_quota_admitted", AdmissionRow, 3)

SUSPENSIONS: Final = Table("ff_suspension", SuspensionRow, 2, of_execution=True)
WAITPOINTS: Final = Table("ff_waitpoint", WaitpointRow, 1, of_execution=True)
SIGNALS: Final = Table("ff_signal", SignalRow, 2, of_execution=True)
SIGNAL_KEYS: Final = Table("ff_signal_dedup", SignalKeyRow, 2)
SUSPEND_KEYS: Final = Table("ff_suspend_dedup", SuspendKeyRow, 2, of_execution=True)
# Replies to owners at the end of leases, for executions that go on.
ANSWERS: Final = Table("ff_lease_answer", AnswerRow, 2, of_execution=True)
SECRETS: Final = Table("ff_waitpoint_hmac", SecretRow, 1)

LANES: Final = Table("ff_lane_registry", Lane, 1, in_catalog=True, absent={"bounds": UNBOUNDED})
KEYS: Final = Table("ff_idempotency", IdempotencyRecord, 2, due="expires_at", is_mostly_new=True)
# Workers are searched by the instant at which they count as gone.
WORKERS: Final = Table(
    "ff_worker_registry",
    Worker,
    2,
    due="expires_at",
    derived=("expires_at",),
    words=("capabilities",),
)

# The row of a flow is the lock of everything that belongs to it.
FLOWS: Final = Table("ff_flow_core", FlowRow, 1)
MEMBERS: Final = Table("ff_flow_member", MemberRow, 2)
EDGES: Final = Table("ff_edge", EdgeRow, 2)
EDGES_AHEAD: Final = Table("ff_edge", EdgeAhead, 2, whole=EDGES)
FLOW_TASKS: Final = Table("ff_flow_task", TaskRow, 3)

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
)
SWEPT_TABLES: Final[tuple[Table[Any], ...]] = (
    KEYS,
    DEDUP,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
    SECRETS,
    FRAMES,
    MINUTES,
    SPEND_MINUTES,
)
TABLES: Final[tuple[Table[Any], ...]] = (
    BUDGETS,
    USAGE,
    LEDGER,
    DEDUP,
    HOLDS,
    SCOPES,
    ATTACHMENTS,
    QUOTAS,
    GATES,
    ADMISSIONS,
    SUSPENSIONS,
    WAITPOINTS,
    SIGNALS,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
    SECRETS,
    FLOWS,
    MEMBERS,
    EDGES,
    FLOW_TASKS,
    LOG_MARKS,
    GROUPS,
    DELIVERIES,
    KEYS,
    LANES,
    WORKERS,
    STREAMS,
    SUMMARIES,
    FRAMES,
    ROLL_UP,
    SEEN_USAGE,
    MINUTES,
    SPEND_MINUTES,
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
    names, keys = ", ".join(table.names), ", ".join(table.key_columns)
    return f"SELECT {names} FROM {table.name} ORDER BY {keys}"


def next_row_due(table: Table[Any]) -> str:
    """The earliest due time in a table, as a part of a statement."""
    return f"(SELECT min({table.due}) FROM {table.name} WHERE {table.due} IS NOT NULL)"
