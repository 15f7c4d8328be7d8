"""`ff audit`: what operators did, and in whose name."""

from __future__ import annotations

from flowfabric.cli.call import Call
from flowfabric.cli.commands.events import add_reading, show_feed
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.model.feed import EventFilter, EventKind


def add_arguments(parser: FfParser) -> None:
    """Which actions, and whether to wait for more."""
    parser.add_argument("--type", action="append", metavar="WORD", help="only these, such as held")
    parser.add_argument("--id", metavar="ID", help="only those on one execution; its whole id")
    add_reading(parser)
    parser.set_defaults(handler=audit)


async def audit(call: Call) -> Exit:
    """The audit trail."""
    given = call.arguments
    wanted = EventFilter(
        namespace=given.namespace, execution_id=given.id, event_types=tuple(given.type or ())
    )
    return await show_feed(call, (EventKind.OPERATOR.value,), wanted)
