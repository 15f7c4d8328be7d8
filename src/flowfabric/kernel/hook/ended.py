"""Ended: which hooks an end runs, and what they are told."""

from __future__ import annotations

from typing import Any

from flowfabric import limits
from flowfabric.kernel.execution.create import CreateExecution
from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.nesting import JSON, is_too_deep
from flowfabric.model.record import Raw, fields_of, is_json, to_json
from flowfabric.model.state import TerminalOutcome
from flowfabric.model.successor import Hook, Hooks, Origin, Role, RunEnded, Successor
from flowfabric.model.ties import Ties

_FAILURES = (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED)


def hooks_of(hooks: Hooks | None) -> list[tuple[Role, Hook]]:
    """The hooks of an execution or a flow, whether it has ended or not."""
    if hooks is None:
        return []
    named = (
        (Role.ON_SUCCESS, hooks.on_success),
        (Role.ON_FAILURE, hooks.on_failure),
        (Role.ON_END, hooks.on_end),
    )
    return [(role, hook) for role, hook in named if hook is not None]


def is_run(role: Role, outcome: TerminalOutcome) -> bool:
    """Whether an end runs the hook of this role."""
    if role is Role.ON_SUCCESS:
        return outcome is TerminalOutcome.SUCCESS
    if role is Role.ON_FAILURE:
        return outcome in _FAILURES
    return role is Role.ON_END


def hooks_due(ended: Execution) -> list[tuple[Role, Hook]]:
    """The hooks that the end of an execution runs."""
    outcome = ended.state.terminal_outcome
    return [(role, hook) for role, hook in hooks_of(ended.ties.hooks) if is_run(role, outcome)]


def create_hook(
    ended: Execution, role: Role, hook: Hook, execution_id: str, attempt: Attempt | None
) -> CreateExecution:
    """The execution of a hook. `attempt`: the one by which the other succeeded."""
    payload = b"{}" if hook.argument is None else _told(ended, hook.argument, attempt)
    origin = Origin(role, ended.replay_count, ended.execution_id)
    return create_successor(hook.successor, execution_id, payload, origin)


def create_successor(
    successor: Successor, execution_id: str, payload: bytes, origin: Origin
) -> CreateExecution:
    """An execution that was promised: its lane takes it in also when it is closed by now."""
    return CreateExecution(
        execution_id=execution_id,
        route=successor.route,
        priority=successor.priority,
        policy=successor.policy,
        body=Body(execution_id, payload, JSON),
        tags={},
        bounds=successor.bounds,
        ties=Ties(origin=origin),
        is_promised=True,
        mailboxes=successor.mailboxes,
    )


def _told(ended: Execution, argument: str, attempt: Attempt | None) -> bytes:
    told = fields_of(_run_ended(ended))
    result = None if attempt is None else attempt.result
    if result is not None and attempt is not None:
        if _fits(result, attempt.result_encoding):
            told["result"] = Raw(result)
        else:
            told["is_result_left_out"] = True
    document: dict[str, Any] = {argument: told}
    return to_json(document)


def _fits(result: bytes, encoding: str | None) -> bool:
    """Whether a result can be a part of what a hook is told."""
    if len(result) > limits.HOOK_RESULT_BYTES or encoding != JSON:
        return False
    return is_json(result) and not is_too_deep(b"[[" + result + b"]]")


def _run_ended(ended: Execution) -> RunEnded:
    hooks = ended.ties.hooks
    reason = ended.failure_reason
    return RunEnded(
        ended.execution_id,
        ended.execution_kind,
        ended.public_state.value,
        ended.cancellation_reason if reason is None else reason,
        ended.failure_category,
        None if hooks is None else hooks.key,
        ended.tags,
        ended_at=ended.completed_at or 0,
    )
