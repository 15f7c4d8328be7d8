"""`ff waits`: what suspended executions wait for, and the words that end it.

Tokens are never printed, but by `ff waits link`, which says so.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.api.waits import WaitInfo
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.inspect import named
from flowfabric.cli.plain import plain
from flowfabric.cli.references import as_shown, execution_of
from flowfabric.cli.terminal import Column, clean
from flowfabric.cli.times import both, relative, span
from flowfabric.kernel.explain.waits import in_words
from flowfabric.limits import PAGE_MAX
from flowfabric.model.record import to_plain
from flowfabric.model.suspension import (
    SignalDuplicate,
    SignalEffect,
    SuspensionRow,
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


class _Desk(WaitMethods):
    """The fabric's methods on an engine that is open already."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine

    async def start(self) -> EngineBackend:
        return self._engine


async def ls(call: Call) -> Exit:
    """What waits, newest first."""
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
    """When the wait is over, and what happens then."""
    if wait.timeout_at is None:
        return ""
    return f"{relative(wait.timeout_at, now)}: {AT_TIMEOUT[wait.at_timeout]}"


async def show(call: Call) -> Exit:
    """The present wait with its waitpoints, and the past ones."""
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


def _plain_episode(row: SuspensionRow) -> dict[str, Any]:
    """A past wait for --json; its condition names the kind of each part."""
    words = in_words(row.condition, row.progress)
    return {**plain(row), "condition": to_plain(row.condition), "waited_for": words}


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


def _show_past(call: Call, past: list[SuspensionRow], now: int) -> None:
    if not past:
        return
    call.terminal.line()
    rows = [
        (
            in_words(each.condition, each.progress),
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
    """Say yes."""
    return await _decide(call, WaitMethods.approve)


async def reject(call: Call) -> Exit:
    """Say no."""
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
    except ArgumentTypeError:
        # What is no id may be a spoiled link: it must not be repeated.
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
    """What the signal did. One that did nothing new is no failure."""
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
        text = await _Desk(engine).link(execution_id, call.arguments.key)
    if call.terminal.as_json:
        call.terminal.document(
            {"execution_id": execution_id, "key": call.arguments.key, "link": text}
        )
        return Exit.OK
    call.terminal.line(text)
    call.terminal.note("this is a credential: whoever has it can signal this wait until it ends")
    return Exit.OK
