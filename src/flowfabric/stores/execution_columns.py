"""The columns of an execution's tables, derived from the annotations of its records.

Most transitions (claim, renew, complete) change few fields, and columns are the cost of a row
write. So the markers of `model/columns.py` divide them into parts that are written together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import make_dataclass
from enum import Enum
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple

from flowfabric.model.attempt import Attempt
from flowfabric.model.columns import Counter, Written
from flowfabric.model.execution import Body, Execution, Grant
from flowfabric.model.record import Record, defaults_of
from flowfabric.model.route import Route
from flowfabric.model.state import ID_OF_VECTOR, VECTOR_OF_ID
from flowfabric.stores.tables import Column, Columns, Part, Row, hints_of, property_column

_DERIVED: Final = ("due_at", "ready_rank")  # properties that are stored as well
_TEXTS_KEPT: Final = 10_000  # executions share few policies and bounds, so each is coded once


class Stored(NamedTuple):
    """A column, and the field or property it is written from."""

    column: Column
    source: str
    written: Written | None = None
    is_new: bool = True  # whether it is written with the new row, which otherwise has the default


def _columns(field: str, annotation: Any, default: Any) -> Iterator[Column]:
    """The columns of a field: one, but for the id and the grant."""
    if field == "execution_id":
        yield from _key_columns()
    elif field == "route":
        yield Column("route_id", Counter)  # only a store knows the numbers of routes
    elif field == "state":
        number = Column("state_id", Counter)
        number.write, number.read = ID_OF_VECTOR.__getitem__, VECTOR_OF_ID.__getitem__
        yield number
    elif field == "grant":
        yield from map(_grant_column, Grant.__struct_fields__)
    else:
        column = Column(field, annotation, absent=default)
        kind = column.held.plain
        if isinstance(kind, type) and issubclass(kind, Enum):
            column.read = {each.value: each for each in kind}.__getitem__  # no call for each row
        elif isinstance(kind, type) and issubclass(kind, Record):
            keep: Callable[[Any], Any] = lru_cache(_TEXTS_KEPT)
            column.write, column.read = keep(column.write), keep(column.read)
        yield column


def _key_columns() -> Iterator[Column]:
    """{fp:7}:0190… is stored as the UUID and the number of the partition."""
    uuid, partition = Column("execution_id", str), Column("partition_key", Counter)
    uuid.kind, uuid.write = "uuid", itemgetter(slice(-36, None))
    partition.write = lambda execution_id: int(execution_id[4:-38])
    yield uuid
    yield partition


def _grant_column(part: str) -> Column:
    column = Column(f"grant_{part.removeprefix('grant_')}", hints_of(Grant)[part])
    column.write = attrgetter(part if column.write is None else f"{part}._value_")
    column.omitted = None
    return column


def _stored() -> Iterator[Stored]:
    """Every column of an execution, in the order of its fields."""
    for name, annotation in hints_of(Execution).items():
        written = Column(name, annotation).held.written
        is_new = name not in DEFAULTS or written in (None, Written.ONCE, Written.FREED)
        for column in _columns(name, annotation, DEFAULTS.get(name)):
            yield Stored(column, name, written, is_new)
    for name in _DERIVED:
        column = property_column(Execution, name)
        yield Stored(column, name, column.held.written)


DEFAULTS: Final[Mapping[str, Any]] = defaults_of(Execution)
STORED: Final[Mapping[str, Stored]] = {each.column.name: each for each in _stored()}
_KEY: Final = STORED["execution_id"]
_CORE: Final = [each for each in STORED.values() if each.written is not Written.BODY]


def _part(stored: Sequence[Stored]) -> Part:
    sources = [each.source for each in stored]
    return Part(Execution, [each.column for each in stored], sources)


def _written(*written: Written | None) -> Part:
    """The key and the columns that are written at these times."""
    return _part([_KEY, *(each for each in _CORE[1:] if each.written in written)])


STEP: Final = _written(Written.STEP)
HOT: Final = _written(Written.STEP, Written.TAKEN)
FREED: Final = _written(Written.STEP, Written.FREED)
ALL: Final = _written(Written.STEP, Written.TAKEN, Written.FREED, Written.LATER, None)
CORE: Final = _part(_CORE)
# An execution is read from these, which are in the order of its fields.
RECORD: Final = tuple(each for each in STORED.values() if each.source not in _DERIVED)

# A new execution is read once for both of its tables, of which the body's repeats some columns.
_NEW_CORE: Final = [each for each in _CORE if each.is_new]
NEW: Final = _part(
    [*_NEW_CORE, *(each for each in STORED.values() if each.written is Written.BODY)]
)
BODY: Final = Part(Body, [Column(*field) for field in hints_of(Body).items()])
BODY_PARTS: Final = BODY.columns[1:]  # the id is a column of the execution
NEW_CORE: Final = NEW.columns[: len(_NEW_CORE)]
_REPEATED: Final = [NEW.names.index(name) for name in ("execution_id", "route_id", "created_at")]
NEW_BODY: Final = (
    *(NEW.columns[at] for at in _REPEATED),
    *NEW.columns[len(_NEW_CORE) :],
    *BODY_PARTS,
)
_ROUTE: Final = NEW.names.index("route_id")


def new_columns(
    created: Iterable[tuple[Execution, Body]], route_ids: Mapping[Route, int]
) -> tuple[Columns, Columns]:
    """New executions as stored: the columns of NEW_CORE and of NEW_BODY."""
    executions, bodies = zip(*created, strict=True)
    columns = NEW.to_columns(executions)
    columns[_ROUTE] = [route_ids[route] for route in columns[_ROUTE]]
    core, of_body = columns[: len(_NEW_CORE)], columns[len(_NEW_CORE) :]
    return core, [*(core[at] for at in _REPEATED), *of_body, *BODY.to_columns(bodies)[1:]]


def rows_alike(part: Part, records: Sequence[Execution]) -> dict[Row, list[str]]:
    """Rows without their keys, and the keys of each."""
    keys, *columns = part.to_columns(records) or [()]
    if keys and all(column.count(column[0]) == len(keys) for column in columns):
        return {tuple(column[0] for column in columns): list(keys)}  # as mostly
    alike: dict[Row, list[str]] = {}
    for key, row in zip(keys, zip(*columns, strict=True), strict=True):
        alike.setdefault(row, []).append(key)
    return alike


_ATTEMPT: Final = [Column(*field) for field in hints_of(Attempt).items()]
ATTEMPT: Final = Part(Attempt, [_KEY.column, *_ATTEMPT[1:]])
TAG: Final = (_KEY.column, Column("tag_key", str), Column("tag_value", str))


def _fields(*written: Written | None) -> tuple[str, ...]:
    """The fields of some parts; the key never changes."""
    sources = {each.source for each in _CORE[1:] if each.written in written}
    return tuple(name for name in Execution.__struct_fields__ if name in sources)


def _alike(fields: Iterable[str]) -> Callable[[Execution, Execution], bool]:
    """A test whether two images agree in some fields.

    Each transition asks. A dataclass compares its fields in code of its own, which takes half the
    time of collecting them by name and serves any two objects that have these fields.
    """
    test: Any = make_dataclass("Fields", fields).__eq__
    alike: Callable[[Execution, Execution], bool] = test
    return alike


COLD_FIELDS: Final = _fields(None, Written.LATER, Written.FREED)
TAKEN_FIELDS: Final = _fields(Written.TAKEN)
keeps_cold: Final = _alike(COLD_FIELDS)
keeps_taken: Final = _alike(TAKEN_FIELDS)
keeps_most: Final = _alike(_fields(None, Written.LATER))  # all cold ones but those of a release
