"""Executions in words: notes, limits and how they ended."""

from __future__ import annotations

from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit, usage
from flowfabric.cli.show.plain import decoded, preview
from flowfabric.cli.show.terminal import harmless
from flowfabric.model.bounds import Bounds
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.telling import headline as headline
from flowfabric.model.telling import note as note
from flowfabric.model.telling import origin_of as origin_of
from flowfabric.model.telling import schedule_of as schedule_of
from flowfabric.model.telling import successors_of as successors_of


def bounds_of(bounds: Bounds) -> list[str]:
    """Budgets, quota and key in words."""
    parts = [f"budget {name}" for name in bounds.budget_ids]
    if bounds.quota_policy_id is not None:
        parts.append(f"quota {bounds.quota_policy_id}")
    if bounds.concurrency_key is not None:
        parts.append(f"key {bounds.concurrency_key}")
    return parts


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
