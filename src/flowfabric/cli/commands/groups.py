"""`ff groups`: consumer groups, each a feed that several processes share."""

from __future__ import annotations

from typing import Final

from flowfabric.api.page import every_item
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import absolute, span
from flowfabric.model.group import ConsumerGroup

_COLUMNS: Final = (
    Column("GROUP", shrinks=True, least=16),
    Column("EVENTS", shrinks=True, least=16),
    Column("BEHIND", right=True),
    Column("IN HAND", right=True),
    Column("GIVEN UP", right=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    actions = add_actions(parser)
    add_action(actions, "ls", ls, "list groups, and how far each is behind")
    moved = add_action(actions, "reset", reset, "move a group, to the end of its feed or elsewhere")
    moved.add_argument("group", metavar="GROUP")
    moved.add_argument(
        "--after", metavar="CURSOR", help="go on behind this cursor, or: oldest (default: now)"
    )
    gone = add_action(actions, "delete", delete, "forget a group and its position")
    gone.add_argument("group", metavar="GROUP")


async def ls(call: Call) -> Exit:
    """Every group."""
    async with call.engine() as engine:
        found = await every_item(lambda cursor: engine.list_consumer_groups(cursor=cursor))
    if call.terminal.as_json:
        call.terminal.document(plain(found))
    elif not found:
        call.terminal.note('no groups yet: a worker makes one for each @ff.on("completed") handler')
    else:
        call.terminal.table(_COLUMNS, [_row(group) for group in found])
        for group in found:
            if group.lost_until is not None:
                name, when = clean(group.group_id), absolute(group.lost_until)
                call.terminal.note(f"{name} lost events from before {when}: ff groups reset {name}")
    return Exit.OK


def _row(group: ConsumerGroup) -> tuple[object, ...]:
    wanted = [each.value for each in group.kinds]
    wanted += [f"{name}={_words(value)}" for name, value in plain(group.filter).items() if value]
    behind = "-" if not group.lag_ms else span(group.lag_ms)
    return (group.group_id, " ".join(wanted), behind, group.outstanding, group.dropped)


def _words(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


async def reset(call: Call) -> Exit:
    """Move a group; what it had not handled is skipped, or handled again."""
    name, after = call.arguments.group, call.arguments.after or "now"
    async with call.engine() as engine:
        found = await every_item(lambda cursor: engine.list_consumer_groups(cursor=cursor))
        known = {group.group_id: group for group in found}
        if name not in known:
            raise usage(f"no group {clean(name)}", advice="see ff groups")
        made = await engine.create_consumer_group(
            group_id=name,
            kinds=known[name].kinds,
            filter=known[name].filter,
            redeliver_ms=known[name].redeliver_ms,
            after=None if after == "oldest" else after,
            reset=True,
        )
    if call.terminal.as_json:
        call.terminal.document(plain(made))
    else:
        call.terminal.note(f"group {clean(name)}: moved")
    return Exit.OK


async def delete(call: Call) -> Exit:
    """Forget a group."""
    async with call.engine() as engine:
        gone = await engine.delete_consumer_group(group_id=call.arguments.group)
    if call.terminal.as_json:
        call.terminal.document(plain(gone))
    else:
        call.terminal.note(f"group {clean(gone.group_id)}: deleted")
    return Exit.OK
