"""Reading minute statistics."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from flowfabric import limits
from flowfabric.api import statistics as api
from flowfabric.api.page import at_name, at_names
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.roll_up import NAME
from flowfabric.errors import InvalidInput
from flowfabric.kernel.statistics import spending_of, statistic_of
from flowfabric.model.checks import check_instant, check_integer, check_name
from flowfabric.model.limit_checks import check_word
from flowfabric.model.statistic import (
    MINUTE_MS,
    RollUpRow,
    SpendingPage,
    Statistics,
    Step,
    added_up,
)
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import MINUTES, ROLL_UP, SPEND_MINUTES, AnyTable, Key


# A cursor says also what the first page began with: an hour ago is another minute later on.
def _at_minute(since: object, when: object, *names: object) -> tuple[int, int, str, str, str]:
    namespace, lane_id, execution_kind = names
    first, second = _instants(since, when)
    return first, second, *at_names(namespace, lane_id), *at_name(execution_kind)


def _at_spend(
    since: object, when: object, budget_id: object, dimension: object
) -> tuple[int, int, str, str]:
    return *_instants(since, when), *at_names(budget_id, dimension)


def _instants(since: object, when: object) -> tuple[int, int]:
    return check_instant(since, field="cursor"), check_instant(when, field="cursor")


_STATISTICS: Final = Listing("read_statistics", _at_minute)
_SPENDING: Final = Listing("read_spending", _at_spend)


class _Asked(NamedTuple):
    """The checked part that both reads share."""

    since: int | None
    last_ms: int
    until: int | None
    step: Step
    limit: int


def _checked(request: api.ReadStatistics | api.ReadSpending) -> _Asked:
    since, until = request.since, request.until
    if since is not None:
        check_instant(since, field="since")
    last_ms = check_integer(request.last_ms, field="last_ms", least=0, most=limits.DURATION_MS_MAX)
    if until is not None:
        check_instant(until, field="until")
        if since is not None and until < since:
            raise InvalidInput("until: is before since", field="until")
    return _Asked(
        since, last_ms, until, check_word(request.by, Step, field="by"), check_limit(request.limit)
    )


def _only(**wanted: object) -> tuple[tuple[str, Any], ...]:
    given = [(name, value) for name, value in wanted.items() if value is not None]
    return tuple((name, check_name(value, field=name)) for name, value in given)


class _Found(NamedTuple):
    """Rows of a page, the first minute asked for, the place of the next page, and how far it is."""

    rows: list[Any]
    since: int
    following: Any
    state: RollUpRow


async def _find(
    reader: Reader,
    table: AnyTable,
    asked: _Asked,
    place: Key | None,
    only: tuple[tuple[str, Any], ...],
) -> _Found:
    await reader.catalog()  # with the clock
    # Read first: what is counted meanwhile is shown, and not yet said to be complete.
    state = (await reader.peek_rows(ROLL_UP, [(NAME,)])).get((NAME,))
    since = max(0, reader.now - asked.last_ms) if asked.since is None else asked.since
    since -= since % MINUTE_MS
    after: Key = (since, *[""] * (len(table.key_columns) - 1))
    if place is not None:
        since, *rest = place
        after = tuple(rest)
    search = Search(
        by_key(table),
        after=after,
        until=None if asked.until is None else asked.until - 1,
        limit=asked.limit + 1,
        only=only,
        skips_corrupt=True,
    )
    found = await reader.search(search) if asked.limit else []
    rows = found[: asked.limit]
    following = (since, *table.key_of(rows[-1])) if len(found) > asked.limit else None
    return _Found(rows, since, following, state or RollUpRow(NAME, {}, 0, 0))


@answers(api.ReadStatistics)
async def read_statistics(machine: Machine, request: api.ReadStatistics) -> Statistics:
    """A page of minutes, added up by step."""
    asked, place = _checked(request), _STATISTICS.place(request.cursor)
    only = _only(
        namespace=request.namespace,
        lane_id=request.lane_id,
        execution_kind=request.execution_kind,
    )
    found = await machine.read(lambda reader: _find(reader, MINUTES, asked, place, only))
    lines = added_up([statistic_of(each, asked.step, found.since) for each in found.rows])
    following = _STATISTICS.cursor(found.following)
    state = found.state
    return Statistics(tuple(lines), state.complete_until, following, state.lost_until)


@answers(api.ReadSpending)
async def read_spending(machine: Machine, request: api.ReadSpending) -> SpendingPage:
    """A page of minutes, added up by step."""
    asked, place = _checked(request), _SPENDING.place(request.cursor)
    only = _only(budget_id=request.budget_id)
    found = await machine.read(lambda reader: _find(reader, SPEND_MINUTES, asked, place, only))
    lines = added_up([spending_of(each, asked.step, found.since) for each in found.rows])
    following = _SPENDING.cursor(found.following)
    return SpendingPage(tuple(lines), found.state.complete_until, following)
