"""`ff waits`: the waits of suspended executions, and the commands that end them.

Tokens are never printed, but by `ff waits link`, which says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.api.waits import WaitInfo
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import FfParser, add_action, add_actions, add_id, add_page
from flowfabric.cli.references import as_shown, execution_of, named
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import both, relative, span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.record import to_plain
from flowfabric.model.suspension import (
    SignalDuplicate,
    SignalEffect,
    SuspensionInfo,
    WaitpointInfo,
)
from flowfabric.model.words import AT_TIMEOUT
from flowfabric.sdk.links import is_link
from flowfabric.sdk.waits import NO_PAYLOAD, Delivered, WaitMethods

_COLUMNS: Final = (
    Column("ID"),
    Column("KIND", shrinks=True),
    Column("WAITS FOR", shrinks=True, least=24),
    Column("HAVE", right=True),
    Column("SINCE"),
    Column("TIMEOUT", shrinks=True, least=16),
)
_WAITPOINT_COLUMNS: Final = (
    Column("KEY"),
    Column("STATE"),
    Column("NAMES", shrinks=True, least=18),
    Column("WAITPOINT", shrinks=True),
    Column("EXPIRES", shrinks=True),
    Column("SIGNED BY"),
    Column("TOKEN FINGERPRINT", shrinks=True),
)
_PAST_COLUMNS: Final = (
    Column("WAITED FOR", shrinks=True),
    Column("BEGAN"),
    Column("TOOK", right=True),
    Column("ENDED BY"),
    Column("WHO", shrinks=True),
)
_EFFECTS: Final = {
    SignalEffect.RESUMED: "it goes on",
    SignalEffect.APPENDED: "counted; it waits for more",
    SignalEffect.DUPLICATE: "received, but it adds nothing new",
    SignalEffect.MATCHER_FAILED: "received, but it waits for another name",
    SignalEffect.NOT_IN_CONDITION: "received, but nothing waits for it there",
    SignalEffect.BUFFERED: "kept until it waits",
}


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    _add_list_options(parser)
    actions = add_actions(parser)
    listing = add_action(actions, "ls", ls, "list what waits, newest first")
    _add_list_options(listing, inner=True)
    showing = add_action(actions, "show", show, "one execution: its waits, past and present")
    add_id(showing)
    for name, handler, text in (
        ("approve", approve, "approve in a person's name"),
        ("reject", reject, "reject in a person's name"),
    ):
        decide = add_action(actions, name, handler, text)
        add_id(decide)
        _add_key(decide)
        decide.add_argument("--by", required=True, metavar="NAME", help="who decides")
        decide.add_argument("--comment", metavar="TEXT", help="arrives as its payload")
        _add_payload(decide)
    _add_signal(add_action(actions, "signal", send, "send any signal"))
    linking = add_action(actions, "link", link, "print the link of a wait; it is a credential")
    add_id(linking)
    _add_key(linking)
    linking.add_argument(
        "--to", metavar="NAME", help="a personal link: what is sent with it comes from NAME"
    )
    resuming = add_action(actions, "resume", resume, "end a wait whatever it waits for")
    add_id(resuming)
    resuming.add_argument("--by", metavar="NAME", help="for the record (default: --actor)")


def _add_signal(send: FfParser) -> None:
    send.add_argument(
        "target", metavar="ID|LINK|-", help="the execution, or a link; - reads a link from stdin"
    )
    send.add_argument("word", metavar="KEY|NAME", help="with an id its key; with a link the name")
    send.add_argument("--name", metavar="NAME", help="the signal's name (default: the key)")
    send.add_argument("--by", metavar="SOURCE", help="user:ada, service:crm, or just ada")
    send.add_argument("--idempotency-key", metavar="KEY", help="the same key counts once")
    _add_payload(send)


def _add_list_options(parser: FfParser, *, inner: bool = False) -> None:
    """The same before and after `ls`; options after it must not reset those before it."""
    unset = argparse.SUPPRESS if inner else None
    parser.add_argument("--lane", default=unset, metavar="LANE")
    parser.add_argument("--kind", default=unset, metavar="KIND")
    add_page(parser, inner=inner)


def _add_key(parser: FfParser) -> None:
    parser.add_argument("key", metavar="KEY", help="what it waits on: ff waits show ID tells")


def _add_payload(parser: FfParser) -> None:
    parser.add_argument(
        "payload",
        nargs="*",
        type=values.argument,
        default=[],
        metavar="FIELD",
        help="the payload's fields: name=text or name:=json",
    )
    parser.set_defaults(rest=("payload", values.argument))
    parser.add_argument("--payload", dest="body", metavar="JSON", help="the whole payload instead")


class _Desk(WaitMethods):
    """The fabric's methods on an engine that is open already."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine

    async def start(self) -> EngineBackend:
        return self._engine


