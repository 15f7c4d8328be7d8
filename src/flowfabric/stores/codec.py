"""Records to rows and back, once for every SQL store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final

from flowfabric.errors import Corruption, FlowFabricError
from flowfabric.limits import PRIORITY_MAX
from flowfabric.model.attempt import Attempt
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.execution import Body, Execution, Grant, GrantKind
from flowfabric.model.record import from_json, to_json
from flowfabric.model.route import Route
from flowfabric.stores.base import Changes, Corrupt
from flowfabric.stores.execution_columns import ATTEMPT, BODY_PARTS, RECORD
from flowfabric.stores.spoiled import SpoiledRow, intact


def execution_id_of(partition_key: int, uuid: str) -> str:
    """The wire form of an id."""
    return f"{{fp:{partition_key}}}:{uuid}"


def split_updates(
    changes: Changes,
) -> tuple[list[Execution], list[Execution], list[Execution], list[Execution]]:
    """Executions to be written by STEP, by HOT, by FREED and by ALL."""
    if not changes.cold and not changes.freed:  # mostly a batch takes leases, or it renews and ends
        if not changes.taken:
            return list(changes.updated.values()), [], [], []
        if len(changes.taken) == len(changes.updated):
            return [], list(changes.updated.values()), [], []
    step, hot, freed, everything = [], [], [], []
    whole = changes.cold | (changes.freed & changes.taken)
    for key, execution in changes.updated.items():
        if key in whole:
            everything.append(execution)
        elif key in changes.taken:
            hot.append(execution)
        elif key in changes.freed:
            freed.append(execution)
        else:
            step.append(execution)
    return step, hot, freed, everything


_ATTEMPT_READ: Final = [
    (at, column.read) for at, column in enumerate(ATTEMPT.columns) if column.read is not None
]


def attempt_from_row(execution_id: str, row: Sequence[Any]) -> Attempt:
    """An ended attempt from its row; raises Corruption naming the row if it cannot be decoded."""
    name = f"attempt {row[1]} of {execution_id}"
    values = [execution_id, *intact(row, name)[1 : len(ATTEMPT.names)]]
    try:
        for at, read in _ATTEMPT_READ:
            values[at] = read(values[at])
    except Corruption as error:
        raise Corruption(f"{name}: {error.detail}") from None
    return Attempt(*values)


def execution_from_row(row: Sequence[Any], routes: Mapping[int, Route]) -> Execution | Corrupt:
    """From the columns of RECORD and any others; a corrupt row is returned, not raised."""
    wire_id = execution_id_of(row[1], str(row[0]))
    try:
        if type(row) is SpoiledRow:
            intact(row, "the row")
        return _decode(wire_id, row, routes)
    except (KeyError, ValueError, TypeError, FlowFabricError) as error:
        return Corrupt(wire_id, f"{type(error).__name__}: {error!s:.200}")


_UUID_LENGTH: Final = 36
_BEFORE_UUID: Final = -_UUID_LENGTH - 1
_SOURCES: Final = [each.source for each in RECORD]
_GRANT: Final = _SOURCES.index("grant")
_AFTER_GRANT: Final = _GRANT + _SOURCES.count("grant")
_END: Final = len(RECORD)
# Fields that are not stored as they are.
_READ: Final = [
    (Execution.__struct_fields__.index(source), column.read, column.absent)
    for column, source, *_ in RECORD
    if column.read is not None and source != "grant"
]
# Numbers that rules count with or rank by: with one out of its range a row is corrupt.
_RANGES: Final = {
    at: (column.name, numbers)
    for at, (column, source, *_) in enumerate(RECORD)
    if column.name == source and not column.is_optional and (numbers := column.held.numbers)
}


def _any_beyond(bits: int, places: Sequence[int]) -> Callable[[Sequence[Any]], int]:
    """A test whether any of up to eight numbers has more bits, or is negative: all bits together
    tell. Spelled out, because it runs for every row read."""
    a, b, c, d, e, f, g, h = (*places, *repeat(places[0], 8 - len(places)))
    return lambda row: (
        (row[a] | row[b] | row[c] | row[d] | row[e] | row[f] | row[g] | row[h]) >> bits
    )


def _tests(*, are_small: bool) -> Iterator[Callable[[Sequence[Any]], int]]:
    places = [at for at, (_, numbers) in _RANGES.items() if numbers.are_small is are_small]
    most = max(_RANGES[at][1].most for at in places)
    for first in range(0, len(places), 8):
        yield _any_beyond(most.bit_length(), places[first : first + 8])


_BEYOND: Final = (*_tests(are_small=True), *_tests(are_small=False))
_PRIORITY: Final = _SOURCES.index("priority")  # its range is narrower than its bits


def _check_ranges(row: Sequence[Any]) -> None:
    for at, (name, numbers) in _RANGES.items():
        if not numbers.least <= row[at] <= numbers.most:
            raise ValueError(f"{name}: {row[at]} is out of range")


def _decode(wire_id: str, row: Sequence[Any], routes: Mapping[int, Route]) -> Execution:
    """The columns are in the order of the record's fields."""
    for is_beyond in _BEYOND:
        if is_beyond(row):
            _check_ranges(row)
    if row[_PRIORITY] > PRIORITY_MAX:
        _check_ranges(row)
    if len(wire_id) <= _UUID_LENGTH or wire_id[_BEFORE_UUID] != ":":
        raise ValueError("its id is no UUID")  # with another id, no update would find its row
    fields: list[Any] = [
        wire_id,
        routes[row[2]],
        *row[3:_GRANT],
        None if row[_GRANT] is None else _grant(*row[_GRANT:_AFTER_GRANT]),
        *row[_AFTER_GRANT:_END],
    ]
    for at, read, absent in _READ:
        value = fields[at]
        fields[at] = absent if value is None else read(value)
    return Execution(*fields)


def _grant(kind: str, *others: Any) -> Grant:
    if None in others:
        raise ValueError("its grant has an empty part")
    return Grant(GrantKind(kind), *others)


def candidate_from_row(
    row: Sequence[Any], routes: Mapping[int, Route]
) -> tuple[Execution, Body] | None:
    """An execution with its body, which is the last columns; None for a corrupt row."""
    record = execution_from_row(row, routes)
    if not isinstance(record, Execution):
        return None
    return record, body_from_row(record.execution_id, row[-len(BODY_PARTS) :])


def candidates_of(
    records: Sequence[Execution | Corrupt], bodies: Sequence[Sequence[Any]]
) -> list[tuple[Execution, Body]]:
    """Executions with their bodies; corrupt rows are skipped."""
    return [
        (record, body_from_row(record.execution_id, body))
        for record, body in zip(records, bodies, strict=True)
        if isinstance(record, Execution)
    ]


def tags_text(tags: Mapping[str, str]) -> str | None:
    """Tags as stored: None when there are none."""
    return to_json(tags).decode() if tags else None


def bounds_text(bounds: Bounds) -> str | None:
    """Bounds as stored: None when there are none."""
    return None if bounds == UNBOUNDED else to_json(bounds).decode()


def bounds_from_text(text: str | None) -> Bounds:
    """Bounds as read."""
    return UNBOUNDED if text is None else from_json(text, Bounds, field="bounds")


def body_from_row(execution_id: str, row: Sequence[Any]) -> Body:
    """The immutable part from the columns of BODY_PARTS."""
    return Body(execution_id, *row)
