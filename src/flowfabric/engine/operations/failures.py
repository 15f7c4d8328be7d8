"""Groups of failures: listed, described and marked as known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.api import failures as api
from flowfabric.api.page import Page, at_name
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.operations.stream_reads import found_execution
from flowfabric.engine.unit.records import Rows
from flowfabric.errors import InvalidInput, NotFound
from flowfabric.kernel.failures import shown_group
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_name,
    clip_text,
)
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.failure import FailureGroup, FailureGroupRow, FailureMarked, FailureTold
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import Record, replace
from flowfabric.model.statistic import MINUTE_MS, Step
from flowfabric.stores.base import Changes, Reader, Transaction
from flowfabric.stores.indexes import FAILURES_SEEN, Search
from flowfabric.stores.logs import FAILURES
from flowfabric.stores.tables import DEAD, FAILURE_GROUPS, FAILURE_HOURS

_Place = tuple[int, str]
_FAILURES_MAX: Final = 1_000  # of one execution, to find the latest


def _at_group(when: object, fingerprint: object) -> _Place:
    return check_instant(when, field="cursor"), *at_name(fingerprint)


_LISTING: Final = Listing("list_failure_groups", _at_group)


class _Asked(Record, frozen=True):
    """The checked part that both reads share."""

    namespace: str
    last_ms: int
    step: Step


def _checked(machine: Machine, request: api.ListFailureGroups | api.DescribeFailureGroup) -> _Asked:
    step = check_word(request.by, Step, field="by")
    most = limits.FAILURE_MINUTES_MS if step is Step.MINUTE else limits.FAILURE_WINDOW_MS
    last_ms = check_integer(request.last_ms, field="last_ms", least=0, most=most)
    return _Asked(machine.namespace(request.namespace), last_ms, step)


@answers(api.ListFailureGroups)
async def list_failure_groups(
    machine: Machine, request: api.ListFailureGroups
) -> Page[FailureGroup]:
    """A page of groups by their index, then their hours."""
    asked, place = _checked(machine, request), _LISTING.place(request.cursor)
    limit = min(check_limit(request.limit), limits.FAILURE_GROUPS_MAX)
    with_known = check_flag(request.with_known, field="with_known")
    kind = request.execution_kind
    if kind is not None:
        check_name(kind, field="execution_kind")
    search = Search(
        FAILURES_SEEN,
        ((asked.namespace,),),
        after=place,
        limit=limit + 1,
        is_backwards=True,
        skips_corrupt=True,
    )

    async def work(reader: Reader) -> Page[FailureGroup]:
        await reader.catalog()  # with the clock
        since = _since(reader.now, asked.last_ms)
        found = await reader.search(search) if limit else []
        rows = [each for each in found if each.last_seen_at >= since]
        page = _LISTING.page(rows, limit, place_of=_place, show=lambda row: row)
        wanted = [
            row
            for row in page.items
            if (with_known or (row.known_until or 0) <= reader.now)
            and (kind is None or kind in row.execution_kinds)
        ]
        return Page(await _shown(reader, asked, wanted), page.next_cursor)

    return await machine.read(work)


def _place(row: FailureGroupRow) -> _Place:
    return row.last_seen_at, row.fingerprint


def _since(now: int, last_ms: int) -> int:
    since = max(0, now - last_ms)
    return since - since % MINUTE_MS


async def _shown(
    reader: Reader, asked: _Asked, rows: Sequence[FailureGroupRow]
) -> tuple[FailureGroup, ...]:
    """Groups with their hours, which are a day of them at most."""
    keys = [FAILURE_GROUPS.key_of(row) for row in rows]
    hours = (await reader.peek_rows(FAILURE_HOURS, keys)).values() if keys else ()
    now, since = reader.now, _since(reader.now, asked.last_ms)
    return tuple(
        shown_group(
            row,
            [each for each in hours if each.fingerprint == row.fingerprint],
            since=since,
            step=asked.step,
            now=now,
        )
        for row in rows
    )


@answers(api.DescribeFailureGroup)
async def describe_failure_group(
    machine: Machine, request: api.DescribeFailureGroup
) -> FailureGroup | None:
    """One row, and its hours."""
    asked = _checked(machine, request)
    fingerprint = check_name(request.fingerprint, field="fingerprint")
    return await machine.read(lambda reader: _group(reader, asked, fingerprint))


async def _group(reader: Reader, asked: _Asked, fingerprint: str) -> FailureGroup | None:
    await reader.catalog()  # with the clock
    key = (asked.namespace, fingerprint)
    row = (await reader.peek_rows(FAILURE_GROUPS, [key])).get(key)
    return None if row is None else (await _shown(reader, asked, [row]))[0]


@answers(api.DescribeFailure)
async def describe_failure(machine: Machine, request: api.DescribeFailure) -> FailureTold | None:
    """By its dead letter, else by the latest of its failures that the log still has."""
    key = machine.check_id(request.execution_id)

    async def work(reader: Reader) -> FailureTold | None:
        execution = await found_execution(reader, key)
        row = (await reader.peek_rows(DEAD, [(key,)])).get((key,))
        fingerprint = None if row is None else row.fingerprint
        if fingerprint is None:
            told = await reader.read_about(FAILURES, key, _FAILURES_MAX)
            fingerprint = told[-1][1].fingerprint if told else None
        if fingerprint is None:
            return None
        asked = _Asked(execution.namespace, limits.FAILURE_WINDOW_MS, Step.HOUR)
        return FailureTold(key, fingerprint, await _group(reader, asked, fingerprint))

    return await machine.read(work)


@answers(api.MarkFailureGroup)
async def mark_failure_group(machine: Machine, request: api.MarkFailureGroup) -> FailureMarked:
    """The row of the group, and an event of the audit trail."""
    namespace = machine.namespace(request.namespace)
    fingerprint = check_name(request.fingerprint, field="fingerprint")
    reason = clip_text(request.reason, limits.REASON_BYTES, field="reason")
    until, actor = request.known_until, machine.actor(request.actor)
    if until is not None:
        check_instant(until, field="known_until")
    key = (namespace, fingerprint)

    async def work(tx: Transaction) -> None:
        await tx.catalog()  # with the clock
        if until is not None and until > tx.now + limits.FAILURE_KNOWN_MS_MAX:
            raise InvalidInput("known_until: is more than 90 days away", field="known_until")
        found = await tx.rows(FAILURE_GROUPS, [key])
        if key not in found:
            raise NotFound(f"failure group {fingerprint!s:.100}", entity="failure_group")
        rows, by = Rows(), "" if until is None else actor
        rows.take(FAILURE_GROUPS, found)
        marked = replace(found[key], known_until=until, known_by=by, known_reason=reason)
        rows.put(FAILURE_GROUPS, marked)
        changes = Changes()
        changes.rows = rows.changes()
        details = {"known_until": until, "reason": reason}
        kind = OperatorEventType.FAILURES_MARKED
        changes.log(OperatorEvent(fingerprint, kind, details, namespace, {}, tx.now, actor))
        await tx.save(changes)

    await machine.transact(work)
    return FailureMarked(fingerprint, until)
