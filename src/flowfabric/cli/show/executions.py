"""Executions in words: notes, limits and how they ended."""

from __future__ import annotations

from collections.abc import Iterable

from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.show.plain import decoded, preview
from flowfabric.cli.show.terminal import harmless
from flowfabric.cli.show.times import absolute, relative
from flowfabric.model.bounds import Bounds
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.schedule import Fate, RunOf
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.successor import Origin, Role, SuccessorInfo


def note(snapshot: ExecutionSnapshot, now: int) -> str:
    """The one fact worth knowing about it besides its state."""
    state = snapshot.public_state.value
    if state == "active":
        percent = "" if snapshot.progress_pct is None else f"{snapshot.progress_pct}%"
        owner = snapshot.current_lease.worker_id if snapshot.current_lease else "no owner"
        return " ".join(filter(None, (percent, snapshot.progress_message, f"on {owner}")))
    if state == "delayed":
        return f"{relative(snapshot.eligible_at, now)} {snapshot.blocking_detail}".strip()
    if snapshot.failure_reason or snapshot.cancellation_reason:
        return headline(snapshot.failure_reason or snapshot.cancellation_reason or "")
    if snapshot.blocked_until is not None and snapshot.blocking_detail:
        return f"{snapshot.blocking_detail}, {relative(snapshot.blocked_until, now)}"
    return snapshot.blocking_detail


def headline(text: str) -> str:
    """The first line of a reason, for people; a traceback follows it."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[0].strip() if lines else ""


def bounds_of(bounds: Bounds) -> list[str]:
    """Budgets, quota and key in words."""
    parts = [f"budget {name}" for name in bounds.budget_ids]
    if bounds.quota_policy_id is not None:
        parts.append(f"quota {bounds.quota_policy_id}")
    if bounds.concurrency_key is not None:
        parts.append(f"key {bounds.concurrency_key}")
    return parts


def origin_of(origin: Origin | None) -> str:
    """The end that an execution follows, in words."""
    if origin is None:
        return ""
    ended = origin.execution_id or f"flow {origin.flow_id}"
    again = f", its end number {origin.life + 1}" if origin.life else ""
    return f"{origin.role.value} of {ended}{again}"


def schedule_of(run: RunOf | None) -> str:
    """The schedule that has started an execution, in words."""
    if run is None:
        return ""
    late = ", caught up" if run.is_caught_up and run.fate is not Fate.BACKFILLED else ""
    known = run.fate in (None, Fate.RAN, Fate.CAUGHT_UP)
    fate = "" if known or run.fate is None else f", {run.fate.value}"
    tick = f"its tick of {absolute(run.tick)}"
    return f"schedule {run.schedule_id}: {tick}, run {run.number}{late}{fate}"


def successors_of(successors: Iterable[SuccessorInfo]) -> list[str]:
    """What follows the end of an execution, in words."""
    return [f"{each.role.value}: {_successor(each)}" for each in successors]


def _successor(told: SuccessorInfo) -> str:
    if told.role is not Role.UNDO:
        return f"{told.execution_kind} {told.execution_id or 'when it ends'}"
    many = f"{told.count} call{'s' * (told.count != 1)}"
    return f"{many}, flow {told.flow_id}" if told.flow_id else f"{many} unless it succeeds"


def show_result(
    call: Call, snapshot: ExecutionSnapshot, data: bytes | None, *, raw: bool = False
) -> Exit:
    """Print how it ended, and return the exit code."""
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


def _write_raw(call: Call, data: bytes) -> None:
    """Stored bytes as they are, but not to a terminal, which they could control."""
    text = data.decode(errors="replace")
    if call.terminal.is_tty and harmless(text) != text:
        raise usage(
            "--raw would send control characters to the terminal",
            advice="send it to a file or a pipe, or leave out --raw",
        )
    call.terminal.bytes(data)
