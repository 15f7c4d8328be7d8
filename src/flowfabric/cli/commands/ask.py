"""`ff ask`: a message to a mailbox of an execution, and the answer to it."""

from __future__ import annotations

from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.messages import add_message, sent
from flowfabric.cli.show.plain import decoded, plain, preview


def add_arguments(parser: FfParser) -> None:
    """The message, and how long to wait."""
    add_message(parser)
    parser.add_argument(
        "--timeout",
        type=values.duration_ms,
        metavar="TIME",
        help="wait so long at most; asked again with the same --key, it waits for the same answer",
    )
    parser.set_defaults(handler=ask)


async def ask(call: Call) -> Exit:
    """The answer on the output stream."""
    async with call.engine() as engine:
        execution_id, told = await sent(call, engine, wants_reply=True)
        answer = await engine.wait_for_reply(
            execution_id=execution_id,
            mailbox=told.mailbox,
            number=told.number,
            message_id=told.message_id,
            wait_ms=call.arguments.timeout,
        )
    if call.terminal.as_json:
        document = plain(told) | {"reply": decoded(answer.payload)}
        call.terminal.document(document | {"replied_at": answer.replied_at})
    else:
        call.terminal.stored(preview(answer.payload))
    return Exit.OK
