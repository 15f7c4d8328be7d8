"""Searches over declared indexes as SQL: everything but the way rows of several prefixes are merged
and locked, which is the store's own.

The text depends on the form of a search only, so each form is built once. Values are always bound,
in the order in which `values_of` returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from flowfabric.stores.indexes import ExecutionIndex, Index, Search
from flowfabric.stores.tables import Key

Mark = Callable[[int], str]  # the placeholder of the value with this number


class Form(NamedTuple):
    """What the statement of a search depends on."""

    of: Index[Any]
    size: int  # of each prefix
    is_one: bool  # a single prefix, given by values; or many, given by the store
    has_after: bool
    has_until: bool
    only: tuple[tuple[str, bool], ...]  # columns, and whether a value is asked for
    is_backwards: bool
    is_held: bool
    is_keys: bool  # only the keys are read


def form_of(search: Search[Any], *, is_keys: bool = False) -> Form:
    """The form of a search."""
    return Form(
        search.index,
        search.size,
        len(search.prefixes) == 1,
        search.after is not None,
        search.until is not None,
        tuple((column, value is not None) for column, value in search.only),
        search.is_backwards,
        search.is_held,
        is_keys,
    )


def values_of(search: Search[Any]) -> list[Any]:
    """The values behind the prefixes, in the order of their placeholders, without the limit."""
    values: list[Any] = []
    if search.until is not None:
        values.append(search.until)
    values += search.after or ()
    values += [value for _, value in search.only if value is not None]
    return values


def bound_values(
    search: Search[Any],
    prefixes: Sequence[Key],
    limit: int | None,
    many: Callable[[Sequence[Key]], list[Any]],
) -> list[Any]:
    """All values of a search's statement; `many` takes several prefixes."""
    first = prefixes[0] if len(prefixes) == 1 else many(prefixes)
    return [*first, *values_of(search), limit]


class Target(NamedTuple):
    """The table of a search, the alias of its rows, and the columns that are read."""

    table: str
    alias: str
    columns: str


def target_of(form: Form, record: str) -> Target:
    """The target of a search; `record`: the columns of an execution."""
    if isinstance(form.of, ExecutionIndex):
        return Target(
            form.of.on, "c", "c.partition_key, c.execution_id" if form.is_keys else record
        )
    table = form.of.table
    names = table.key_columns if form.is_keys else table.fields
    return Target(table.name, "t", ", ".join(f"t.{name}" for name in names))


class Parts(NamedTuple):
    """The parts of a search's statement."""

    where: str  # with its word, or empty
    order: str  # behind ORDER BY
    limit: str  # its placeholder


def parts_of(form: Form, alias: str, mark: Mark, first: int) -> Parts:
    """The conditions, the order and the limit; placeholders are numbered from `first`. Those of a
    single prefix come first; many prefixes are matched by the store."""
    numbers = count(first)
    conditions = list(_conditions(form, alias, mark, numbers))
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    ending = " DESC" if form.is_backwards else ""
    order = ", ".join(f"{alias}.{name}{ending}" for name in form.of.order[form.size :])
    return Parts(where, order, mark(next(numbers)))


def _conditions(form: Form, alias: str, mark: Mark, numbers: Iterator[int]) -> Iterator[str]:
    index, rest = form.of, form.of.order[form.size :]
    if form.is_one:
        for name in index.order[: form.size]:
            yield f"{alias}.{name} = {mark(next(numbers))}"
    if index.where is not None:
        yield f"{alias}.{index.where}"
    if form.has_until:
        yield f"{alias}.{rest[0]} <= {mark(next(numbers))}"
    if form.has_after:
        names = ", ".join(f"{alias}.{name}" for name in rest)
        marks = ", ".join(mark(next(numbers)) for _ in rest)
        yield f"({names}) {'<' if form.is_backwards else '>'} ({marks})"
    for column, has_value in form.only:
        right = f"= {mark(next(numbers))}" if has_value else "IS NULL"
        yield f"{alias}.{column} {right}"
