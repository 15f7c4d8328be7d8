"""`ff flow`: list, show, cancel and retry flows."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli import values
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit, usage
from flowfabric.cli.grammar import (
    FfParser,
    add_action,
    add_actions,
    add_id,
    add_page,
    add_reason,
    words_of,
)
from flowfabric.cli.references import as_shown, flow_of
from flowfabric.cli.show.executions import headline
from flowfabric.cli.show.flow import Look, frame, label, look
from flowfabric.cli.show.plain import plain
from flowfabric.cli.show.terminal import Column, clean
from flowfabric.cli.show.times import count, span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.flow import FlowStatus
from flowfabric.model.flow_results import (
    CancellationScheduled,
    FlowListing,
    PartiallyCancelled,
)
from flowfabric.model.state import PublicState
from flowfabric.sdk.flow.run import POLICIES, replay_lost

_ID_HELP: Final = f"of a flow or a member: {values.ID_HELP}"
_LOOK_EVERY_S: Final = 0.4
_COLUMNS: Final = (
    Column("ID"),
    Column("STATUS", styled=True),
    Column("KIND", shrinks=True),
    Column("NAMESPACE", shrinks=True),
    Column("ENDED", right=True),
    Column("AGE", right=True),
)


def add_arguments(parser: FfParser) -> None:
    """The actions; without one it lists."""
    parser.set_defaults(handler=ls)
    _add_list_options(parser)
    actions = add_actions(parser)
    _add_list_options(add_action(actions, "ls", ls, "list flows, newest first"), inner=True)
    showing = add_action(actions, "show", show, "one flow, drawn with the states of its nodes")
    add_id(showing, _ID_HELP)
    showing.add_argument("--watch", action="store_true", help="redraw it until it has ended")
    showing.add_argument("--all", action="store_true", help="a row for every node, also many alike")
    cancelling = add_action(actions, "cancel", cancel, "cancel a flow")
    add_id(cancelling, _ID_HELP)
    cancelling.add_argument(
        "--policy",
        choices=tuple(POLICIES),
        default="all",
        metavar="all|pending|only",
        help="all its nodes (default), those that have not begun, or the flow only",
    )
    add_reason(cancelling)
    cancelling.add_argument(
        "--wait", type=values.duration_ms, metavar="TIME", help="for the nodes of a large flow"
    )
    retrying = add_action(actions, "retry", retry, "run again what failed, and what that skipped")
    add_id(retrying, _ID_HELP)
    add_reason(retrying)


def _add_list_options(parser: FfParser, *, inner: bool = False) -> None:
    """The same before and after `ls`; options after it must not reset those before it."""
    unset = argparse.SUPPRESS if inner else None
    parser.add_argument(
        "--status",
        choices=words_of(FlowStatus),
        default=unset,
        metavar="STATUS",
        help="active, completed, failed or cancelled",
    )
    add_page(parser, inner=inner)


async def ls(call: Call) -> Exit:
    """Flows, newest first."""
    arguments = call.arguments
    rows: list[FlowListing] = []
    cursor = arguments.cursor
    async with call.engine() as engine:
        now = await engine.server_time_ms()
        while True:
            page = await engine.list_flows(
                namespace=arguments.namespace,
                status=arguments.status,
                cursor=cursor,
                limit=min(PAGE_MAX, arguments.limit - len(rows)),
                newest_first=True,
            )
            rows.extend(page.items)
            cursor = page.next_cursor
            if cursor is None or len(rows) >= arguments.limit:
                break
    if call.terminal.as_json:
        call.terminal.document({"flows": plain(rows), "next_cursor": cursor})
        return Exit.OK
    if not rows:
        filtered = arguments.namespace or arguments.status
        call.terminal.note("no flows match" if filtered else "no flows yet")
    else:
        shown = as_shown(call, "flow", [each.flow_id for each in rows])
        call.terminal.table(_COLUMNS, [(shown[each.flow_id], *_row(each, now)) for each in rows])
    if cursor is not None:
        call.terminal.note(f"more: the same command with --cursor {cursor}")
    return Exit.OK


def _row(flow: FlowListing, now: int) -> tuple[object, ...]:
    return (
        flow.status.value,
        flow.flow_kind,
        "" if flow.namespace == "default" else flow.namespace,
        f"{flow.ended_count}/{flow.node_count}",
        span(max(0, now - flow.created_at)),
    )


async def show(call: Call) -> Exit:
    """Draw it once, or again and again until it has ended."""
    arguments, terminal = call.arguments, call.terminal
    if arguments.watch and terminal.as_json:
        raise usage("--watch draws for people", advice="leave out --json, or ask once")
    async with call.engine() as engine:
        flow_id = await flow_of(call, engine, arguments.id)
        seen = await look(engine, flow_id)
        call.shown.remember("flow", [flow_id], is_listing=False)
        if arguments.watch:
            return await _watch(call, engine, seen)
    if terminal.as_json:
        document = plain(seen.flow) | {"nodes": plain(seen.members), "edges": plain(seen.edges)}
        terminal.document(document)
        return Exit.OK
    for line in frame(call, seen):
        terminal.line(line)
    return Exit.OK


async def _watch(call: Call, engine: EngineBackend, seen: Look) -> Exit:
    """On a terminal the drawing is redrawn in place; elsewhere each change is a line."""
    terminal = call.terminal
    told: dict[str, PublicState] = {}
    while True:
        if terminal.is_tty:
            terminal.redraw(frame(call, seen, rows_max=shutil.get_terminal_size().lines - 2))
        else:
            for each in seen.members:
                if told.get(each.execution_id) is not each.public_state:
                    told[each.execution_id] = each.public_state
                    note = headline(each.reason)
                    state = each.public_state.value
                    terminal.line(f"{clean(label(each))}  {state}  {clean(note)}".rstrip())
            terminal.out.flush()
        if seen.is_over:
            break
        await pause()
        seen = await look(engine, seen.flow.flow_id)
    if not terminal.is_tty:
        terminal.line(f"{seen.flow.flow_id}  {seen.flow.public_flow_state.value}")
    return Exit.OK if seen.has_what_it_needs else Exit.FAILED


async def pause() -> None:
    """The pause between two reads."""
    await asyncio.sleep(_LOOK_EVERY_S)


async def cancel(call: Call) -> Exit:
    """Cancel a flow and the members its policy covers."""
    arguments = call.arguments
    async with call.engine() as engine:
        flow_id = await flow_of(call, engine, arguments.id)
        await look(engine, flow_id)
        answer = await engine.cancel_flow(
            flow_id=flow_id,
            policy=POLICIES[arguments.policy],
            reason=arguments.reason or "cancelled from the command line",
            wait_ms=arguments.wait or 0,
        )
    left = answer.failed_member_execution_ids if isinstance(answer, PartiallyCancelled) else ()
    if call.terminal.as_json:
        kind = type(answer).__name__
        call.terminal.document({"flow_id": flow_id, "outcome": kind} | plain(answer))
    elif isinstance(answer, CancellationScheduled):
        what = f"none of its {count(answer.member_count, 'node')} starts any more"
        call.terminal.line(f"{flow_id}  cancelled; {what}, each is cancelled shortly")
    elif left:
        call.terminal.line(f"{flow_id}  cancelled; {count(len(left), 'node')} still to be stopped")
    else:
        call.terminal.line(f"{flow_id}  cancelled ({answer.cancellation_policy.value})")
    return Exit.TIMEOUT if left else Exit.OK


async def retry(call: Call) -> Exit:
    """Run lost nodes again, and nodes skipped because of them."""
    async with call.engine() as engine:
        flow_id = await flow_of(call, engine, call.arguments.id)
        await look(engine, flow_id)
        replayed = await replay_lost(engine, flow_id, call.arguments.reason)
        states = {m.execution_id: m for m in await engine.list_flow_members(flow_id=flow_id)}
    again = [states.get(each.execution_id, each) for each in replayed]
    if call.terminal.as_json:
        call.terminal.document({"flow_id": flow_id, "replayed": plain(again)})
        return Exit.OK
    if not again:
        call.terminal.note("nothing to run again: no node it needs was lost")
    for each in again:
        call.terminal.line(f"{each.execution_id}  {clean(label(each))}  {each.public_state.value}")
    return Exit.OK
