"""`ff mail`: the mailboxes of an execution, or the unread messages of one."""

from __future__ import annotations

from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.plain import decoded, plain, preview
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import relative
from flowfabric.limits import PAGE_MAX
from flowfabric.model.mailbox import Message

_BOXES: Final = (Column("BOX"), Column("UNREAD", right=True), Column("RECEIVED", right=True))
_MESSAGES: Final = (
    Column("#", right=True),
    Column("SENT"),
    Column("SENDER", shrinks=True),
    Column("ASKS"),
    Column("MESSAGE", shrinks=True, least=24),
)


def add_arguments(parser: FfParser) -> None:
    """The execution, and perhaps one of its mailboxes."""
    add_id(parser)
    parser.add_argument("mailbox", nargs="?", metavar="BOX", help="the unread messages of this one")
    parser.set_defaults(handler=mail)


async def mail(call: Call) -> Exit:
    """Nothing is received by looking at it."""
    async with call.engine() as engine:
        execution_id = (await named(call, engine)).execution_id
        if call.arguments.mailbox is not None:
            messages = await _unread(engine, execution_id, call.arguments.mailbox)
            return _show_messages(call, messages, await engine.server_time_ms())
        boxes = await engine.list_mailboxes(execution_id=execution_id)
    if call.terminal.as_json:
        call.terminal.document({"mailboxes": plain(boxes)})
    elif not boxes:
        call.terminal.note("no mailbox: it was submitted without one")
    else:
        call.terminal.table(_BOXES, [(each.mailbox, each.unread, each.received) for each in boxes])
    return Exit.OK


async def _unread(engine: EngineBackend, execution_id: str, mailbox: str) -> list[Message]:
    found: list[Message] = []
    while True:
        page = await engine.read_messages(
            execution_id=execution_id,
            mailbox=mailbox,
            after=found[-1].number if found else None,
            limit=PAGE_MAX,
        )
        found += page.messages
        if not (page.has_more and page.messages):
            return found


def _show_messages(call: Call, messages: list[Message], now: int) -> Exit:
    if call.terminal.as_json:
        shown = [plain(each) | {"payload": decoded(each.payload)} for each in messages]
        call.terminal.document({"messages": shown})
        return Exit.OK
    if not messages:
        call.terminal.note("no message is unread")
        return Exit.OK
    rows = [
        (
            each.number,
            relative(each.sent_at, now),
            clean(each.sender),
            "yes" if each.wants_reply else "",
            clean(preview(each.payload)),
        )
        for each in messages
    ]
    call.terminal.table(_MESSAGES, rows)
    return Exit.OK
