"""`ff events`: the feed of what happened, and what happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.events import NOW
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import absolute
from flowfabric.limits import PAGE_MAX
from flowfabric.model.feed import Event, EventFilter, EventKind, EventPage

_COLUMNS: Final = (
    Column("WHEN"),
    Column("KIND"),
    Column("EVENT", styled=True),
    Column("SUBJECT", shrinks=True, least=30),
    Column("DETAILS", shrinks=True, least=20),
)


def add_arguments(parser: FfParser) -> None:
    """Which events, and whether to wait for more."""
    parser.add_argument(
        "--kind",
        action="append",
        choices=[kind.value for kind in EventKind],
        help="only this kind of event; may be given again",
    )
    parser.add_argument(
        "--type", action="append", metavar="WORD", help="only these, such as failed"
    )
    parser.add_argument("--lane", metavar="LANE", help="only executions of this lane")
    parser.add_argument("--of", metavar="KIND", help="only executions of this kind of work")
    parser.add_argument("--id", metavar="ID", help="only one execution; its whole id")
    parser.add_argument("--flow", metavar="ID", help="only one flow; its whole id")
    parser.add_argument("--tag", type=values.tag, metavar="KEY=VALUE", help="only with this tag")
    add_reading(parser)
    parser.set_defaults(handler=events)


def add_reading(parser: FfParser) -> None:
    """Where to begin, how much to show, and whether to go on."""
    parser.add_argument("--after", metavar="CURSOR", help="go on behind this cursor, or: now")
    parser.add_argument(
        "--limit", type=values.whole_number, default=50, metavar="N", help="events (default 50)"
    )
    parser.add_argument(
        "--follow", action="store_true", help="wait for more, until Ctrl-C; begins now"
    )


async def events(call: Call) -> Exit:
    """A page, or all that comes."""
    given = call.arguments
    wanted = EventFilter(
        namespace=given.namespace,
        tag=given.tag,
        lane_id=given.lane,
        execution_kind=given.of,
        execution_id=given.id,
        flow_id=given.flow,
        event_types=tuple(given.type or ()),
    )
    return await show_feed(call, tuple(given.kind or ()), wanted)


async def show_feed(call: Call, kinds: Sequence[str], wanted: EventFilter) -> Exit:
    """Events of a feed as lines; with --json each is a document of its own when they follow."""
    given = call.arguments
    async with call.engine() as engine:
        if given.follow:
            await _follow(call, engine, kinds, wanted, given.after or NOW)
            return Exit.OK
        page = await engine.read_events(
            kinds=kinds, filter=wanted, after=given.after, limit=min(given.limit, PAGE_MAX)
        )
    _show_page(call, page)
    return Exit.OK


def _show_page(call: Call, page: EventPage) -> None:
    if call.terminal.as_json:
        call.terminal.document({"events": plain(page.events), "cursor": page.cursor})
        return
    if page.events:
        call.terminal.table(_COLUMNS, [_row(event) for event in page.events])
    else:
        call.terminal.note("no events")
    if not page.is_end:
        call.terminal.note(f"more: the same command with --after {page.cursor}")


async def _follow(
    call: Call, engine: EngineBackend, kinds: Sequence[str], wanted: EventFilter, after: str
) -> None:
    while True:
        page = await engine.subscribe_events(
            kinds=kinds, filter=wanted, after=after, limit=PAGE_MAX
        )
        after = page.cursor
        for event in page.events:
            if call.terminal.as_json:
                call.terminal.document(plain(event))
            else:
                call.terminal.line(clean("  ".join(map(str, _row(event)))))


def _row(event: Event) -> tuple[object, ...]:
    return (
        absolute(event.occurred_at),
        event.kind.value,
        event.event_type,
        event.subject,
        ", ".join(f"{name}={_word(value)}" for name, value in event.details.items() if value),
    )


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key}:{each}" for key, each in value.items())
    return str(value)
