"""`ff dead`: executions that failed or expired, and were not run again or dismissed since."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.bulk import OPERATION_ABOVE, change_by_operation
from flowfabric.cli.call import Call
from flowfabric.cli.commands.show import show
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import (
    FfParser,
    add_action,
    add_actions,
    add_id,
    add_list,
    add_page,
    add_reason,
)
from flowfabric.cli.many import Verb, agreed, counted, told
from flowfabric.cli.operate import each
from flowfabric.cli.references import as_shown
from flowfabric.cli.show.executions import headline
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import relative
from flowfabric.errors import StoreError
from flowfabric.model.dead import DeadLetter, Letter
from flowfabric.sdk.dead import change_dead
from flowfabric.sdk.selecting import LOST, Tally

_COLUMNS: Final = (
    Column("ID"),
    Column("KIND", shrinks=True),
    Column("CATEGORY", shrinks=True),
    Column("ENDED"),
    Column("TRIES", right=True),
    Column("REASON", shrinks=True, least=16),
)
_COUNTS: Final = (
    Column("DEAD", right=True),
    Column("KIND", shrinks=True),
    Column("CATEGORY", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    _add_listing(parser, inner=False)
    actions = add_actions(parser)
    listing = add_action(actions, "ls", ls, "list them, the latest first, with counts")
    _add_listing(listing, inner=True)
    one = add_action(actions, "show", show, "everything about one")
    add_id(one)
    for name, handler, text in (
        ("retry", retry, "run them again, their history kept"),
        ("dismiss", dismiss, "take them out of the listing; nothing is run"),
        ("restore", restore, "list again what was dismissed"),
    ):
        action = add_action(actions, name, handler, text)
        add_list(action, "ids", values.reference, least="*", metavar="ID", text=values.ID_HELP)
        _add_filters(action, default=None)
        action.add_argument("--all", action="store_true", help="all of the namespace")
        action.add_argument("--limit", type=values.whole_number, metavar="N", help="at most")
        action.add_argument("--dry-run", action="store_true", help="only count them")
        action.add_argument("--yes", action="store_true", help="do not ask")
        action.add_argument(
            "--no-wait", action="store_true", help="above 1,000: print the operation's id at once"
        )
        add_reason(action)


def _add_listing(parser: FfParser, *, inner: bool) -> None:
    unset = argparse.SUPPRESS if inner else None
    _add_filters(parser, default=unset)
    parser.add_argument(
        "--dismissed",
        action="store_true",
        default=argparse.SUPPRESS if inner else False,
        help="those that were dismissed",
    )
    add_page(parser, inner=inner)


def _add_filters(parser: FfParser, *, default: Any) -> None:
    parser.add_argument("--kind", metavar="KIND", default=default, help="of this kind")
    parser.add_argument(
        "--category", metavar="WORD", default=default, help="that failed so: timeout, …"
    )


def _filters(call: Call) -> dict[str, Any]:
    given = call.arguments
    wanted = {
        "namespace": given.namespace,
        "execution_kind": given.kind,
        "category": given.category,
    }
    return {name: value for name, value in wanted.items() if value is not None}


async def ls(call: Call) -> Exit:
    """Counts by kind and category, then a page of them."""
    given, wanted = call.arguments, _filters(call)
    async with call.engine() as engine:
        counts = () if given.dismissed else await engine.count_dead(**wanted)
        page = await engine.list_dead(
            **wanted, is_dismissed=given.dismissed, cursor=given.cursor, limit=given.limit
        )
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = {"counts": plain(counts), "dead": plain(page.items)}
        call.terminal.document(document | {"next_cursor": page.next_cursor})
        return Exit.OK
    if not page.items and page.next_cursor is None:
        none = "none was dismissed" if given.dismissed else "nothing has failed, or all was seen to"
        if given.kind or given.category:
            none = "none of this kind and category"
        call.terminal.note(f"no dead letters: {none}")
        return Exit.OK
    alike = [(found.number, found.execution_kind, found.category) for found in counts]
    if alike:
        call.terminal.table(_COUNTS, alike)
        call.terminal.line()
    shown = as_shown(call, "execution", [found.execution_id for found in page.items])
    rows = [(shown[found.execution_id], *_row(found, now)) for found in page.items]
    call.terminal.table(_COLUMNS, rows)
    if page.next_cursor is not None:
        call.terminal.note(f"more: the same command with --cursor {page.next_cursor}")
    return Exit.OK


def _row(found: DeadLetter, now: int) -> tuple[object, ...]:
    ended, reason = relative(found.ended_at, now), headline(found.reason)
    return (found.execution_kind, found.category, ended, found.attempts, reason)


async def retry(call: Call) -> Exit:
    """As `ff retry` does."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.replay_execution(
            execution_id=execution_id, requested_by="ff", reason=call.arguments.reason
        )

    return await _change(call, _verb(call, "retry", "to be run again", change))


