"""`ff fork`: go on from a copy of a journal, as a new execution."""

from __future__ import annotations

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.times import count


def add_arguments(parser: FfParser) -> None:
    """Which execution, where to cut its journal, and what is to be different."""
    add_id(parser)
    parser.add_argument(
        "--from",
        dest="before",
        required=True,
        metavar="KEY",
        help="the first call that is made again; ff journal shows the keys",
    )
    parser.add_argument(
        "--set",
        dest="results",
        action="append",
        type=values.result,
        default=[],
        metavar="KEY=JSON",
        help="another result of a step before it (repeat)",
    )
    parser.add_argument(
        "--input",
        dest="inputs",
        action="append",
        type=values.argument,
        default=[],
        metavar="NAME=TEXT|NAME:=JSON",
        help="another argument (repeat)",
    )
    parser.set_defaults(handler=fork)


async def fork(call: Call) -> Exit:
    """Create the fork; it runs at once."""
    results = values.by_name(call.arguments.results, "--set")
    inputs = values.by_name(call.arguments.inputs, "--input")
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        forked = await engine.fork_execution(
            execution_id=snapshot.execution_id,
            before=call.arguments.before,
            results=results,
            arguments=inputs,
        )
    call.shown.remember("execution", [forked.execution_id], is_listing=False)
    if call.terminal.as_json:
        call.terminal.document(plain(forked))
    else:
        call.terminal.line(forked.execution_id)
        copied = count(forked.entry_count, "recorded call")
        call.terminal.note(f"{copied} copied; what follows is done for real")
    return Exit.OK
