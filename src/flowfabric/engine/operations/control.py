"""Operations of an operator on an execution: cancel, priority, replay, revoke, hold, tag."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api import control as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.leases import check_fence
from flowfabric.engine.operations.performing import answers, commands
from flowfabric.engine.operations.workers import live_workers
from flowfabric.errors import InvalidBlockingReason
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.operate import (
    Block,
    BlockRoute,
    ChangePriority,
    Hold,
    Release,
    SetTag,
    Unblock,
)
from flowfabric.kernel.execution.replay import Replay
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.routing import able_worker
from flowfabric.model.checks import (
    check_flag,
    check_instant,
    check_lane,
    check_name,
    check_tag_key,
    check_tag_value,
    check_text,
    clamp_priority,
    clip_text,
    word_of,
)
from flowfabric.model.execution import Execution
from flowfabric.model.results import Blocked, Rejected
from flowfabric.model.shown import shown
from flowfabric.model.state import BlockingReason
from flowfabric.stores.base import Reader

# --- the course of an execution ------------------------------------------------------------------


@commands(api.CancelExecution)
def cancel_execution(machine: Machine, request: api.CancelExecution) -> Cancel:
    """Cancel in any phase."""
    return Cancel(
        execution_id=machine.check_id(request.execution_id),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
        source=check_name(request.source, field="source"),
        fence=check_fence(request.fence),
    )


@commands(api.ChangePriority)
def change_priority(machine: Machine, request: api.ChangePriority) -> ChangePriority:
    """Raise or lower."""
    rank = clamp_priority(request.new_priority, field="new_priority")
    return ChangePriority(execution_id=machine.check_id(request.execution_id), new_priority=rank)


@commands(api.ReplayExecution)
def replay_execution(machine: Machine, request: api.ReplayExecution) -> Replay:
    """Start a new attempt."""
    by, until = request.requested_by, request.deadline_at
    return Replay(
        execution_id=machine.check_id(request.execution_id),
        requested_by=check_text(by, field="requested_by", max_bytes=limits.NAME_BYTES, empty=True),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
        deadline_at=None if until is None else check_instant(until, field="deadline_at"),
        cascade=check_flag(request.cascade, field="cascade"),
        fresh=check_flag(request.fresh, field="fresh"),
    )


@commands(api.RevokeLease)
def revoke_lease(machine: Machine, request: api.RevokeLease) -> RevokeLease:
    """End the lease of its worker."""
    return RevokeLease(
        execution_id=machine.check_id(request.execution_id),
        reason=clip_text(request.reason, limits.REASON_BYTES, field="reason"),
        expected_lease_id=_expectation(request.expected_lease_id, "expected_lease_id"),
        worker_instance_id=_expectation(request.worker_instance_id, "worker_instance_id"),
    )


def _expectation(value: str, field: str) -> str:
    """Text to compare with; empty means that it is not checked."""
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES, empty=True)


# --- holds and blocks ----------------------------------------------------------------------------


@commands(api.HoldExecution)
def hold_execution(machine: Machine, request: api.HoldExecution) -> Hold:
    """Hold until it is released."""
    text = clip_text(request.reason, limits.REASON_BYTES, field="reason")
    return Hold(execution_id=machine.check_id(request.execution_id), reason=text)


@commands(api.ReleaseExecution)
def release_execution(machine: Machine, request: api.ReleaseExecution) -> Release:
    """End a hold."""
    return Release(execution_id=machine.check_id(request.execution_id))


@commands(api.BlockExecutionForAdmission)
def block_execution_for_admission(
    machine: Machine, request: api.BlockExecutionForAdmission
) -> Block:
    """Block for a reason of admission."""
    return Block(
        execution_id=machine.check_id(request.execution_id),
        reason=_reason(request.reason),
        detail=clip_text(request.reason_detail, limits.REASON_BYTES, field="reason_detail"),
    )


@answers(api.BlockRoute)
async def block_route(machine: Machine, request: api.BlockRoute) -> Blocked | Rejected:
    """Block, unless a live worker can run it: looked for before, and again after the block."""
    reason, lane_id = _reason(request.reason_code, "reason_code"), request.lane_id
    if reason is not BlockingReason.WAITING_FOR_CAPABLE_WORKER:
        raise InvalidBlockingReason(f"reason_code: {reason.value}", field="reason_code")
    key, actor = machine.check_id(request.execution_id), machine.actor(request.actor)
    command = BlockRoute(
        execution_id=key,
        lane_id=None if lane_id is None else check_lane(lane_id),
        detail=clip_text(request.reason_detail, limits.REASON_BYTES, field="reason_detail"),
        actor=actor,
    )
    if (able := await machine.read(lambda reader: _able_worker(reader, key))) is not None:
        return Rejected(f"worker {able} can run it")
    reply = await machine.execute(command)
    if isinstance(reply, Rejected):
        return reply
    if (able := await machine.read(lambda reader: _able_worker(reader, key))) is None:
        return reply
    lift = Unblock(execution_id=key, expected=reason, by_operator=True, actor=actor)
    await machine.execute_together([lift], check=lambda _: None)  # the worker may have lifted it
    return Rejected(f"worker {able} can run it")


async def _able_worker(reader: Reader, execution_id: str) -> str | None:
    await reader.catalog()
    execution = (await reader.get([execution_id])).get(execution_id)
    if not isinstance(execution, Execution) or execution.is_terminal:
        return None
    workers = await live_workers(reader, execution.namespace)
    able = able_worker(workers, execution.route, reader.now)
    return None if able is None else able.worker_instance_id


@commands(api.UnblockExecution)
def unblock_execution(machine: Machine, request: api.UnblockExecution) -> Unblock:
    """Lift the expected block, or any."""
    given = request.expected_reason
    expected = None if given is None else _reason(given, "expected_reason")
    return Unblock(
        execution_id=machine.check_id(request.execution_id), expected=expected, by_operator=True
    )


def _reason(reason: BlockingReason | str, field: str = "reason") -> BlockingReason:
    word = word_of(reason, BlockingReason)
    if word is None:
        raise InvalidBlockingReason(f"{field}: {shown(reason, 80)}", field=field)
    return word


# --- tags ----------------------------------------------------------------------------------------


@commands(api.SetExecutionTag)
def set_execution_tag(machine: Machine, request: api.SetExecutionTag) -> SetTag:
    """Set one tag."""
    key, value = request.key, request.value
    return SetTag(
        execution_id=machine.check_id(request.execution_id),
        key=check_tag_key(key),
        value=check_tag_value(value),
        actor=machine.actor(request.actor),
    )