async def ls(call: Call) -> Exit:
    """Open waits, newest first."""
    arguments = call.arguments
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        page = await engine.list_waits(
            namespace=arguments.namespace,
            lane_id=arguments.lane,
            execution_kind=arguments.kind,
            cursor=arguments.cursor,
            limit=min(PAGE_MAX, arguments.limit),
        )
    if call.terminal.as_json:
        call.terminal.document({"waits": plain(page.items), "next_cursor": page.next_cursor})
        return Exit.OK
    if not page.items:
        call.terminal.note("nothing waits")
    else:
        call.terminal.table(_COLUMNS, _rows(call, page.items, now))
    if page.next_cursor is not None:
        call.terminal.note(f"more: the same command with --cursor {page.next_cursor}")
    return Exit.OK


def _rows(call: Call, waits: Sequence[WaitInfo], now: int) -> list[tuple[object, ...]]:
    shown = as_shown(call, "execution", [wait.execution_id for wait in waits])
    return [
        (
            shown[wait.execution_id],
            wait.execution_kind,
            wait.waits_for,
            f"{wait.have}/{wait.need}",
            relative(wait.since, now),
            timeout_of(wait, now),
        )
        for wait in waits
    ]


def timeout_of(wait: WaitInfo, now: int) -> str:
    """When the wait times out, and the effect."""
    if wait.timeout_at is None:
        return ""
    return f"{relative(wait.timeout_at, now)}: {AT_TIMEOUT[wait.at_timeout]}"


async def show(call: Call) -> Exit:
    """The current wait with its waitpoints, and the past ones."""
    async with call.engine() as engine:
        snapshot = await named(call, engine, waiting=True)
        execution_id = snapshot.execution_id
        waits = await engine.describe_waits(execution_ids=[execution_id])
        waitpoints = await every_item(
            lambda at: engine.list_pending_waitpoints(
                execution_id=execution_id, cursor=at, limit=PAGE_MAX
            )
        )
        episodes = await every_item(
            lambda at: engine.list_suspensions(execution_id=execution_id, cursor=at, limit=PAGE_MAX)
        )
        now = await engine.server_time_ms()
    wait = waits.get(execution_id)
    past = [each for each in episodes if not each.is_open]
    if call.terminal.as_json:
        call.terminal.document(
            {
                "execution_id": execution_id,
                "public_state": snapshot.public_state.value,
                "wait": plain(wait),
                "waitpoints": plain(waitpoints),
                "past": [_plain_episode(each) for each in past],
            }
        )
        return Exit.OK
    terminal = call.terminal
    state = terminal.state(snapshot.public_state.value)
    terminal.line(f"{terminal.paint(execution_id, 'bold')}  {state}")
    if wait is None:
        terminal.line("  it does not wait for signals")
    else:
        terminal.facts([(name, clean(text)) for name, text in facts_of(wait, now) if text])
    _show_waitpoints(call, waitpoints, now)
    _show_past(call, past, now)
    return Exit.OK


def _plain_episode(row: SuspensionInfo) -> dict[str, Any]:
    """A past wait for --json; its condition names the kind of each part."""
    return {**plain(row), "condition": to_plain(row.condition)}


def facts_of(wait: WaitInfo, now: int) -> list[tuple[str, str]]:
    """A wait as lines."""
    came = [
        f"{each.signal_name} on {each.waitpoint_key}"
        + (f" by {each.source_type}:{each.source_identity}" if each.source_identity else "")
        for each in wait.signals
    ]
    over = ""
    if wait.timeout_at is not None:
        over = f"{both(wait.timeout_at, now)}: {AT_TIMEOUT[wait.at_timeout]}"
    return [
        ("waits for", wait.waits_for),
        ("since", both(wait.since, now)),
        ("timeout", over),
        ("reason", wait.reason.value.replace("_", " ")),
        ("came", "; ".join(came)),
    ]


def _show_waitpoints(call: Call, entries: Sequence[WaitpointInfo], now: int) -> None:
    if not entries:
        return
    call.terminal.line()
    rows = [
        (
            each.waitpoint_key,
            each.state.value,
            ", ".join(each.required_signal_names) or "any",
            each.waitpoint_id,
            relative(each.expires_at, now),
            each.token_kid,
            each.token_fingerprint,
        )
        for each in entries
    ]
    call.terminal.table(_WAITPOINT_COLUMNS, rows)


