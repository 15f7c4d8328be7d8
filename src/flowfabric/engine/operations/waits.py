"""Suspending and resuming an execution: it waits outside any worker.

See docs/guides/suspension.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from flowfabric import ids, limits
from flowfabric.api import waits as api
from flowfabric.api.waits import Fresh, StayPending, SuspendRequest, UsePending
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.leases import check_fence
from flowfabric.engine.operations.new_entries import checkpoint_command
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.wait_reads import token_of, waitpoint_info
from flowfabric.errors import FenceRequired, InvalidInput
from flowfabric.kernel.wait.condition import keys_of
from flowfabric.kernel.wait.resume import ExpireSuspension, ResumeExecution
from flowfabric.kernel.wait.schema import check_schema
from flowfabric.kernel.wait.suspend import SuspendExecution
from flowfabric.kernel.wait.waitpoint import Binding, CloseWaitpoint, CreateWaitpoint
from flowfabric.kernel.wait.watch import WatchExecutions
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_integer,
    check_list,
    check_name,
    check_text,
)
from flowfabric.model.condition_checks import check_condition
from flowfabric.model.execution import Fence
from flowfabric.model.limit_checks import check_word
from flowfabric.model.record import fields_of, replace, to_json
from flowfabric.model.suspension import (
    ReasonCode,
    RequestedBy,
    ResumeCondition,
    Single,
    WaitpointDetails,
    WaitpointInfo,
    WaitpointRow,
)
from flowfabric.model.words import TimeoutBehavior

# --- suspend -------------------------------------------------------------------------------------


@commands(api.Suspend)
def suspend(machine: Machine, request: api.Suspend) -> SuspendExecution:
    """Suspend by the owner."""
    handle = machine.check_handle(request.handle)
    command = _command(handle.execution_id, handle.fence, request.request)
    several = check_list(request.entries, field="entries")
    if not several:
        return command
    entries = checkpoint_command(handle, several, None, machine.config)
    return replace(command, entries=entries)


@commands(api.SuspendByTriple)
def suspend_by_triple(machine: Machine, request: api.SuspendByTriple) -> SuspendExecution:
    """Suspend by fence."""
    fence = check_fence(request.fence)
    if fence is None:
        raise FenceRequired("suspend needs the lease's fence", field="fence")
    return _command(machine.check_id(request.execution_id), fence, request.request)


def _command(execution_id: str, fence: Fence, request: object) -> SuspendExecution:
    """A checked SuspendExecution; every problem names its field, before anything is changed."""
    if not isinstance(request, SuspendRequest):
        raise InvalidInput("request: expected a SuspendRequest", field="request")
    condition = check_condition(request.resume_condition)
    timeout_at = request.timeout_at
    if timeout_at is not None:
        timeout_at = check_instant(timeout_at, field="timeout_at")
    pointer = request.continuation_metadata_pointer
    if pointer is not None:
        field = "continuation_metadata_pointer"
        pointer = check_text(pointer, field=field, max_bytes=limits.REASON_BYTES)
    key = None if request.idempotency_key == "" else request.idempotency_key
    if key is not None:
        key = check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
    bindings = _bindings(request.waitpoints, condition)
    return SuspendExecution(
        execution_id=execution_id,
        fence=fence,
        suspension_id=ids.new_uuid7s(1)[0],  # episodes of one instant sort in their order
        bindings=bindings,
        condition=condition,
        reason_code=check_word(request.reason_code, ReasonCode, field="reason_code"),
        requested_by=check_word(request.requested_by, RequestedBy, field="requested_by"),
        timeout_at=timeout_at,
        timeout_behavior=check_word(
            request.timeout_behavior, TimeoutBehavior, field="timeout_behavior"
        ),
        resume_delay_ms=_delay(request.resume_delay_ms),
        continuation_metadata_pointer=pointer,
        idempotency_key=key,
        idempotency_ttl_ms=limits.SUSPEND_KEY_TTL_MS,
        digest=_digest(request),
    )


def _digest(request: SuspendRequest) -> str:
    """A digest that tells a repeated request from another one under its key. Stored digests contain
    only the fields of waitpoints and not their kind, so new ones do too."""
    waitpoints: Any = tuple(
        {name: value for name, value in fields_of(each).items() if value is not None}
        for each in request.waitpoints
    )
    told = replace(request, waitpoints=waitpoints) if waitpoints else request
    return hashlib.sha256(to_json(told)).hexdigest()


def _bindings(
    asked: Sequence[Fresh | UsePending | StayPending], condition: ResumeCondition
) -> tuple[Binding, ...]:
    """Waitpoints and the keys a condition refers to must be the same set."""
    if not isinstance(asked, tuple | list):
        raise InvalidInput("waitpoints: expected a tuple", field="waitpoints")
    wanted = keys_of(condition)
    bindings = [_binding(each, index) for index, each in enumerate(asked)]
    if max(len(bindings), len(wanted)) > limits.WAITPOINTS_MAX:
        most = limits.WAITPOINTS_MAX
        raise InvalidInput(f"waitpoints: more than {most}", field="waitpoints")
    if not bindings:
        keys = wanted or ["wait"]
        return tuple(Binding(ids.new_secret_id(), key) for key in keys)
    given = [each.waitpoint_key for each in bindings]
    if len(set(given)) != len(given):
        raise InvalidInput("waitpoints: a key is listed twice", field="waitpoints")
    if isinstance(condition, Single) and condition.waitpoint_key != given[0]:
        raise InvalidInput("waitpoints: waitpoint_key_mismatch", field="waitpoints")
    for key in wanted:
        if key not in given:
            detail = f"waitpoints: referenced_waitpoint_key_missing_binding: {key}"
            raise InvalidInput(detail, field="waitpoints")
    for key in given:
        if wanted and key not in wanted:
            detail = f"waitpoints: extra_binding_not_referenced_by_condition: {key}"
            raise InvalidInput(detail, field="waitpoints")
    return tuple(
        sorted(bindings, key=lambda each: wanted.index(each.waitpoint_key) if wanted else 0)
    )


def _binding(asked: Any, index: int) -> Binding:
    match asked:
        case Fresh():
            return Binding(
                ids.new_secret_id(),
                _waitpoint_key(asked.waitpoint_key),
                False,
                check_schema(asked.payload_type),
            )
        case UsePending() | StayPending():
            name = check_name(asked.waitpoint_id, field=f"waitpoints[{index}].waitpoint_id")
            stays = isinstance(asked, StayPending)
            return Binding(name, _waitpoint_key(asked.waitpoint_key), True, stays_pending=stays)
        case _:
            field = f"waitpoints[{index}]"
            raise InvalidInput(f"{field}: expected Fresh, UsePending or StayPending", field=field)


# --- waitpoints ----------------------------------------------------------------------------------


@answers(api.CreateWaitpoint)
async def create_waitpoint(machine: Machine, request: api.CreateWaitpoint) -> WaitpointDetails:
    """A waitpoint, pending until a suspension uses it."""
    handle = machine.check_handle(request.handle)
    several = check_list(request.entries, field="entries")
    command = CreateWaitpoint(
        execution_id=handle.execution_id,
        fence=handle.fence,
        waitpoint_id=ids.new_secret_id(),
        waitpoint_key=_waitpoint_key(request.waitpoint_key),
        expires_in_ms=check_integer(
            request.expires_in_ms, field="expires_in_ms", least=1, most=limits.DURATION_MS_MAX
        ),
        payload_type=check_schema(request.payload_type),
        entries=checkpoint_command(handle, several, None, machine.config) if several else None,
    )
    made: WaitpointRow = await machine.execute(command)
    return WaitpointDetails(made.waitpoint_id, made.waitpoint_key, await token_of(machine, made))


@commands(api.WatchExecutions)
def watch_executions(machine: Machine, request: api.WatchExecutions) -> WatchExecutions:
    """Watch by the owner."""
    handle = machine.check_handle(request.handle)
    several = check_list(request.execution_ids, field="execution_ids")
    if not 1 <= len(several) <= limits.CREATE_MAX:
        detail = f"execution_ids: {len(several)} is not between 1 and {limits.CREATE_MAX}"
        raise InvalidInput(detail, field="execution_ids")
    return WatchExecutions(
        execution_id=handle.execution_id,
        fence=handle.fence,
        waitpoint_id=ids.new_secret_id(),
        watched_ids=tuple(dict.fromkeys(machine.check_id(each) for each in several)),
        needs_all=check_flag(request.needs_all, field="needs_all"),
    )


@answers(api.CloseWaitpoint)
async def close_waitpoint(machine: Machine, request: api.CloseWaitpoint) -> WaitpointInfo:
    """Close it; returns it as listings show it."""
    command = CloseWaitpoint(
        execution_id=machine.check_id(request.execution_id),
        waitpoint_id=check_name(request.waitpoint_id, field="waitpoint_id"),
        reason=check_text(request.reason, field="reason", max_bytes=limits.REASON_BYTES),
    )
    row: WaitpointRow = await machine.execute(command)
    return waitpoint_info(row, (), "")


# --- end a wait ----------------------------------------------------------------------------------


@commands(api.ResumeExecution)
def resume_execution(machine: Machine, request: api.ResumeExecution) -> ResumeExecution:
    """Resume by an operator."""
    return ResumeExecution(
        execution_id=machine.check_id(request.execution_id),
        resume_delay_ms=_delay(request.resume_delay_ms),
    )


@commands(api.ExpireSuspension)
def expire_suspension(machine: Machine, request: api.ExpireSuspension) -> ExpireSuspension:
    """End by its timeout."""
    return ExpireSuspension(
        execution_id=machine.check_id(request.execution_id), signal_id=ids.new_secret_id()
    )


# --- checks --------------------------------------------------------------------------------------


def _delay(value: int) -> int:
    return check_integer(value, field="resume_delay_ms", least=0, most=limits.DURATION_MS_MAX)


def _waitpoint_key(value: object) -> str:
    return check_name(value, field="waitpoint_key")
