"""`ff show`, `ff why`, `ff result`: everything about one execution."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.api.page import every_item
from flowfabric.api.waits import WaitInfo
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, not_found, usage
from flowfabric.cli.listing import headline
from flowfabric.cli.places import bounds_of
from flowfabric.cli.plain import decoded, plain, preview
from flowfabric.cli.references import execution_of
from flowfabric.cli.terminal import Column, clean, harmless, shorten
from flowfabric.cli.times import both, relative, span
from flowfabric.cli.watching import watch
from flowfabric.limits import PAGE_MAX
from flowfabric.model.results import AttemptInfo, ExecutionSnapshot, Explanation
from flowfabric.model.state import TERMINAL_STATES, PublicState
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
_LIMIT_COLUMNS: Final = (
    Column("LIMIT"),
    Column("USAGE", shrinks=True),
    Column("KEEPS IT BACK"),
    Column("ROOM AGAIN", shrinks=True),
)
_WAIT_COLUMNS: Final = (
    Column("KEY"),
    Column("NAME"),
    Column("WAITS FOR"),
    Column("HAVE", right=True),
)
_DUE_WORDS: Final = {PublicState.ACTIVE: "lease ends", PublicState.SUSPENDED: "timeout"}
_WORKER_COLUMNS: Final = (Column("WORKER"), Column("CAN RUN IT"), Column("LACKS", shrinks=True))


async def found(engine: EngineBackend, execution_id: str) -> ExecutionSnapshot:
    """The execution, or a failure that says what to check."""
    snapshot = await engine.describe_execution(execution_id=execution_id)
    if snapshot is None:
        raise not_found(
            f"no execution {execution_id}",
            advice="ff ps lists ids; finished work is removed when its retention ends",
        )
    return snapshot


async def named(call: Call, engine: EngineBackend, *, waiting: bool = False) -> ExecutionSnapshot:
    """The execution that the command line names; from now on it is the last one shown."""
    execution_id = await execution_of(call, engine, call.arguments.id, waiting=waiting)
    snapshot = await found(engine, execution_id)
    call.shown.remember("execution", [execution_id], is_listing=False)
    return snapshot


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
        wait = (await engine.describe_waits(execution_ids=[execution_id])).get(execution_id)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        document = plain(snapshot) | {"attempts": plain(attempts)}
        document["payload"] = decoded(context.input_payload)
        document["result"] = None if result is None else decoded(result)
        document["wait"] = plain(wait)
        call.terminal.document(document)
        return Exit.OK
    terminal = call.terminal
    state = terminal.state(snapshot.public_state.value)
    terminal.line(f"{terminal.paint(snapshot.execution_id, 'bold')}  {state}")
    data = [("input", preview(context.input_payload))]
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
        ("tags", ", ".join(f"{key}={value}" for key, value in snapshot.tags.items())),
        ("created", both(snapshot.created_at, now)),
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
    """What failed attempts left, below the table that has only their first lines. Attempts in a
    row that failed at the same place are told together, in the words of the last."""
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
    """The lines below the first of why an attempt failed."""
    _, _, trace = (attempt.failure_reason or "").strip().partition("\n")
    return [line for line in trace.split("\n") if line.strip()]


async def why(call: Call) -> Exit:
    """The engine's explanation, with what to try."""
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        explanation = await engine.explain(execution_id=snapshot.execution_id)
        now = await engine.server_time_ms()
    if call.terminal.as_json:
        call.terminal.document(plain(explanation))
    else:
        show_explanation(call, explanation, now)
    return Exit.OK