async def dismiss(call: Call) -> Exit:
    """Each keeps its history until its retention is over."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.dismiss_dead(execution_id=execution_id, reason=call.arguments.reason)

    return await _change(call, _verb(call, "dismiss", "dismissed", change))


async def restore(call: Call) -> Exit:
    """Each in its old place."""

    async def change(engine: EngineBackend, execution_id: str) -> Any:
        return await engine.restore_dead(execution_id=execution_id, reason=call.arguments.reason)

    return await _change(call, _verb(call, "restore", "restored", change))


def _verb(call: Call, name: str, done: str, change: Callable[..., Awaitable[Any]]) -> Verb:
    told = {"action": name, "reason": call.arguments.reason, "limit": call.arguments.limit}
    return Verb(name, done, LOST, change, operation=told)


async def _change(call: Call, verb: Verb) -> Exit:
    given = call.arguments
    by_filter = given.kind or given.category or given.all or given.limit is not None
    if bool(given.ids) == bool(by_filter):
        raise usage(
            "name executions, or what they have in common",
            advice=f"ff dead {verb.name} ID…, or --category, --kind, --limit, --all",
        )
    if given.ids:
        if given.dry_run:
            raise usage("--dry-run counts what filters choose", advice="leave it out, or the ids")
        return await each(call, verb, lambda _: verb.done)
    wanted = _filters(call)
    if verb.name == "restore":
        wanted["is_dismissed"] = True
    async with call.engine() as engine:
        matched = await _matched(call, engine, wanted)
        if given.dry_run:
            return counted(call, verb, matched)
        if matched and not given.yes and not await agreed(call, verb, matched):
            call.terminal.note("nothing was changed")
            return Exit.FAILED
        if matched <= OPERATION_ABOVE:
            return await _change_each(call, engine, verb, wanted, matched)
    return await change_by_operation(call, verb, _listing(call, wanted))


async def _matched(call: Call, engine: EngineBackend, wanted: dict[str, Any]) -> int:
    """How many letters fit; those that were dismissed are not counted by kind and category."""
    if wanted.get("is_dismissed"):
        asked = _listing(call, wanted)
        found = await engine.start_operation(action="restore", **asked, dry_run=True)
        number = found.matched
    else:
        number = sum(each.number for each in await engine.count_dead(**wanted))
    limit = call.arguments.limit
    return number if limit is None else min(number, limit)


def _listing(call: Call, wanted: dict[str, Any]) -> dict[str, Any]:
    """The same letters, as an operation chooses them: of one tenant."""
    return {
        "namespace": call.config.namespace,
        "execution_kind": wanted.get("execution_kind"),
        "failure_category": wanted.get("category"),
        "dead_letter": Letter.DISMISSED if wanted.get("is_dismissed") else Letter.OPEN,
    }


async def _change_each(
    call: Call, engine: EngineBackend, verb: Verb, wanted: dict[str, Any], matched: int
) -> Exit:
    tally = Tally()
    try:
        await change_dead(
            engine,
            wanted,
            lambda execution_id: verb.change(engine, execution_id),
            tally,
            limit=call.arguments.limit,
            after_page=lambda: call.terminal.status(f"{tally.done} of {matched} …"),
        )
    except StoreError:
        call.terminal.complain(f"{tally.done} of {matched} {verb.done}")
        raise
    return told(call, verb, tally)
