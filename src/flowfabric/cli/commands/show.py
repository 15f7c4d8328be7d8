"""`ff show`: everything about one execution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from flowfabric.api.page import every_item
from flowfabric.api.waits import WaitInfo
from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.grammar import FfParser, add_id
from flowfabric.cli.references import named
from flowfabric.cli.show.executions import (
    bounds_of,
    headline,
    origin_of,
    schedule_of,
    successors_of,
)
from flowfabric.cli.show.plain import decoded, plain, preview
from flowfabric.cli.show.terminal import Column, clean, harmless, shorten
from flowfabric.cli.show.times import both, relative, span
from flowfabric.limits import PAGE_MAX
from flowfabric.model.results import AttemptInfo, ExecutionSnapshot
from flowfabric.model.schedule import run_of
from flowfabric.model.state import PublicState
from flowfabric.model.words import AT_TIMEOUT

_PREVIEW_CHARACTERS: Final = 200
_ATTEMPT_COLUMNS: Final = (
    Column("#", right=True),
    Column("TYPE"),
    Column("OUTCOME"),
    Column("WORKER", shrinks=True),
    Column("STARTED"),
    Column("TOOK", right=True),
    Column("REASON", shrinks=True),
)


def add_arguments(parser: FfParser) -> None:
    """The execution."""
    add_id(parser)
    parser.set_defaults(handler=show)


async def show(call: Call) -> Exit:
    """Snapshot, attempts, input and result."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        execution_id = snapshot.execution_id
        attempts = await every_item(
            lambda at: engine.list_attempts(execution_id=execution_id, cursor=at, limit=PAGE_MAX)
        )
        context = await engine.read_execution_context(execution_id=execution_id)
        result = await engine.get_execution_result(execution_id=execution_id)
        shown = await engine.read_published(execution_id=execution_id)
        boxes = await engine.list_mailboxes(execution_id=execution_id)
        retries = (await engine.list_retries(execution_id=execution_id)).items
        wait = (await engine.describe_waits(execution_ids=[execution_id])).get(execution_id)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = plain(snapshot) | {"attempts": plain(attempts)}
        document["payload"] = decoded(context.input_payload)
        document["result"] = None if result is None else decoded(result)
        document["published"] = None if shown is None else decoded(shown.value)
        document["mailboxes"] = plain(boxes)
        document["retries"] = [each.execution_id for each in retries]
        document["wait"] = plain(wait)
        call.terminal.document(document)
        return Exit.OK
    terminal = call.terminal
    state = terminal.state(snapshot.public_state.value)
    terminal.line(f"{terminal.paint(snapshot.execution_id, 'bold')}  {state}")
    data = [("input", preview(context.input_payload))]
    if shown is not None:
        data.append(("published", preview(shown.value)))
    if boxes:
        told = (f"{each.mailbox} {each.unread} unread, {each.received} received" for each in boxes)
        data.append(("mailboxes", "; ".join(told)))
    if retries:
        data.append(("retried as", ", ".join(each.execution_id for each in retries)))
    if snapshot.public_state is PublicState.COMPLETED:
        data.append(("result", preview(result)))
    short = [(name, shorten(clean(text), _PREVIEW_CHARACTERS)) for name, text in data]
    terminal.facts([*_facts(snapshot, wait, now), *short])
    show_attempts(call, attempts, now)
    return Exit.OK


