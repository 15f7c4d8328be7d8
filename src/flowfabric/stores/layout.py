"""How records are rows: columns from the annotations of fields, and tables found by a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from flowfabric.errors import Corruption, FlowFabricError, InvalidInput
from flowfabric.model.columns import Text, held
from flowfabric.model.record import Record, from_json, to_json, values_of
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
