"""The legal values of every column, declared by the records, and the search for rows with others.

A schema refuses values of another type. It accepts instants before the first, counts no counter has
reached, words outside their enumeration and malformed JSON. `ff doctor` looks for these.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

from flowfabric.errors import FlowFabricError
from flowfabric.limits import INSTANT_MS_MAX, PRIORITY_MAX, PRIORITY_MIN
from flowfabric.model.attempt import Attempt
from flowfabric.model.bounds import Bounds
from flowfabric.model.budget import AMOUNT_MAX
from flowfabric.model.execution import Execution, GrantKind
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import Record, from_json
from flowfabric.model.state import VECTOR_OF_ID
from flowfabric.stores.logs import LOGS
from flowfabric.stores.spoiled import NOT_TEXT, SpoiledRow
from flowfabric.stores.tables import TABLES, Layout

COUNT_MAX: Final = 1 << 53  # no counter gets there by counting
FOUND_MAX: Final = 1_000  # of one table; more of the same say nothing new
PAGE: Final = 1_000

Fetch = Callable[[str, Sequence[Any]], Awaitable[Sequence[Sequence[Any]]]]
Finding = tuple[str, str]  # the row, and its defect


class Range(Record, frozen=True):
    """Integers between two, both included."""

    least: int
    most: int

    def condition(self, column: str) -> str | None:
        """The condition of a legal value, in SQL; empty where only the text itself can tell."""
        return f"{column} BETWEEN {self.least} AND {self.most}"

    def fault(self, value: Any) -> str | None:
        """The defect of a value that is present."""
        if self.least <= value <= self.most:
            return None
        return f"{value} is not between {self.least} and {self.most}"


class Words(Record, frozen=True):
    """One of the words of an enumeration, or one of some numbers."""

    known: tuple[Any, ...]

    def condition(self, column: str) -> str | None:
        """As SQL; the words are ours and hold no quote."""
        return f"{column} IN ({', '.join(map(repr, self.known))})"

    def fault(self, value: Any) -> str | None:
        """The value is not repeated: unknown text may be anything."""
        return None if value in self.known else "is not a known word"


class Json(Record, frozen=True):
    """A record or a map as text."""

    kind: Any

    def condition(self, column: str) -> str | None:
        """A database cannot tell."""
        return None

    def fault(self, value: Any) -> str | None:
        """Why it cannot be decoded."""
        try:
            from_json(value, self.kind, field="JSON")
        except FlowFabricError as error:
            return error.detail
        return None


class Hex(Record, frozen=True):
    """Bytes as hexadecimal text; a secret, so it is never shown."""

    def condition(self, column: str) -> str | None:
        """A database cannot tell."""
        return None

    def fault(self, value: Any) -> str | None:
        """The value is not repeated."""
        try:
            bytes.fromhex(value)
        except ValueError:
            return "is not hexadecimal"
        return None


Domain = Range | Words | Json | Hex
INSTANT: Final = Range(0, INSTANT_MS_MAX)
COUNT: Final = Range(0, COUNT_MAX)
AMOUNT: Final = Range(0, AMOUNT_MAX)
# Columns for which the record's type says too little.
_SPECIAL: Final[Mapping[str, Domain]] = {
    "priority": Range(PRIORITY_MIN, PRIORITY_MAX),
    "used": AMOUNT,
    "held": AMOUNT,
    "spent": AMOUNT,
    "used_before": AMOUNT,
    "total": AMOUNT,
    "given_back": AMOUNT,
    "state_id": Words(tuple(sorted(VECTOR_OF_ID))),
    "grant_kind": Words(tuple(kind.value for kind in GrantKind)),
    "secret_hex": Hex(),
    "payload_type": Json(Any),  # a schema, stored as it was given
}
_TAGS: Final = Json(dict[str, str])


class Sheet(Record, frozen=True):
    """One table: its key, and the legal values of its columns beyond the schema."""

    name: str
    key: tuple[str, ...]
    domains: Mapping[str, Domain]

    def named(self, row: Sequence[Any]) -> str:
        """A row as shown; its first values are its key."""
        return f"{self.name} {'/'.join(map(str, row[: len(self.key)]))}"

    @property
    def searched(self) -> dict[str, str]:
        """Conditions by column, for those a database can judge."""
        found = {name: domain.condition(name) for name, domain in self.domains.items()}
        return {name: condition for name, condition in found.items() if condition is not None}

    @property
    def read(self) -> tuple[str, ...]:
        """Columns that must be read to be judged."""
        return tuple(
            name for name, domain in self.domains.items() if isinstance(domain, Json | Hex)
        )


def _domain(name: str, annotation: Any) -> Domain | None:
    if name in _SPECIAL:
        return _SPECIAL[name]
    plain = annotation
    if get_origin(annotation) is UnionType:
        parts = [part for part in get_args(annotation) if part is not NoneType]
        plain = parts[0] if len(parts) == 1 else annotation
    if plain is int:
        return INSTANT if name.endswith("_at") else COUNT
    if plain in (str, bytes):
        return None
    if isinstance(plain, type) and issubclass(plain, Enum):
        return Words(tuple(each.value for each in plain))
    if get_origin(plain) is not None and issubclass(get_origin(plain), Mapping):
        return Json(dict[get_args(plain)])  # type: ignore[misc]
    return Json(plain)


def _domains(record: type[Record], *left_out: str, **more: Domain) -> dict[str, Domain]:
    hints = get_type_hints(record)
    found = {name: hints[name] for name in record.__struct_fields__ if name not in left_out}
    return {**_known(found.items()), **more}


def _known(columns: Iterable[tuple[str, Any]]) -> dict[str, Domain]:
    """The domains of columns, by their annotations."""
    found = ((name, _domain(name, annotation)) for name, annotation in columns)
    return {name: domain for name, domain in found if domain is not None}


def _sheet(layout: Layout[Any], key: tuple[str, ...], **more: Domain) -> Sheet:
    """The sheet of a declared table or log."""
    columns = ((column.name, column.annotation) for column in layout.columns)
    return Sheet(layout.name, key, {**_known(columns), **more})


_BODY: Final[Mapping[str, Domain]] = {
    "route_id": COUNT,
    "created_at": INSTANT,
    "policy": Json(ExecutionPolicy),
    "tags": _TAGS,
    "bounds": Json(Bounds),
}


@cache
def sheets() -> tuple[Sheet, ...]:
    """Every table with its columns' legal values; built when doctor first asks, not at import."""
    core = _domains(
        Execution,
        *("route", "state", "grant", "policy", "tags", "bounds"),
        state_id=_SPECIAL["state_id"],
        grant_kind=_SPECIAL["grant_kind"],
        grant_expires_at=INSTANT,
        due_at=INSTANT,
        partition_key=COUNT,
        route_id=COUNT,
    )
    return (
        Sheet("ff_exec_core", ("execution_id",), core),
        Sheet("ff_exec_body", ("execution_id",), _BODY),
        Sheet("ff_exec_tag", ("execution_id", "tag_key"), {}),
        Sheet("ff_attempt", ("execution_id", "attempt_index"), _domains(Attempt)),
        Sheet("ff_route", ("route_id",), {"route_id": COUNT}),
        *(_sheet(log, ("event_id",), event_id=COUNT) for log in LOGS),
        *(_sheet(table, table.key_columns) for table in TABLES),
    )


