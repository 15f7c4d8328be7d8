"""`ff result`: the result of an execution, at once or when it has ended."""

from __future__ import annotations

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.executions import show_result
from flowfabric.cli.watching import watch
from flowfabric.model.state import TERMINAL_STATES


def add_arguments(parser: FfParser) -> None:
    """The execution, and how long to wait for it."""
    add_id(parser)
    parser.add_argument(
        "--wait",
        type=values.duration_ms,
        nargs="?",
        const=None,
        default=0,
        metavar="TIME",
        help="wait for it, so long at most",
    )
    parser.add_argument("--raw", action="store_true", help="the stored bytes, unchanged")
    parser.set_defaults(handler=result)


async def result(call: Call) -> Exit:
    """The result on the output stream; a failure's reason on the error stream."""
    wait_ms = call.arguments.wait
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        execution_id = snapshot.execution_id
        if wait_ms != 0 and snapshot.public_state not in TERMINAL_STATES:
            snapshot = await watch(engine, call, execution_id, timeout_ms=wait_ms)
        data = await engine.get_execution_result(execution_id=execution_id)
    return show_result(call, snapshot, data, raw=call.arguments.raw)
