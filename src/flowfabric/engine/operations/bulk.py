"""Bulk operations: begun, shown and stopped here; `engine/bulk_work.py` moves them."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from flowfabric import ids, limits
from flowfabric.api import bulk as api
from flowfabric.api.page import Page, at_uuid
from flowfabric.engine.bulk_met import Met, letters_of, listing_of, met_by
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.execution_lists import (
    check_route,
    check_words,
    list_filter,
)
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.errors import InvalidBlockingReason, InvalidInput
from flowfabric.kernel.bulk import MEANT, StartOperation, StopOperation, is_letter, is_meant
from flowfabric.model.bulk import (
    BulkAction,
    BulkArguments,
    BulkCounted,
    BulkFilter,
    BulkOperation,
    BulkState,
    OperationRow,
    shown_operation,
)
from flowfabric.model.checks import (
    check_flag,
    check_integer,
    check_name,
    check_uuid,
    clamp_priority,
    clip_text,
    word_of,
)
from flowfabric.model.dead import DeadRow, Letter
from flowfabric.model.limit_checks import check_word
from flowfabric.model.shown import shown
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.stores.base import Reader
from flowfabric.stores.indexes import Search, by_key
from flowfabric.stores.tables import OPERATIONS, Key

_LISTING: Final = Listing("list_operations", at_uuid)
_WITHOUT_REASON: Final = (BulkAction.RELEASE, BulkAction.PRIORITY)


@answers(api.StartOperation)
async def start_operation(
    machine: Machine, request: api.StartOperation
) -> BulkOperation | BulkCounted:
    """Count what fits, and record the operation."""
    action = check_word(request.action, BulkAction, field="action")
    given, wanted = _arguments(action, request), _filter(machine, action, request)
    is_dry = check_flag(request.dry_run, field="dry_run")
    name, actor = request.operation_id, machine.actor(request.actor)
    name = ids.new_uuid7s(1)[0] if name is None else check_uuid(name, field="operation_id")
    matched = await _count(machine, wanted)
    if is_dry:
        return BulkCounted(matched if given.limit is None else min(matched, given.limit))
    return await machine.execute(
        StartOperation(
            operation_id=name,
            action=action,
            filter=wanted,
            arguments=given,
            matched=matched,
            actor=actor,
        )
    )


@answers(api.DescribeOperation)
async def describe_operation(
    machine: Machine, request: api.DescribeOperation
) -> BulkOperation | None:
    """One row."""
    key = (check_uuid(request.operation_id, field="operation_id"),)
    found = await machine.read(lambda reader: reader.peek_rows(OPERATIONS, [key]))
    return shown_operation(found[key]) if key in found else None


@answers(api.ListOperations)
async def list_operations(machine: Machine, request: api.ListOperations) -> Page[BulkOperation]:
    """By id, which begins with the time, backwards."""
    limit, place = check_limit(request.limit), _LISTING.place(request.cursor)
    only: list[tuple[str, Any]] = []
    if request.namespace is not None:
        only.append(("namespace", check_name(request.namespace, field="namespace")))
    if request.state is not None:
        only.append(("state", check_word(request.state, BulkState, field="state")))
    search = Search(
        by_key(OPERATIONS),
        after=place,
        limit=limit + 1,
        only=tuple(only),
        is_backwards=True,
        skips_corrupt=True,
    )

    async def work(reader: Reader) -> list[OperationRow]:
        return await reader.search(search) if limit else []

    found = await machine.read(work)
    return _LISTING.page(
        found, limit, place_of=lambda row: (row.operation_id,), show=shown_operation
    )


@commands(api.StopOperation)
def stop_operation(machine: Machine, request: api.StopOperation) -> StopOperation:
    """No further piece."""
    return StopOperation(operation_id=check_uuid(request.operation_id, field="operation_id"))


# --- what is asked for ----------------------------------------------------------------------------


def _filter(machine: Machine, action: BulkAction, request: api.StartOperation) -> BulkFilter:
    place = (request.namespace, request.lane_id, request.execution_kind)
    check_route(*place)
    times = request.created_after, request.created_before
    listed = list_filter(request.states, request.tag, *times)
    fingerprint = _fingerprint(action, request)
    states = tuple(PublicState(each) for each in listed.states)
    namespace = request.namespace
    if fingerprint is not None:  # groups of failures are those of one tenant
        namespace = machine.namespace(namespace)
    return BulkFilter(
        namespace=namespace,
        states=states or tuple(sorted(MEANT[action])),
        lane_id=request.lane_id,
        execution_kind=request.execution_kind,
        tag=listed.tag,
        created_after=listed.created_after,
        created_before=listed.created_before,
        text=check_words(request.text),
        blocking_reason=_blocking_reason(request.blocking_reason),
        failure_category=_category(request.failure_category),
        dead_letter=_letter(action, request.dead_letter),
        fingerprint=fingerprint,
    )


def _fingerprint(action: BulkAction, request: api.StartOperation) -> str | None:
    given = request.fingerprint
    if given is None:
        return None
    _check_use("fingerprint", True, action in (BulkAction.RETRY, BulkAction.DISMISS), action)
    if request.dead_letter == Letter.DISMISSED:
        detail = "fingerprint: of open dead letters; dismissed ones are restored first"
        raise InvalidInput(detail, field="fingerprint")
    return check_name(given, field="fingerprint")


def _category(given: str | None) -> str | None:
    return None if given is None else check_name(given, field="failure_category")


def _letter(action: BulkAction, given: Letter | str | None) -> Letter | None:
    """Only what was dismissed can be restored."""
    if given is not None:
        return check_word(given, Letter, field="dead_letter")
    return Letter.DISMISSED if action is BulkAction.RESTORE else None


def _blocking_reason(given: BlockingReason | str | None) -> BlockingReason | None:
    if given is None:
        return None
    word = word_of(given, BlockingReason)
    if word is None:
        detail = f"blocking_reason: {shown(given, 80)}"
        raise InvalidBlockingReason(detail, field="blocking_reason")
    return word


def _arguments(action: BulkAction, request: api.StartOperation) -> BulkArguments:
    """What the action is told; what it has no use for is refused."""
    cascade = check_flag(request.cascade, field="cascade")
    fresh = check_flag(request.fresh, field="fresh")
    reason = clip_text(request.reason, limits.REASON_BYTES, field="reason")
    _check_use("reason", bool(reason), action not in _WITHOUT_REASON, action)
    _check_use("cascade", cascade, action is BulkAction.RETRY, action)
    _check_use("fresh", fresh, action is BulkAction.RETRY, action)
    rank = request.new_priority
    if rank is not None:
        rank = clamp_priority(rank, field="new_priority")
    _check_use("new_priority", rank is not None, action is BulkAction.PRIORITY, action)
    if action is BulkAction.PRIORITY and rank is None:
        raise InvalidInput("new_priority: must be given", field="new_priority")
    limit = request.limit
    if limit is not None:
        limit = check_integer(limit, field="limit", least=1, most=limits.OPERATION_LIMIT_MAX)
    return BulkArguments(
        reason=reason, new_priority=rank, cascade=cascade, fresh=fresh, limit=limit
    )


def _check_use(field: str, is_given: bool, has_use: bool, action: BulkAction) -> None:
    if is_given and not has_use:
        raise InvalidInput(f"{field}: has no use with {action.value}", field=field)


async def _count(machine: Machine, wanted: BulkFilter) -> int:
    """How many executions fit just now."""
    beside = (
        *(wanted.text, wanted.blocking_reason, wanted.failure_category, wanted.dead_letter),
        wanted.fingerprint,
    )
    if not any(beside):
        return await machine.read(lambda reader: _counted(reader, wanted))
    number, before = 0, None
    while True:
        page, letters = await machine.read(partial(_page, wanted=wanted, before=before))
        number += sum(
            is_meant(wanted, each) and is_letter(wanted, letters.get((each.execution_id,)))
            for each in page.known
        )
        if page.is_last:
            return number
        before = page.place


async def _page(
    reader: Reader, *, wanted: BulkFilter, before: tuple[int, str] | None
) -> tuple[Met, dict[Key, DeadRow]]:
    met = await met_by(reader, await reader.catalog(), wanted, reader.now, before, limits.PAGE_MAX)
    names = [each.execution_id for each in met.known]
    return met, await letters_of(reader, wanted, names)


async def _counted(reader: Reader, wanted: BulkFilter) -> int:
    listed = listing_of(await reader.catalog(), wanted, reader.now + 1)
    return 0 if listed is None else await reader.count_listed(listed)
