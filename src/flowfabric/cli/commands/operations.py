"""`ff operations`: changes to many executions, which go on by themselves."""

from __future__ import annotations

import argparse
from typing import Final

from flowfabric.cli import values
from flowfabric.cli.bulk import described, watched
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_action, add_actions, add_page, words_of
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import both, relative
from flowfabric.model.bulk import BulkOperation, BulkState

_COLUMNS: Final = (
    Column("OPERATION"),
    Column("ACTION"),
    Column("STATE", styled=True),
    Column("DONE", right=True),
    Column("OF", right=True),
    Column("REFUSED", right=True),
    Column("BEGUN"),
    Column("BY", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    _add_listing(parser, inner=False)
    actions = add_actions(parser)
    _add_listing(add_action(actions, "ls", ls, "list operations, newest first"), inner=True)
    one = add_action(actions, "show", show, "what one changes, how far it is, its outcomes")
    one.add_argument("operation", metavar="ID", type=values.uuid)
    one.add_argument("--wait", action="store_true", help="until it is over; it is worked on here")
    end = add_action(actions, "stop", stop, "change nothing more; what was done stays done")
    end.add_argument("operation", metavar="ID", type=values.uuid)


def _add_listing(parser: FfParser, *, inner: bool) -> None:
    parser.add_argument(
        "--state",
        choices=words_of(BulkState),
        default=argparse.SUPPRESS if inner else None,
        help="only those",
    )
    add_page(parser, inner=inner)


async def ls(call: Call) -> Exit:
    """A page of them."""
    given = call.arguments
    async with call.engine() as engine:
        page = await engine.list_operations(
            namespace=given.namespace, state=given.state, cursor=given.cursor, limit=given.limit
        )
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = {"operations": plain(page.items), "next_cursor": page.next_cursor}
        call.terminal.document(document)
    elif not page.items:
        call.terminal.note("no operations: ff cancel and its like begin one above 1,000 matches")
    else:
        call.terminal.table(_COLUMNS, [_row(each, now) for each in page.items])
        if page.next_cursor is not None:
            call.terminal.note(f"more: ff operations --cursor {page.next_cursor}")
    return Exit.OK


def _row(found: BulkOperation, now: int) -> tuple[object, ...]:
    number, refused = found.done + found.unchanged, sum(found.refused.values())
    state, begun = found.state.value, relative(found.created_at, now)
    name, action = found.operation_id, found.action.value
    return (name, action, state, number, found.matched, refused, begun, found.actor)


async def show(call: Call) -> Exit:
    """Everything about one."""
    is_waiting = call.arguments.wait
    async with call.engine(works=is_waiting) as engine:
        found = await described(engine, call.arguments.operation)
        if is_waiting:
            found = await watched(call, engine, found)
        now = await engine.server_time_ms()
    _show(call, found, now)
    return Exit.OK


async def stop(call: Call) -> Exit:
    """End one."""
    async with call.engine() as engine:
        found = await engine.stop_operation(operation_id=call.arguments.operation)
        now = await engine.server_time_ms()
    _show(call, found, now)
    return Exit.OK


def _show(call: Call, found: BulkOperation, now: int) -> None:
    if call.terminal.as_json:
        call.terminal.document(plain(found))
        return
    chosen = [f"{name}={_words(value)}" for name, value in plain(found.filter).items() if value]
    told = [f"{name}={_words(value)}" for name, value in plain(found.arguments).items() if value]
    refused = [f"{number} {code}" for code, number in found.refused.items()]
    facts = (
        ("action", " ".join([found.action.value, *told])),
        ("executions", " ".join(chosen)),
        ("state", found.state.value),
        ("matched", str(found.matched)),
        ("done", str(found.done)),
        ("unchanged", str(found.unchanged or "")),
        ("refused", ", ".join(refused)),
        ("begun", both(found.created_at, now)),
        ("over", both(found.finished_at, now)),
        ("by", found.actor),
    )
    call.terminal.line(found.operation_id)
    call.terminal.facts([(name, clean(text)) for name, text in facts if text])


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
