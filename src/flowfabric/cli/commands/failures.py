"""`ff failures`: what is broken, since when, and how much of it: failures that are alike."""

from __future__ import annotations

import argparse
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import Page
from flowfabric.cli import values
from flowfabric.cli.bulk import change_by_operation
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, not_found, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions, add_page, add_reason
from flowfabric.cli.many import Verb, agreed, counted
from flowfabric.cli.references import as_shown
from flowfabric.cli.show.executions import headline
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column
from flowfabric.cli.show.times import both, relative
from flowfabric.model.bulk import BulkCounted
from flowfabric.model.dead import DeadLetter
from flowfabric.model.failure import FailureGroup
from flowfabric.sdk.selecting import LOST

_DAY_MS: Final = 86_400_000
_COLUMNS: Final = (
    Column("GROUP"),
    Column("FAILED", right=True),
    Column("RETRIED", right=True),
    Column("LAST"),
    Column("KIND", shrinks=True),
    Column("WHERE", shrinks=True),
    Column("MESSAGE", shrinks=True, least=16),
)
_MEMBERS: Final = (Column("ID"), Column("KIND", shrinks=True), Column("ENDED"), Column("REASON"))


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    _add_listing(parser, inner=False)
    actions = add_actions(parser)
    _add_listing(add_action(actions, "ls", ls, "groups, the latest failure first"), inner=True)
    one = add_action(actions, "show", show, "one group, and its executions")
    _add_group(one)
    marked = add_action(actions, "known", known, "leave a group out of the listing for a while")
    _add_group(marked)
    marked.add_argument("--for", dest="lasts", type=values.duration_ms, metavar="TIME", help="2d")
    marked.add_argument("--not", dest="is_new", action="store_true", help="list it again")
    add_reason(marked)
    again = add_action(actions, "retry", retry, "run all of a group again, as one operation")
    _add_group(again)
    again.add_argument("--dry-run", action="store_true", help="only count them")
    again.add_argument("--yes", action="store_true", help="do not ask")
    again.add_argument("--no-wait", action="store_true", help="print the operation's id at once")
    add_reason(again)


def _add_group(parser: FfParser) -> None:
    parser.add_argument("group", metavar="GROUP", help="as ff failures shows it")


def _add_listing(parser: FfParser, *, inner: bool) -> None:
    unset: Any = argparse.SUPPRESS if inner else None
    off: Any = argparse.SUPPRESS if inner else False
    parser.add_argument("--kind", metavar="KIND", default=unset, help="of this kind")
    parser.add_argument(
        "--within",
        type=values.duration_ms,
        metavar="TIME",
        default=argparse.SUPPRESS if inner else _DAY_MS,
        help="a day at most, and by itself",
    )
    parser.add_argument("--known", action="store_true", default=off, help="known ones, too")
    add_page(parser, inner=inner)


async def ls(call: Call) -> Exit:
    """A page of groups."""
    given = call.arguments
    async with call.engine() as engine:
        page: Page[FailureGroup] = await engine.list_failure_groups(
            namespace=given.namespace,
            last_ms=given.within,
            execution_kind=given.kind,
            with_known=given.known,
            cursor=given.cursor,
            limit=given.limit,
        )
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = {"groups": plain(page.items), "next_cursor": page.next_cursor}
        call.terminal.document(document)
        return Exit.OK
    if not page.items and page.next_cursor is None:
        call.terminal.note("no failures in this time, or all are known")
        return Exit.OK
    call.terminal.table(_COLUMNS, [_row(found, now) for found in page.items])
    if page.next_cursor is not None:
        call.terminal.note(f"more: the same command with --cursor {page.next_cursor}")
    return Exit.OK


def _row(found: FailureGroup, now: int) -> tuple[object, ...]:
    return (
        found.fingerprint,
        found.failed,
        found.retried,
        relative(found.last_seen_at, now),
        ", ".join(found.execution_kinds),
        found.frame or "",
        headline(found.message),
    )


async def show(call: Call) -> Exit:
    """Everything about one group."""
    async with call.engine() as engine:
        found = await _group(call, engine)
        page = await engine.list_dead(
            namespace=found.namespace, fingerprint=found.fingerprint, limit=20
        )
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = plain(found) | {"executions": plain(page.items)}
        call.terminal.document(document | {"next_cursor": page.next_cursor})
        return Exit.OK
    place = found.frame or ""
    known_until = both(found.known_until, now)
    facts = (
        ("message", headline(found.message)),
        ("category", found.category),
        ("exception", found.exception or ""),
        ("where", f"{place}, line {found.line}" if place and found.line else place),
        ("kinds", ", ".join(found.execution_kinds)),
        ("versions", ", ".join(found.versions)),
        ("first seen", both(found.first_seen_at, now)),
        ("last seen", both(found.last_seen_at, now)),
        ("in a day", f"{found.failed} failed, {found.retried} retried"),
        ("known until", f"{known_until} {found.known_by} {found.known_reason}".strip()),
    )
    call.terminal.facts([(name, value) for name, value in facts if value])
    if page.items:
        call.terminal.line()
        shown = as_shown(call, "execution", [each.execution_id for each in page.items])
        rows = [_member(shown[each.execution_id], each, now) for each in page.items]
        call.terminal.table(_MEMBERS, rows)
    return Exit.OK


def _member(shown: str, found: DeadLetter, now: int) -> tuple[object, ...]:
    return shown, found.execution_kind, relative(found.ended_at, now), headline(found.reason)


async def _group(call: Call, engine: EngineBackend) -> FailureGroup:
    given = call.arguments
    found = await engine.describe_failure_group(fingerprint=given.group, namespace=given.namespace)
    if found is None:
        raise not_found(f"no failures {given.group}", advice="ff failures lists them")
    return found


async def known(call: Call) -> Exit:
    """Until when it is known."""
    given = call.arguments
    if (given.lasts is None) is not given.is_new:
        raise usage("say for how long, or --not", advice="ff failures known GROUP --for 2d")
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        marked = await engine.mark_failure_group(
            fingerprint=given.group,
            namespace=given.namespace,
            known_until=None if given.is_new else now + given.lasts,
            reason=given.reason,
        )
    if call.terminal.as_json:
        call.terminal.document(plain(marked))
    else:
        until = both(marked.known_until, now)
        call.terminal.line(f"{marked.fingerprint}  " + (f"known until {until}" if until else "new"))
    return Exit.OK


async def retry(call: Call) -> Exit:
    """Count, ask, and run them again."""
    given = call.arguments
    async with call.engine() as engine:
        found = await _group(call, engine)
        listing: dict[str, Any] = {"namespace": found.namespace, "fingerprint": found.fingerprint}
        counting = await engine.start_operation(action="retry", dry_run=True, **listing)
    told = {"action": "retry", "reason": given.reason}
    verb = Verb("retry", "to be run again", LOST, _alone, operation=told)
    matched = counting.matched if isinstance(counting, BulkCounted) else 0
    if given.dry_run:
        return counted(call, verb, matched)
    if matched and not given.yes and not await agreed(call, verb, matched):
        call.terminal.note("nothing was changed")
        return Exit.FAILED
    return await change_by_operation(call, verb, listing)


async def _alone(engine: EngineBackend, execution_id: str) -> Any:
    return await engine.replay_execution(execution_id=execution_id, requested_by="ff")
