"""`ff line`: executions of one serial key, in their order."""

from __future__ import annotations

from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_action, add_actions, add_page
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import relative

_COLUMNS: Final = (
    Column("KEY", shrinks=True),
    Column("TURN OF", shrinks=True),
    Column("BEHIND", right=True),
    Column("HELD UP"),
)
_PLACES: Final = (Column("ID"), Column("KIND"), Column("STATE"), Column("SINCE"))


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    add_page(parser, inner=False)
    actions = add_actions(parser)
    add_page(add_action(actions, "ls", ls, "the lines there are, by their keys"), inner=True)
    one = add_action(actions, "show", show, "the executions of one line, the next one first")
    one.add_argument("key", metavar="KEY", help="the serial key")
    add_page(one, inner=True)
    go_on = add_action(actions, "release", release, "let a line go on past its failed head")
    go_on.add_argument("key", metavar="KEY", help="the serial key")


async def ls(call: Call) -> Exit:
    """Every line of the tenant."""
    arguments = call.arguments
    async with call.engine() as engine:
        page = await engine.list_lines(cursor=arguments.cursor, limit=arguments.limit)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(page))
        return Exit.OK
    if not page.items:
        call.terminal.note("no lines: nothing with a serial key is unfinished")
        return Exit.OK
    rows = [
        (each.serial_key, each.head_id, each.waiting, relative(each.held_at, now) or "-")
        for each in page.items
    ]
    call.terminal.table(_COLUMNS, rows)
    _tell_more(call, page.next_cursor, "ff line ls")
    return Exit.OK


async def show(call: Call) -> Exit:
    """One line."""
    arguments = call.arguments
    async with call.engine() as engine:
        page = await engine.list_line(
            serial_key=arguments.key, cursor=arguments.cursor, limit=arguments.limit
        )
        now = await engine.server_time_ms()
    call.shown.remember("execution", [each.execution_id for each in page.items], is_listing=True)
    if call.terminal.as_json:
        call.terminal.document(plain(page))
        return Exit.OK
    rows = [
        (
            each.execution_id,
            each.execution_kind,
            call.terminal.state(each.public_state.value),
            relative(each.since, now),
        )
        for each in page.items
    ]
    call.terminal.table(_PLACES, rows)
    _tell_more(call, page.next_cursor, f"ff line show {arguments.key}")
    return Exit.OK


async def release(call: Call) -> Exit:
    """The next one has its turn, though the one before it failed."""
    async with call.engine() as engine:
        done = await engine.release_line(serial_key=call.arguments.key)
    if call.terminal.as_json:
        call.terminal.document(plain(done))
    elif done.next_id is None:
        call.terminal.line(f"line {clean(done.serial_key)}: nothing waits behind {done.passed_id}")
    else:
        call.terminal.line(f"line {clean(done.serial_key)}: {done.next_id} has its turn")
    return Exit.OK


def _tell_more(call: Call, cursor: str | None, words: str) -> None:
    if cursor is not None:
        call.terminal.note(f"more: {clean(words)} --cursor {cursor}")