async def odd_values(fetch: Fetch, mark: Callable[[int], str]) -> list[Finding]:
    """Rows with values that no engine writes. `fetch` runs a statement with its values, `mark`
    names a parameter in it."""
    found: list[Finding] = []
    for sheet in sheets():
        some = [each async for each in _outside(sheet, fetch)]
        some += [each async for each in _unreadable(sheet, fetch, mark)]
        found += some
    return found


async def _outside(sheet: Sheet, fetch: Fetch) -> AsyncIterator[Finding]:
    """Numbers and words, judged by the database."""
    conditions = sheet.searched
    if not conditions:
        return
    names = (*sheet.key, *conditions)
    sql = (
        f"SELECT {', '.join(names)} FROM {sheet.name} "
        f"WHERE NOT ({' AND '.join(conditions.values())}) LIMIT {FOUND_MAX}"
    )
    for row in await fetch(sql, ()):
        yield sheet.named(row), "; ".join(_faults(sheet, names, row))


async def _unreadable(
    sheet: Sheet, fetch: Fetch, mark: Callable[[int], str]
) -> AsyncIterator[Finding]:
    """JSON, page by page."""
    if not sheet.read:
        return
    names, keys = (*sheet.key, *sheet.read), ", ".join(sheet.key)
    marks = ", ".join(mark(number) for number in range(1, len(sheet.key) + 1))
    after: tuple[Any, ...] = ()
    while True:
        where = f"WHERE ({keys}) > ({marks}) " if after else ""
        sql = f"SELECT {', '.join(names)} FROM {sheet.name} {where}ORDER BY {keys} LIMIT {PAGE}"
        rows = await fetch(sql, after)
        for row in rows:
            if faults := list(_faults(sheet, names, row)):
                yield sheet.named(row), "; ".join(faults)
        if len(rows) < PAGE:
            return
        after = tuple(rows[-1][: len(sheet.key)])


def _faults(sheet: Sheet, names: Iterable[str], row: Sequence[Any]) -> Iterable[str]:
    if type(row) is SpoiledRow:
        return [NOT_TEXT]
    judged = [
        (name, sheet.domains[name].fault(value))
        for name, value in zip(names, row, strict=True)
        if value is not None and name in sheet.domains
    ]
    return [f"{name}: {fault}" for name, fault in judged if fault is not None]
