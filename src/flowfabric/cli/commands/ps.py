"""`ff ps`: executions, newest first."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.advice import misspelt
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_wide
from flowfabric.cli.many import add_filters, run_filter
from flowfabric.cli.references import as_shown
from flowfabric.cli.show.executions import note
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.results import ExecutionSnapshot

_COLUMNS: Final = (
    Column("ID"),
    Column("STATE", styled=True),
    Column("KIND", shrinks=True, least=12),
    Column("LANE", shrinks=True, silent="default"),
    Column("PRI", right=True, silent="0"),
    Column("TRY", right=True),
    Column("AGE", right=True),
    Column("NOTE", shrinks=True, least=30),
)


def add_arguments(parser: FfParser) -> None:
    """Which executions, and how many of them."""
    add_filters(parser)
    parser.add_argument("--text", metavar="WORDS", help="found in kind, lane, tags or reasons")
    parser.add_argument(
        "--limit", type=values.whole_number, default=50, metavar="N", help="rows (default 50)"
    )
    parser.add_argument("--cursor", metavar="CURSOR", help="go on where a listing stopped")
    parser.add_argument("--all", action="store_true", help="every page")
    add_wide(parser)
    parser.set_defaults(handler=ps)


async def ps(call: Call) -> Exit:
    """One page, or all of them."""
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        filters = run_filter(call.arguments).listing(now)
        if call.arguments.text:
            filters["text"] = call.arguments.text
        rows, cursor = await _gather(engine, call, filters)
        why_none = ""
        if not rows:
            why_none = await misspelt(engine, kind=call.arguments.kind, lane=call.arguments.lane)
    if call.terminal.as_json:
        call.terminal.document({"executions": plain(rows), "next_cursor": cursor})
        return Exit.OK
    if not rows:
        nothing = "no executions match" if any(filters.values()) else "no executions yet"
        call.terminal.note(clean(f"{nothing}: {why_none}" if why_none else nothing))
    else:
        shown = as_shown(call, "execution", [each.execution_id for each in rows])
        lines = [(shown[each.execution_id], *_row(each, now)) for each in rows]
        call.terminal.table(_COLUMNS, lines)
    if cursor is not None:
        call.terminal.note(f"more: the same command with --cursor {cursor}, or --all")
    return Exit.OK


async def _gather(
    engine: EngineBackend, call: Call, filters: dict[str, Any]
) -> tuple[list[ExecutionSnapshot], str | None]:
    rows: list[ExecutionSnapshot] = []
    cursor = call.arguments.cursor
    everything, limit = call.arguments.all, call.arguments.limit
    while True:
        size = PAGE_MAX if everything else min(PAGE_MAX, limit - len(rows))
        page = await engine.list_executions(**filters, cursor=cursor, limit=size)
        rows.extend(page.items)
        cursor = page.next_cursor
        # A text search may return a short page and still have more to look at.
        if cursor is None or (not everything and len(rows) >= limit):
            return rows, cursor
        call.terminal.status(f"{len(rows)} executions …")


def _row(snapshot: ExecutionSnapshot, now: int) -> tuple[object, ...]:
    return (
        snapshot.public_state.value,
        snapshot.execution_kind,
        snapshot.lane_id,
        snapshot.priority,
        snapshot.total_attempt_count,
        span(max(0, now - snapshot.created_at)).partition(" ")[0],
        note(snapshot, now),
    )