def show_explanation(call: Call, explanation: Explanation, now: int) -> None:
    """The summary first: it is what was asked."""
    terminal = call.terminal
    state = explanation.public_state.value
    terminal.text(f"{state}: {explanation.summary}", state=state)
    due = _DUE_WORDS.get(explanation.public_state, "due")
    pairs = [
        ("since", both(explanation.since, now)),
        ("waiting for", explanation.waiting_for.removeprefix("waiting_for_").replace("_", " ")),
        (due, both(explanation.due_at, now)),
        ("missing", ", ".join(explanation.missing_capabilities)),
        *(("try", hint) for hint in explanation.hints),
    ]
    terminal.facts([(name, clean(value)) for name, value in pairs if value])
    if explanation.public_state in TERMINAL_STATES:
        return
    _show_tables(call, explanation, now)


def _show_tables(call: Call, explanation: Explanation, now: int) -> None:
    """What a suspended execution waits for, its limits, and who could run it."""
    waits = [
        (
            ", ".join(line.waitpoint_keys),
            line.signal_name or "any",
            line.what,
            f"{line.have}/{line.need}",
        )
        for line in explanation.waits
        if line.waitpoint_keys
    ]
    limits = [
        (
            f"{limit.kind} {limit.limit_id}",
            limit.usage,
            "yes" if limit.keeps_back else "no",
            both(limit.clears_at, now),
        )
        for limit in explanation.limits
    ]
    workers = [
        (f"{fit.worker_id}/{fit.worker_instance_id}", "yes" if fit.fits else "no", fit.lacks)
        for fit in explanation.could_run
        if explanation.public_state not in _DUE_WORDS  # runs already, or no worker is the matter
    ]
    tables = ((_WAIT_COLUMNS, waits), (_LIMIT_COLUMNS, limits), (_WORKER_COLUMNS, workers))
    for columns, rows in tables:
        if rows:
            call.terminal.line()
            call.terminal.table(columns, rows)


async def result(call: Call) -> Exit:
    """The result on the output stream; a failure's reason on the error stream."""
    wait_ms = call.arguments.wait
    async with call.engine() as engine:
        snapshot = await named(call, engine)
        execution_id = snapshot.execution_id
        if wait_ms != 0 and snapshot.public_state not in TERMINAL_STATES:
            snapshot = await watch(engine, call, execution_id, timeout_ms=wait_ms)
        data = await engine.get_execution_result(execution_id=execution_id)
    return show_result(call, snapshot, data, raw=call.arguments.raw)


def _write_raw(call: Call, data: bytes) -> None:
    """Stored bytes as they are, but not to a terminal that they could drive."""
    text = data.decode(errors="replace")
    if call.terminal.is_tty and harmless(text) != text:
        raise usage(
            "--raw would send control characters to the terminal",
            advice="send it to a file or a pipe, or leave out --raw",
        )
    call.terminal.bytes(data)


def show_result(
    call: Call, snapshot: ExecutionSnapshot, data: bytes | None, *, raw: bool = False
) -> Exit:
    """Print how it ended, and say it with the exit code."""
    if snapshot.public_state not in TERMINAL_STATES:
        raise CommandFailed(
            f"{snapshot.execution_id} is {snapshot.public_state.value}",
            advice="wait with --wait 30s, or ask ff why",
            exit_code=Exit.TIMEOUT,
            code="not_finished",
        )
    completed = snapshot.public_state is PublicState.COMPLETED
    if raw and completed:
        _write_raw(call, data or b"")
    elif call.terminal.as_json:
        call.terminal.document(
            {
                "execution_id": snapshot.execution_id,
                "public_state": snapshot.public_state.value,
                "result": decoded(data) if completed and data is not None else None,
                "failure_reason": snapshot.failure_reason,
                "failure_category": snapshot.failure_category,
                "cancellation_reason": snapshot.cancellation_reason,
            }
        )
    elif completed:
        call.terminal.stored(preview(data))
    if completed:
        return Exit.OK
    reason = headline(snapshot.failure_reason or snapshot.cancellation_reason or "")
    ended = f"{snapshot.execution_id} {snapshot.public_state.value}"
    call.terminal.complain(f"{ended}{': ' if reason else ''}{reason} — see ff show, or ff retry it")
    return Exit.FAILED
