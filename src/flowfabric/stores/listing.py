"""The one listing statement, put together from fixed fragments; values are always bound.

An index in creation order begins with a state or with a route. A listing of several of them takes
the first of each, a page at most, and merges these: it never sorts all that the filter matches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flowfabric.model.state import IDS_OF_PUBLIC_STATE, VECTOR_OF_ID
from flowfabric.stores.base import ListFilter
from flowfabric.stores.indexes import IN_STATE
from flowfabric.stores.queries import RECORD_COLUMNS
from flowfabric.stores.searches import Mark

Placeholder = Callable[[Any], str]

# A search in each of more routes would take longer to plan than to make: then it is one search, and
# the database chooses between all of their rows and all rows by creation.
MERGED_MAX: Final = 64
# Work that waits for its first attempt (1) and work that runs (60): every execution is in both
# states once, so each has an index of its own, which grows at its end.
_OWN_INDEX: Final = (1, 60)
# The predicate of the index of other states, literally, so that the planner sees that it applies.
_LISTED_BY_STATE: Final = IN_STATE.where


class Bound(list[Any]):
    """The values of a statement, in the order of their placeholders."""

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self._mark = mark

    def bind(self, value: Any) -> str:
        """Takes a value and returns its placeholder."""
        self.append(value)
        return self._mark(len(self))


def listing_sql(
    wanted: ListFilter,
    route_ids: list[int] | None,
    limit: int,
    bind: Placeholder,
    columns: str = RECORD_COLUMNS,
) -> str:
    """SELECT … in the order of the listing. `bind` takes a value and returns its placeholder."""
    if wanted.tag is None and _is_by_state(wanted):
        sources = _by_state(wanted, route_ids, bind)
        return _merged(columns, sources, "c", wanted, bind(limit))
    if wanted.tag is None and route_ids is not None and len(route_ids) <= MERGED_MAX:
        sources = _by_route(wanted, route_ids, bind)
        return _merged(columns, sources, "b", wanted, bind(limit))
    lead, source = _source(wanted, route_ids, bind)
    return f"SELECT {columns} FROM {source}{_order(lead, wanted)} LIMIT {bind(limit)}"


def counting_sql(wanted: ListFilter, route_ids: list[int] | None, bind: Placeholder) -> str:
    """SELECT the number of the same rows; those of each source are counted no further than asked
    for, so that the sum may be over it."""
    if wanted.tag is None and _is_by_state(wanted):
        sources = _by_state(wanted, route_ids, bind)
    else:
        sources = [_source(wanted, route_ids, bind)[1]]
    most = "" if wanted.counted_to is None else f" LIMIT {bind(wanted.counted_to)}"
    each = (f"SELECT count(*) AS n FROM (SELECT 1 FROM {one}{most}) AS one" for one in sources)
    return f"SELECT sum(n) FROM ({' UNION ALL '.join(each)}) AS counted"


def _is_by_state(wanted: ListFilter) -> bool:
    """Whether the hot table's partial indexes have all of these states; the others are met by
    creation."""
    return bool(wanted.states) and "completed" not in wanted.states


def _order(lead: str, wanted: ListFilter) -> str:
    """By creation. `lead`: the table, if the columns need one."""
    way, table = " ASC" if wanted.is_oldest_first else " DESC", f"{lead}." if lead else ""
    return f" ORDER BY {table}created_at{way}, {table}execution_id{way}"


def _merged(columns: str, sources: list[str], lead: str, wanted: ListFilter, limit: str) -> str:
    """The first of each source, the first of these, and then their records."""
    first = " UNION ALL ".join(
        f"SELECT * FROM (SELECT {lead}.created_at, {lead}.execution_id FROM {source}"
        f"{_order(lead, wanted)} LIMIT {limit}) AS one"
        for source in sources
    )
    return (
        f"SELECT {columns} FROM ({first}{_order('', wanted)} LIMIT {limit}) AS k"
        " JOIN ff_exec_core AS c ON c.execution_id = k.execution_id"
        " JOIN ff_exec_body AS b ON b.execution_id = k.execution_id"
        f"{_order('k', wanted)}"
    )


def _by_state(wanted: ListFilter, route_ids: list[int] | None, bind: Placeholder) -> list[str]:
    """For each state number, where to look and for what."""
    where = _conditions(wanted, "c", bind)
    if route_ids is not None:
        where.append(f"c.route_id IN ({_many(route_ids, bind)})")
    shared = "".join(f" AND {each}" for each in where)
    return [
        f"ff_exec_core AS c WHERE {_in_state(number, bind)}{shared}" for number in _numbers(wanted)
    ]


def _in_state(number: int, bind: Placeholder) -> str:
    """The condition that the planner finds the index of this state by."""
    if number in _OWN_INDEX:
        return f"c.state_id = {number}"
    return f"c.state_id = {bind(number)} AND {_LISTED_BY_STATE}"


def _by_route(wanted: ListFilter, route_ids: list[int], bind: Placeholder) -> list[str]:
    """For each route, where to look and for what."""
    where = _conditions(wanted, "b", bind)
    if wanted.states:
        where.append(f"c.state_id IN ({_many(_numbers(wanted), bind)})")
    needs_core = wanted.states or wanted.partition is not None
    join = " JOIN ff_exec_core AS c ON c.execution_id = b.execution_id" if needs_core else ""
    shared = "".join(f" AND {each}" for each in where)
    return [
        f"ff_exec_body AS b{join} WHERE b.route_id = {bind(number)}{shared}" for number in route_ids
    ]


def _source(wanted: ListFilter, route_ids: list[int] | None, bind: Placeholder) -> tuple[str, str]:
    """The leading table, and all tables with the conditions on their rows."""
    lead = "c" if _is_by_state(wanted) else "b"
    where = []
    if wanted.states:
        where.append(f"c.state_id IN ({_many(_numbers(wanted), bind)})")
    if route_ids is not None:
        where.append(f"{lead}.route_id IN ({_many(route_ids, bind)})")
    where += _conditions(wanted, lead, bind)
    joins = "JOIN ff_exec_body AS b ON b.execution_id = c.execution_id"
    if wanted.tag is not None:
        key, value = (bind(part) for part in wanted.tag)
        joins += (
            " JOIN ff_exec_tag AS t ON t.execution_id = c.execution_id"
            f" AND t.tag_key = {key} AND t.tag_value = {value}"
        )
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    return lead, f"ff_exec_core AS c {joins}{condition}"


def _conditions(wanted: ListFilter, lead: str, bind: Placeholder) -> list[str]:
    """What is asked of a row beside its state, route and tag."""
    where = []
    if wanted.created_after is not None:
        where.append(f"{lead}.created_at >= {bind(wanted.created_after)}")
    if wanted.created_before is not None:
        where.append(f"{lead}.created_at < {bind(wanted.created_before)}")
    if wanted.partition is not None:
        where.append(f"c.partition_key = {bind(wanted.partition)}")
    if wanted.before is not None:
        when, uuid = (bind(value) for value in wanted.before)
        then = ">" if wanted.is_oldest_first else "<"
        where.append(f"({lead}.created_at, {lead}.execution_id) {then} ({when}, {uuid})")
    return where


def _numbers(wanted: ListFilter) -> list[int]:
    numbers = [number for state in wanted.states for number in IDS_OF_PUBLIC_STATE[state]]
    if wanted.reason is None:
        return numbers
    return [each for each in numbers if VECTOR_OF_ID[each].blocking_reason is wanted.reason]


def _many(values: list[int], bind: Placeholder) -> str:
    return ", ".join(bind(value) for value in values)