def _facts(snapshot: ExecutionSnapshot, wait: WaitInfo | None, now: int) -> list[tuple[str, str]]:
    lease = snapshot.current_lease
    owner = f"{lease.worker_id}/{lease.worker_instance_id}" if lease else ""
    delayed = snapshot.eligible_at if snapshot.public_state is PublicState.DELAYED else None
    reason = snapshot.blocking_reason.value
    waits = snapshot.blocking_detail or ("" if reason == "none" else reason)
    over = "" if wait is None or wait.timeout_at is None else AT_TIMEOUT[wait.at_timeout]
    progress = "" if snapshot.progress_pct is None else f"{snapshot.progress_pct}%"
    why_ended = snapshot.failure_reason or snapshot.cancellation_reason or ""
    pairs = (
        ("kind", snapshot.execution_kind),
        ("lane", f"{snapshot.lane_id}, priority {snapshot.priority}"),
        ("namespace", snapshot.namespace),
        ("needs", ", ".join(snapshot.required_capabilities)),
        ("limits", ", ".join(bounds_of(snapshot.bounds))),
        ("fair key", snapshot.fair_key or ""),
        ("serial key", snapshot.serial_key or ""),
        ("unique key", snapshot.unique_key or ""),
        ("tags", ", ".join(f"{key}={value}" for key, value in snapshot.tags.items())),
        ("created", both(snapshot.created_at, now)),
        ("forked from", snapshot.forked_from or ""),
        ("retried from", snapshot.retried_from or ""),
        ("started", both(snapshot.started_at, now)),
        ("due", both(delayed, now)),
        ("deadline", both(snapshot.deadline_at, now)),
        ("ended", both(snapshot.completed_at, now)),
        ("removed", both(snapshot.purge_at, now)),
        ("attempts", _counts(snapshot)),
        ("owner", owner),
        ("lease ends", both(lease.expires_at, now) if lease else ""),
        ("progress", f"{progress} {snapshot.progress_message or ''}".strip()),
        ("waits for", waits if wait is None else wait.waits_for),
        ("since", "" if wait is None else both(wait.since, now)),
        ("at most until", both(snapshot.blocked_until, now) + (f": {over}" if over else "")),
        ("category", snapshot.failure_category or ""),
        ("reason", headline(why_ended)),
        ("started by", schedule_of(run_of(snapshot.tags))),
        ("follows", origin_of(snapshot.origin)),
        *(("then", each) for each in successors_of(snapshot.successors)),
    )
    return [(name, clean(value)) for name, value in pairs if value]


def _counts(snapshot: ExecutionSnapshot) -> str:
    kinds = (
        (snapshot.retry_count, "retry", "retries"),
        (snapshot.reclaim_count, "recovery", "recoveries"),
        (snapshot.replay_count, "replay", "replays"),
    )
    parts = [f"{n} {one if n == 1 else many}" for n, one, many in kinds if n]
    return ", ".join([f"{snapshot.total_attempt_count} started", *parts])


def show_attempts(call: Call, attempts: Sequence[AttemptInfo], now: int) -> None:
    """The history as a table."""
    if not attempts:
        return
    call.terminal.line()
    rows = [
        (
            attempt.attempt_index + 1,
            attempt.attempt_type.value,
            attempt.outcome,
            attempt.worker_instance_id or attempt.worker_id,
            relative(attempt.started_at, now),
            span(max(0, (attempt.ended_at or now) - attempt.started_at)),
            headline(attempt.failure_reason or ""),
        )
        for attempt in attempts
    ]
    call.terminal.table(_ATTEMPT_COLUMNS, rows)
    _show_tracebacks(call, attempts)


def _show_tracebacks(call: Call, attempts: Sequence[AttemptInfo]) -> None:
    """The traces of failed attempts, below the table that has only their first lines. Attempts in a
    row that failed at the same place are shown together, with the text of the last."""
    for trace, group in groupby(attempts, key=_trace):
        same = list(group)
        if not trace:
            continue
        first, last = same[0].attempt_index + 1, same[-1].attempt_index + 1
        which = f"attempt {first}" if first == last else f"attempts {first} to {last}"
        call.terminal.line()
        call.terminal.text(f"{which}: {headline(same[-1].failure_reason or '')}")
        for line in trace:
            call.terminal.line(harmless(line))


def _trace(attempt: AttemptInfo) -> list[str]:
    """The lines below the first of an attempt's failure reason."""
    _, _, trace = (attempt.failure_reason or "").strip().partition("\n")
    return [line for line in trace.split("\n") if line.strip()]
