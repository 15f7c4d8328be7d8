"""The one listing statement, put together from fixed fragments; values are always bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flowfabric.model.state import IDS_OF_PUBLIC_STATE
from flowfabric.stores.base import ListFilter
from flowfabric.stores.queries import RECORD_COLUMNS

Placeholder = Callable[[Any], str]


class Bound(list[Any]):
    """The values of a statement, in the order of their placeholders."""

    def numbered(self, mark: str) -> Placeholder:
        """Takes a value and returns its placeholder: the mark and its number."""

        def bind(value: Any) -> str:
            self.append(value)
            return f"{mark}{len(self)}"

        return bind


def listing_sql(
    wanted: ListFilter, route_ids: list[int] | None, limit: int, bind: Placeholder
) -> str:
    """SELECT … newest first. `bind` takes a value and returns its placeholder."""
    lead, source = _source(wanted, route_ids, bind)
    return (
        f"SELECT {RECORD_COLUMNS} FROM {source}"
        f" ORDER BY {lead}.created_at DESC, {lead}.execution_id DESC LIMIT {bind(limit)}"
    )


def counting_sql(wanted: ListFilter, route_ids: list[int] | None, bind: Placeholder) -> str:
    """SELECT count(*) of the same rows."""
    _, source = _source(wanted, route_ids, bind)
    return f"SELECT count(*) FROM {source}"


def _source(wanted: ListFilter, route_ids: list[int] | None, bind: Placeholder) -> tuple[str, str]:
    """The leading table, and all tables with the conditions on their rows."""
    # State filters are driven by the hot table's partial index, all others by the body's indexes.
    by_state = bool(wanted.states) and "completed" not in wanted.states
    lead = "c" if by_state else "b"
    # The predicate of the partial index, literally, so that the planner sees that it applies.
    where = ["c.state_id NOT IN (80, 81)"] if by_state else []
    if wanted.states:
        numbers = [number for state in wanted.states for number in IDS_OF_PUBLIC_STATE[state]]
        where.append(f"c.state_id IN ({_many(numbers, bind)})")
    if route_ids is not None:
        where.append(f"{lead}.route_id IN ({_many(route_ids, bind)})")
    if wanted.created_after is not None:
        where.append(f"{lead}.created_at >= {bind(wanted.created_after)}")
    if wanted.created_before is not None:
        where.append(f"{lead}.created_at < {bind(wanted.created_before)}")
    if wanted.partition is not None:
        where.append(f"c.partition_key = {bind(wanted.partition)}")
    if wanted.before is not None:
        when, uuid = (bind(value) for value in wanted.before)
        where.append(f"({lead}.created_at, {lead}.execution_id) < ({when}, {uuid})")
    joins = "JOIN ff_exec_body AS b ON b.execution_id = c.execution_id"
    if wanted.tag is not None:
        key, value = (bind(part) for part in wanted.tag)
        joins += (
            " JOIN ff_exec_tag AS t ON t.execution_id = c.execution_id"
            f" AND t.tag_key = {key} AND t.tag_value = {value}"
        )
    condition = f" WHERE {' AND '.join(where)}" if where else ""
    return lead, f"ff_exec_core AS c {joins}{condition}"


def _many(values: list[int], bind: Placeholder) -> str:
    return ", ".join(bind(value) for value in values)