def _show_past(call: Call, past: list[SuspensionInfo], now: int) -> None:
    if not past:
        return
    call.terminal.line()
    rows = [
        (
            each.waited_for,
            relative(each.created_at, now),
            span(max(0, (each.closed_at or now) - each.created_at)),
            each.cause.value if each.cause is not None else each.close_reason,
            each.actor,
        )
        for each in past
    ]
    call.terminal.table(_PAST_COLUMNS, rows)


# --- ending a wait --------------------------------------------------------------------------------


async def approve(call: Call) -> Exit:
    """Approve."""
    return await _decide(call, WaitMethods.approve)


async def reject(call: Call) -> Exit:
    """Reject."""
    return await _decide(call, WaitMethods.reject)


async def _decide(call: Call, decide: Any) -> Exit:
    arguments = call.arguments
    payload = _payload(call)
    async with call.engine() as engine:
        answer = await decide(
            _Desk(engine),
            await execution_of(call, engine, arguments.id, waiting=True),
            arguments.key,
            by=arguments.by,
            comment=arguments.comment,
            payload=payload,
        )
    return _told(call, answer)


async def send(call: Call) -> Exit:
    """Any signal, by id and key or by link."""
    arguments = call.arguments
    target = sys.stdin.readline().strip() if arguments.target == "-" else arguments.target
    by_link = arguments.target == "-" or is_link(target)
    if by_link and arguments.name is not None:
        raise usage("--name is for an id and a key; with a link the name follows it")
    word = "" if by_link else _reference(target)
    payload = _payload(call)
    async with call.engine() as engine:
        if word:
            target = await execution_of(call, engine, word, waiting=True)
        answer = await _Desk(engine).signal(
            target,
            arguments.word,
            payload,
            name=arguments.name,
            source=arguments.by,
            idempotency_key=arguments.idempotency_key,
        )
    return _told(call, answer)


def _reference(text: str) -> str:
    try:
        return values.reference(text)
    except argparse.ArgumentTypeError:
        # Text that is not an id may be a damaged link: it must not be repeated.
        problem = usage("neither an execution id nor a link", advice="ff waits ls lists ids")
    raise problem


def _payload(call: Call) -> Any:
    arguments = call.arguments
    if arguments.body is None:
        return dict(arguments.payload) if arguments.payload else NO_PAYLOAD
    if arguments.payload:
        raise usage("--payload and fields: give one of them")
    try:
        return json.loads(arguments.body)
    except (ValueError, RecursionError) as error:
        raise usage(
            f"--payload is not JSON ({error})", advice="""write for example --payload '{"a": 1}'"""
        ) from None


def _told(call: Call, answer: Delivered) -> Exit:
    """The effect of the signal. One without a new effect is no failure."""
    if isinstance(answer, SignalDuplicate):
        duplicate, signal_id = True, answer.existing_signal_id
    else:
        duplicate, signal_id = False, answer.signal_id
    if call.terminal.as_json:
        call.terminal.document(
            {"signal_id": signal_id, "effect": answer.effect.value, "duplicate": duplicate}
        )
        return Exit.OK
    words = _EFFECTS[answer.effect]
    call.terminal.line(f"was sent before: {words}" if duplicate else words)
    return Exit.OK


async def resume(call: Call) -> Exit:
    """An operator ends the wait."""
    async with call.engine() as engine:
        execution_id = await execution_of(call, engine, call.arguments.id, waiting=True)
        reply = await engine.resume_execution(execution_id=execution_id, actor=call.arguments.by)
    if call.terminal.as_json:
        call.terminal.document({"execution_id": execution_id} | plain(reply))
    else:
        call.terminal.line(f"{execution_id}  resumed, {reply.public_state}")
    return Exit.OK


async def link(call: Call) -> Exit:
    """The one command that prints a credential."""
    async with call.engine() as engine:
        execution_id = await execution_of(call, engine, call.arguments.id, waiting=True)
        text = await _Desk(engine).link(execution_id, call.arguments.key, to=call.arguments.to)
    if call.terminal.as_json:
        call.terminal.document(
            {"execution_id": execution_id, "key": call.arguments.key, "link": text}
        )
        return Exit.OK
    call.terminal.line(text)
    call.terminal.note("this is a credential: anyone with it can signal this wait until it ends")
    return Exit.OK
