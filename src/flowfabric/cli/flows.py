"""`ff flow`: list, cancel and retry flows. Drawing them is in `flow_view`."""

from __future__ import annotations

from typing import Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.flow_view import label, look
from flowfabric.cli.plain import plain
from flowfabric.cli.references import as_shown, flow_of
from flowfabric.cli.terminal import Column, clean
from flowfabric.cli.times import count, span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.flow_results import (
    CancellationScheduled,
    FlowListing,
    PartiallyCancelled,
)
from flowfabric.sdk.flow_run import POLICIES, replay_lost

_COLUMNS: Final = (
    Column("ID"),
    Column("STATUS", styled=True),
    Column("KIND", shrinks=True),
    Column("NAMESPACE", shrinks=True),
    Column("ENDED", right=True),
    Column("AGE", right=True),
)


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


async def cancel(call: Call) -> Exit:
    """Cancel a flow and what its policy names."""
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
    """Run again what was lost, and what was skipped because of it."""
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
