"""`ff timeline`: the life of one execution."""

from __future__ import annotations

from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import absolute, span

_COLUMNS: Final = (
    Column("WHEN"),
    Column("AFTER", right=True),
    Column("WHAT"),
    Column("DETAIL", shrinks=True, least=30),
)


def add_arguments(parser: FfParser) -> None:
    """The execution."""
    add_id(parser)
    parser.set_defaults(handler=timeline)


async def timeline(call: Call) -> Exit:
    """Everything that is kept of it, in order."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        found = await engine.read_timeline(execution_id=snapshot.execution_id)
    if call.terminal.as_json:
        call.terminal.document(plain(found))
        return Exit.OK
    first = found.entries[0].occurred_at
    rows = [
        (absolute(each.occurred_at), span(each.occurred_at - first), each.what, each.detail)
        for each in found.entries
    ]
    call.terminal.table(_COLUMNS, rows)
    if not found.is_whole:
        call.terminal.note("older entries are left out")
    return Exit.OK
