"""Dead letters: listed, counted and dismissed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from flowfabric import limits
from flowfabric.api import dead as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import check_route, routes_of
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.kernel.execution.dead import Dismiss, Restore, is_dead
from flowfabric.model.checks import check_flag, check_instant, check_name, clip_text
from flowfabric.model.dead import DeadCount, DeadLetter, DeadRow, Letter
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.state import PublicState
from flowfabric.stores.base import ListFilter, Reader
from flowfabric.stores.indexes import (
    DEAD_LETTERS,
    DEAD_OF_CATEGORY,
    DEAD_OF_GROUP,
    DEAD_OF_KIND,
    Search,
    newest_first,
)
from flowfabric.stores.tables import DEAD

Place = tuple[int, str]
_STATES: Final = (PublicState.FAILED.value, PublicState.EXPIRED.value)


def _at_end(when: object, execution_id: object) -> Place:
    return check_instant(when, field="cursor"), *at_name(execution_id)


_LISTING: Final = Listing("list_dead", _at_end)


@answers(api.ListDead)
async def list_dead(machine: Machine, request: api.ListDead) -> Page[DeadLetter]:
    """A page of rows, with what their executions say."""
    limit, place = check_limit(request.limit), _LISTING.place(request.cursor)
    if check_flag(request.is_dismissed, field="is_dismissed"):
        return await _dismissed(machine, request, limit, place)
    search = replace(_listed(machine, request), after=place, limit=limit + 1)

    async def work(reader: Reader) -> Page[DeadLetter]:
        rows = await reader.search(search) if limit else []
        owners = await reader.get([row.execution_id for row in rows]) if rows else {}
        page = _LISTING.page(rows, limit, place_of=_place, show=lambda row: row)
        found = (_shown(row, owners.get(row.execution_id)) for row in page.items)
        return Page(tuple(filter(None, found)), page.next_cursor)

    return await machine.read(work)


async def _dismissed(
    machine: Machine, request: api.ListDead, limit: int, place: Place | None
) -> Page[DeadLetter]:
    """No index has them: all that failed or expired is looked at, a page at a time."""
    namespace, kind = machine.namespace(request.namespace), request.execution_kind
    check_route(namespace, None, kind)
    category, fingerprint = request.category, request.fingerprint
    if category is not None:
        check_name(category, field="category")
    if fingerprint is not None:
        _fingerprint(fingerprint)

    async def work(reader: Reader) -> Page[DeadLetter]:
        routes = routes_of(await reader.catalog(), namespace, None, kind)
        wanted = ListFilter(routes=routes, states=_STATES, before=place)
        rows = [] if routes == () or not limit else await reader.list_executions(wanted, limit + 1)
        known = [each for each in rows if isinstance(each, Execution)]
        letters = await reader.peek_rows(DEAD, [(each.execution_id,) for each in known])
        if len(rows) > limit:  # the last one only tells that more follow
            known = [each for each in rows[:limit] if isinstance(each, Execution)]
        following = newest_first(known[-1]) if known and len(rows) > limit else None
        found = [
            letter
            for each in known
            if (row := letters.get((each.execution_id,))) is not None
            and row.letter is Letter.DISMISSED
            and category in (None, row.category)
            and fingerprint in (None, row.fingerprint)
            and (letter := _shown(row, each)) is not None
        ]
        return Page(tuple(found), _LISTING.cursor(following))

    return await machine.read(work)


@answers(api.CountDead)
async def count_dead(machine: Machine, request: api.CountDead) -> tuple[DeadCount, ...]:
    """Row by row of the index, a page in each read."""
    search = replace(_search(machine, request), limit=limits.READ_FRAMES_MAX)
    counted: Counter[tuple[str, str]] = Counter()
    while True:
        rows = await machine.read(partial(_rows, search=search))
        counted.update((row.execution_kind, row.category) for row in rows)
        if len(rows) < limits.READ_FRAMES_MAX:
            break
        search = replace(search, after=_place(rows[-1]))
    order = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(DeadCount(*alike, number) for alike, number in order)


@commands(api.RestoreDead)
def restore_dead(machine: Machine, request: api.RestoreDead) -> Restore:
    """Into the listing again."""
    return Restore(
        execution_id=machine.check_id(request.execution_id),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
    )


@commands(api.DismissDead)
def dismiss_dead(machine: Machine, request: api.DismissDead) -> Dismiss:
    """Out of the listing."""
    return Dismiss(
        execution_id=machine.check_id(request.execution_id),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
    )


async def _rows(reader: Reader, *, search: Search[DeadRow]) -> list[DeadRow]:
    return await reader.search(search)


def _listed(machine: Machine, request: api.ListDead) -> Search[DeadRow]:
    """By the index of the group of failures, where one is asked for."""
    search = _search(machine, request)
    if request.fingerprint is None:
        return search
    kind, category = request.execution_kind, request.category
    wanted = (("execution_kind", kind), ("category", category))
    prefix = (machine.namespace(request.namespace), _fingerprint(request.fingerprint))
    only = tuple((name, value) for name, value in wanted if value is not None)
    return replace(search, index=DEAD_OF_GROUP, prefixes=(prefix,), only=only)


def _fingerprint(given: object) -> str:
    return check_name(given, field="fingerprint")


def _search(machine: Machine, request: api.ListDead | api.CountDead) -> Search[DeadRow]:
    """By the index of the kind or of the category; the other one is compared."""
    namespace = machine.namespace(request.namespace)
    kind, category = request.execution_kind, request.category
    index = DEAD_LETTERS
    prefix: tuple[str, ...] = (namespace,)
    only: tuple[tuple[str, str], ...] = ()
    if category is not None:
        category = check_name(category, field="category")
        index, prefix = DEAD_OF_CATEGORY, (namespace, category)
    if kind is not None:
        index, prefix = DEAD_OF_KIND, (namespace, check_name(kind, field="execution_kind"))
        only = () if category is None else (("category", category),)
    return Search(index, (prefix,), only=only, is_backwards=True, skips_corrupt=True)


def _place(row: DeadRow) -> Place:
    return row.ended_at, row.execution_id


def _shown(row: DeadRow, execution: Any) -> DeadLetter | None:
    """None where it was replayed or purged meanwhile, or cannot be read."""
    if not isinstance(execution, Execution) or not is_dead(execution):
        return None
    return DeadLetter(
        execution_id=row.execution_id,
        namespace=row.namespace,
        execution_kind=row.execution_kind,
        lane_id=execution.lane_id,
        public_state=execution.public_state,
        category=row.category,
        fingerprint=row.fingerprint,
        reason=execution.failure_reason or "",
        attempts=execution.total_attempt_count,
        ended_at=row.ended_at,
        purge_at=execution.purge_at,
    )
