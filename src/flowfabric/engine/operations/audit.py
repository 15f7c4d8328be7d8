"""The audit trail: rows that are added by themselves, and its listing."""

from __future__ import annotations

from typing import Any, Final

from flowfabric import ids, limits
from flowfabric.api import audit as api
from flowfabric.api.page import Page
from flowfabric.engine.acts import Act
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.listing import Listing, check_limit
from flowfabric.engine.operations.performing import answers
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.errors import InvalidInput
from flowfabric.kernel.access import check_namespaces
from flowfabric.model.audit import AuditEntry, AuditRow, Refusals, shown_entry
from flowfabric.model.checks import (
    check_instant,
    check_integer,
    check_list,
    check_text,
    clip_text,
)
from flowfabric.model.event import OperatorEvent
from flowfabric.stores.base import Reader, Transaction
from flowfabric.stores.indexes import (
    AUDIT_BY_ACTION,
    AUDIT_BY_ACTOR,
    AUDIT_BY_NAMESPACE,
    AUDIT_BY_SUBJECT,
    Index,
    Search,
    by_key,
)
from flowfabric.stores.tables import AUDIT, Key


def _place(occurred_at: object, audit_id: object) -> tuple[int, str]:
    at = check_instant(occurred_at, field="cursor")
    return at, check_text(audit_id, field="cursor", max_bytes=limits.NAME_BYTES)


_LISTING: Final = Listing("list_audit", _place)
# The index for the narrowest filter that is given.
_FILTERS: Final = (
    ("subject", AUDIT_BY_SUBJECT),
    ("actor", AUDIT_BY_ACTOR),
    ("action", AUDIT_BY_ACTION),
)


@answers(api.ListAudit)
async def list_audit(machine: Machine, request: api.ListAudit) -> Page[AuditEntry]:
    """By the index of what is filtered by, newest first."""
    place, limit = _LISTING.place(request.cursor), check_limit(request.limit)
    search = _search(request, place, limit)

    async def work(reader: Reader) -> list[AuditRow]:
        return await reader.search(search) if limit else []

    found = await machine.read(work)
    if request.since is not None:
        found = [each for each in found if each.occurred_at >= request.since]
    return _LISTING.page(
        found, limit, place_of=lambda row: (row.occurred_at, row.audit_id), show=shown_entry
    )


def _search(request: api.ListAudit, place: tuple[int, str] | None, limit: int) -> Search[AuditRow]:
    given: dict[str, str] = {}
    for name, _ in _FILTERS:
        if (value := getattr(request, name)) is not None:
            given[name] = check_text(value, field=name, max_bytes=limits.AUDIT_TEXT_BYTES)
    for field in ("since", "until"):
        if (instant := getattr(request, field)) is not None:
            check_instant(instant, field=field)
    namespaces = check_namespaces(request.namespaces)
    only: list[tuple[str, Any]] = list(given.items())
    index: Index[AuditRow] = by_key(AUDIT)
    prefixes: tuple[Key, ...] = ((),)
    if namespaces is not None:
        index, prefixes = AUDIT_BY_NAMESPACE, tuple((each,) for each in namespaces)
    else:
        for name, narrow in _FILTERS:
            if name in given:
                index, prefixes = narrow, ((given[name],),)
                only.remove((name, given[name]))
                break
    if request.until is not None and (place is None or request.until <= place[0]):
        place = (request.until, "")  # before all rows of that instant
    return Search(
        index,
        prefixes,
        after=place,
        limit=limit + 1,
        only=tuple(only),
        is_backwards=True,
        skips_corrupt=True,
    )


# --- rows ----------------------------------------------------------------------------------------


def note_act(
    machine: Machine,
    rows: Rows,
    act: Act | None,
    event: OperatorEvent | None,
    now: int,
    *,
    actor: str = "",
) -> None:
    """Add the row of an act to what its transaction writes."""
    if act is None:
        return
    row = act.row(event, now, machine.config.audit_retention_ms, actor)
    if row is not None:
        rows.put(AUDIT, row)


async def note_unwritten(machine: Machine, act: Act) -> None:
    """A call that has written nothing has a row by itself."""
    if act.is_done or act.origin is None:
        return

    async def work(tx: Transaction) -> None:
        await tx.catalog()  # with the clock
        rows = Rows()
        note_act(machine, rows, act, None, tx.now)
        await save_rows(tx, rows)

    await machine.transact(work)


@answers(api.RecordRefusals)
async def record_refusals(machine: Machine, request: api.RecordRefusals) -> int:
    """A row for each."""
    given = [_checked(each) for each in check_list(request.refusals, field="refusals")]
    if len(given) > limits.REFUSALS_MAX:
        raise InvalidInput(f"refusals: at most {limits.REFUSALS_MAX}", field="refusals")
    retention_ms = machine.config.audit_retention_ms

    async def work(tx: Transaction) -> None:
        await tx.catalog()  # with the clock
        rows = Rows()
        for refused, audit_id in zip(given, ids.new_uuid7s(len(given)), strict=True):
            rows.put(AUDIT, _refused(refused, audit_id, tx.now, retention_ms))
        await save_rows(tx, rows)

    if given:
        await machine.transact(work)
    return len(given)


def _checked(given: object) -> Refusals:
    if not isinstance(given, Refusals):
        got = type(given).__name__
        raise InvalidInput(f"refusals: expected Refusals, got {got}", field="refusals")
    check_integer(given.times, field="refusals", least=1, most=limits.COUNTED_MAX)
    return given


def _refused(given: Refusals, audit_id: str, now: int, retention_ms: int) -> AuditRow:
    texts = [
        clip_text(each, limits.AUDIT_TEXT_BYTES, field="refusals")
        for each in (given.actor, given.address, given.action)
    ]
    actor, address, action = texts
    return AuditRow(
        now,
        audit_id,
        actor,
        address,
        action,
        "",
        "",
        clip_text(given.request_id, limits.AUDIT_TEXT_BYTES, field="refusals"),
        clip_text(given.namespace, limits.AUDIT_TEXT_BYTES, field="refusals"),
        clip_text(given.code, limits.AUDIT_TEXT_BYTES, field="refusals"),
        given.times,
        {},
        now + retention_ms,
    )
