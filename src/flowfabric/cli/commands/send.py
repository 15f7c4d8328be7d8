"""`ff send`: a message to a mailbox of an execution."""

from __future__ import annotations

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser
from flowfabric.cli.messages import add_message, sent
from flowfabric.cli.show.plain import plain


def add_arguments(parser: FfParser) -> None:
    """The message."""
    add_message(parser)
    parser.set_defaults(handler=send)


async def send(call: Call) -> Exit:
    """Put it behind those that are there."""
    async with call.engine() as engine:
        _, told = await sent(call, engine, wants_reply=False)
    if call.terminal.as_json:
        call.terminal.document(plain(told))
    else:
        again = "" if told.is_new else "; it was sent before, and counts once"
        call.terminal.line(f"message {told.number} in {told.mailbox}{again}")
    return Exit.OK
