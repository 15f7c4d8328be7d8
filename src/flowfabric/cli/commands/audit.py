"""`ff audit`: what people and programs did to the work of others, and what was refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import absolute
from flowfabric.limits import PAGE_MAX
from flowfabric.model.audit import AuditEntry

EXPORT_MAX: Final = 100_000
_COLUMNS: Final = (
    Column("WHEN"),
    Column("ACTOR", shrinks=True, least=12),
    Column("ACTION", styled=True),
    Column("SUBJECT", shrinks=True, least=20),
    Column("REFUSED", shrinks=True, silent=""),
    Column("REASON", shrinks=True, least=10, silent=""),
)


def add_arguments(parser: FfParser) -> None:
    """Whose acts, and when."""
    parser.add_argument("--by", metavar="ACTOR", help="only those of this one, such as token:ID")
    parser.add_argument("--action", metavar="WORD", help="only this operation: cancel_execution")
    parser.add_argument("--subject", metavar="ID", help="only what was done to this; its whole id")
    parser.add_argument(
        "--since", type=values.ago_or_instant, metavar="TIME", help="1h, or 2026-11-16T08:00"
    )
    parser.add_argument("--until", type=values.instant, metavar="TIME", help="2026-11-16T09:00")
    parser.add_argument("--after", metavar="CURSOR", help="go on behind this cursor")
    parser.add_argument(
        "--limit", type=values.whole_number, default=50, metavar="N", help="entries (default 50)"
    )
    parser.add_argument(
        "--export",
        action="store_true",
        help=f"each entry as a line of JSON, up to {EXPORT_MAX:,} of them",
    )
    parser.set_defaults(handler=audit)


async def audit(call: Call) -> Exit:
    """A page of the audit trail, or all of it."""
    given = call.arguments
    async with call.engine() as engine:
        wanted = await _wanted(call, engine)
        if given.export:
            async for entry in _every(engine, wanted, given.after):
                call.terminal.record(plain(entry))
            return Exit.OK
        limit = min(given.limit, PAGE_MAX)
        page = await engine.list_audit(cursor=given.after, limit=limit, **wanted)
    if call.terminal.as_json:
        call.terminal.document({"entries": plain(page.items), "next_cursor": page.next_cursor})
        return Exit.OK
    if page.items:
        call.terminal.table(_COLUMNS, [_row(each) for each in page.items])
    else:
        call.terminal.note("nothing was done")
    if page.next_cursor is not None:
        call.terminal.note(f"more: the same command with --after {page.next_cursor}")
    return Exit.OK


async def _wanted(call: Call, engine: EngineBackend) -> dict[str, Any]:
    given = call.arguments
    since = given.since
    if since is not None:
        word, number = since
        since = number if word != "ago" else await engine.server_time_ms() - number
    return {
        "actor": given.by,
        "action": given.action,
        "subject": given.subject,
        "since": since,
        "until": given.until,
        "namespaces": None if given.namespace is None else (given.namespace,),
    }


async def _every(
    engine: EngineBackend, wanted: dict[str, Any], cursor: str | None
) -> AsyncIterator[AuditEntry]:
    """Entry by entry, page by page."""
    left = EXPORT_MAX
    while left > 0:
        page = await engine.list_audit(cursor=cursor, limit=min(left, PAGE_MAX), **wanted)
        for entry in page.items:
            yield entry
        left -= len(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return


def _row(entry: AuditEntry) -> tuple[object, ...]:
    refused = entry.code and (f"{entry.code} ×{entry.times}" if entry.times > 1 else entry.code)
    return (
        absolute(entry.occurred_at),
        entry.actor or "-",
        entry.action,
        entry.subject or "-",
        refused,
        entry.reason,
    )
