"""Suspend: how an episode begins, and the addresses handed out before it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric import limits
from flowfabric.errors import (
    AlreadySuspended,
    InvalidInput,
    InvalidWaitpointKey,
    NotFound,
    PendingWaitpointExpired,
    SuspendConflict,
    WaitpointAlreadyExists,
    WaitpointInUse,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
)
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner, same_lease
from flowfabric.kernel.execution.transition import lease_event, let_go
from flowfabric.kernel.wait.condition import contributes, is_met
from flowfabric.kernel.wait.episode import (
    Episode,
    EpisodeDecision,
    closed_row,
    closed_waitpoint,
    contribution,
)
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace
from flowfabric.model.state import (
    suspended,
)
from flowfabric.model.suspension import (
    AlreadyMet,
    Contribution,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    ResumeCondition,
    SignalRow,
    Suspended,
    SuspendKeyRow,
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior


class Binding(Record, frozen=True):
    """A waitpoint of a suspension: a new one, or one that was handed out before."""

    waitpoint_id: str
    waitpoint_key: str
    is_pending: bool = False
    payload_type: str | None = None


class SuspendExecution(ExecutionCommand[Suspended | AlreadyMet], frozen=True, kw_only=True):
    """The owner stops and waits."""

    fence: Fence
    suspension_id: str
    bindings: tuple[Binding, ...]
    condition: ResumeCondition
    reason_code: ReasonCode
    requested_by: RequestedBy
    timeout_at: int | None
    timeout_behavior: TimeoutBehavior
    resume_delay_ms: int
    continuation_metadata_pointer: str | None
    token_kid: str
    idempotency_key: str | None
    idempotency_ttl_ms: int
    digest: str

    def needs(self, need: Needs) -> None:
        """The execution, the waitpoints handed out before, and what their signals said."""
        need.executions.add(self.execution_id)
        need.waits = True
        pending = [(each.waitpoint_id,) for each in self.bindings if each.is_pending]
        need.waitpoints.update(pending)
        need.signals.update(pending)
        if self.idempotency_key is not None:
            need.suspend_keys.add((self.execution_id, self.idempotency_key))


class CreateWaitpoint(ExecutionCommand[WaitpointRow], frozen=True, kw_only=True):
    """The owner hands out an address before it suspends."""

    fence: Fence
    waitpoint_id: str
    waitpoint_key: str
    token_kid: str
    expires_in_ms: int
    payload_type: str | None = None

    def needs(self, need: Needs) -> None:
        """The execution and the waitpoint."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.waitpoints.add((self.waitpoint_id,))


class CloseWaitpoint(ExecutionCommand[WaitpointRow], frozen=True, kw_only=True):
    """Somebody no longer wants signals on a waitpoint."""

    waitpoint_id: str
    reason: str

    def needs(self, need: Needs) -> None:
        """The execution and the waitpoint."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.waitpoints.add((self.waitpoint_id,))


class Begun(Record, frozen=True):
    """A suspension as its caller is told of it; tokens are added by the engine."""

    suspension_id: str
    waitpoints: tuple[WaitpointRow, ...]
    is_met: bool = False


def suspend(
    execution: Execution | None,
    pending: Mapping[str, WaitpointRow],
    buffered: Sequence[SignalRow],
    seen: SuspendKeyRow | None,
    made: Episode | None,
    command: SuspendExecution,
    at: Moment,
) -> EpisodeDecision:
    """Release the lease and wait; or go on at once when early signals meet the condition.

    `seen` is what is known of the call's key, `made` the episode it made.
    """
    if seen is not None and made is not None and same_lease(seen, command.fence):
        return _again(seen, made, command)
    if refusal := _refuse(execution, seen, command, at):
        return EpisodeDecision(refusal)
    if execution is None:
        return EpisodeDecision(not_found(command.execution_id))
    command = with_default_timeout(execution, command, at)
    waitpoints = []
    for binding in command.bindings:
        bound = _bound(execution, binding, pending.get(binding.waitpoint_id), command, at)
        if isinstance(bound, Refused):
            return EpisodeDecision(bound)
        waitpoints.append(bound)
    row = _new_episode(execution, command, waitpoints, buffered, at)
    met = is_met(command.condition, row.progress)
    key = _key(execution, command, met, at)
    used = sum(binding.is_pending for binding in command.bindings)
    if met:
        return _met_early(execution, row, waitpoints, used, key, at)
    return _released(execution, row, waitpoints, used, key, at)


def with_default_timeout(
    execution: Execution, command: SuspendExecution, at: Moment
) -> SuspendExecution:
    """A suspension that names no timeout has its policy's."""
    policy = execution.policy.suspension_policy
    if command.timeout_at is not None or policy.default_timeout_ms is None:
        return command
    return replace(
        command,
        timeout_at=at.now + policy.default_timeout_ms,
        timeout_behavior=policy.timeout_behavior,
    )


def _again(seen: SuspendKeyRow, made: Episode, command: SuspendExecution) -> EpisodeDecision:
    """The owner's repeated call is answered again, however far the execution has gone on."""
    if seen.digest != command.digest:
        return EpisodeDecision(_key_refused("used for another suspension"))
    return EpisodeDecision(Begun(seen.suspension_id, made.waitpoints, is_met=bool(seen.is_met)))


def _refuse(
    execution: Execution | None, seen: SuspendKeyRow | None, command: SuspendExecution, at: Moment
) -> Refused | None:
    """Why this call cannot suspend the execution."""
    if command.timeout_at is not None and command.timeout_at + limits.TIMEOUT_SKEW_MS < at.now:
        return Refused(InvalidInput, "timeout_at: timeout_at_in_past", {"field": "timeout_at"})
    is_taken = (
        execution is not None and seen is not None and seen.attempt_index == execution.attempt_index
    )
    if execution is not None and execution.suspension_id is not None and not is_taken:
        return Refused(AlreadySuspended, execution.suspension_id)
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is None and is_taken:
        return _key_refused("the suspension it made has ended")
    return refusal


def _key_refused(why: str) -> Refused:
    return Refused(SuspendConflict, f"idempotency_key: {why}", {"field": "idempotency_key"})


def _bound(
    execution: Execution,
    binding: Binding,
    known: WaitpointRow | None,
    command: SuspendExecution,
    at: Moment,
) -> WaitpointRow | Refused:
    active = {
        "suspension_id": command.suspension_id,
        "state": WaitpointState.ACTIVE,
        "activated_at": at.now,
        "expires_at": command.timeout_at,
        "due_at": None,
    }
    if not binding.is_pending:
        if known is not None:
            return Refused(WaitpointAlreadyExists, f"waitpoint {binding.waitpoint_id}")
        fresh = new_waitpoint(execution, binding, command.token_kid, at)
        return replace(fresh, **active)
    if known is None or known.execution_id != execution.execution_id:
        return Refused(NotFound, f"waitpoint {binding.waitpoint_id}", {"entity": "waitpoint"})
    if known.waitpoint_key != binding.waitpoint_key:
        return Refused(InvalidWaitpointKey, f"waitpoint {known.waitpoint_id} has another key")
    if known.state is not WaitpointState.PENDING:
        return Refused(
            WaitpointNotPending, f"waitpoint {known.waitpoint_id} is {known.state.value}"
        )
    if known.attempt_index != execution.attempt_index:
        return Refused(WaitpointOfOtherAttempt, f"waitpoint {known.waitpoint_id}")
    if known.expires_at is not None and known.expires_at <= at.now:
        return Refused(PendingWaitpointExpired, f"at {known.expires_at}")
    return replace(known, **active)


def new_waitpoint(
    execution: Execution, binding: Binding, token_kid: str, at: Moment
) -> WaitpointRow:
    """A waitpoint nobody has signalled yet."""
    return WaitpointRow(
        binding.waitpoint_id,
        execution.execution_id,
        execution.attempt_index or 0,
        None,
        binding.waitpoint_key,
        WaitpointState.PENDING,
        token_kid,
        at.now,
        None,
        None,
        None,
        None,
        binding.payload_type,
    )


def _new_episode(
    execution: Execution,
    command: SuspendExecution,
    waitpoints: Sequence[WaitpointRow],
    buffered: Sequence[SignalRow],
    at: Moment,
) -> SuspensionRow:
    keys = {each.waitpoint_id: each.waitpoint_key for each in waitpoints}
    progress: list[Contribution] = []
    for signal in sorted(buffered, key=lambda each: (each.accepted_at, each.sequence)):
        found = contribution(signal, keys[signal.waitpoint_id])
        if contributes(command.condition, progress, found):
            progress.append(found)
    return SuspensionRow(
        execution.execution_id,
        command.suspension_id,
        execution.attempt_index or 0,
        command.reason_code,
        command.requested_by,
        command.condition,
        command.resume_delay_ms,
        at.now,
        command.timeout_at,
        command.timeout_behavior,
        command.continuation_metadata_pointer,
        tuple(progress),
    )


def _key(
    execution: Execution, command: SuspendExecution, met: bool, at: Moment
) -> SuspendKeyRow | None:
    if command.idempotency_key is None:
        return None
    return SuspendKeyRow(
        execution.execution_id,
        command.idempotency_key,
        execution.attempt_index or 0,
        execution.lease_epoch,
        command.digest,
        command.suspension_id,
        at.now + command.idempotency_ttl_ms,
        command.fence.lease_id,
        command.fence.attempt_id,
        int(met),
    )


def _met_early(
    execution: Execution,
    row: SuspensionRow,
    waitpoints: Sequence[WaitpointRow],
    used: int,
    key: SuspendKeyRow | None,
    at: Moment,
) -> EpisodeDecision:
    """The lease stays; the episode is kept, already closed, with the signals that met it."""
    closed = closed_row(row, ResumeCause.SIGNAL, "early signals", "resumed", at)
    ended = tuple(closed_waitpoint(each, "resumed", at) for each in waitpoints)
    after = replace(execution, side_holds=max(0, execution.side_holds - used))
    reply = Begun(row.suspension_id, ended, is_met=True)
    return EpisodeDecision(reply, after, None, (), closed, ended, suspend_key=key)


def _released(
    execution: Execution,
    row: SuspensionRow,
    waitpoints: Sequence[WaitpointRow],
    used: int,
    key: SuspendKeyRow | None,
    at: Moment,
) -> EpisodeDecision:
    gone = let_go(
        execution,
        suspended(row.reason_code.blocking_reason),
        at,
        blocking_detail=f"suspended: {row.reason_code.value.replace('_', ' ')}",
        attempt_spent_ms=execution.spent_ms(at.now),
    )
    parked = replace(
        gone,
        suspension_id=row.suspension_id,
        blocked_until=row.timeout_at,
        side_holds=max(0, execution.side_holds - used),
    )
    event = lease_event(execution, LeaseEventType.RELEASED, "suspend", at.now)
    reply = Begun(row.suspension_id, tuple(waitpoints))
    return EpisodeDecision(reply, parked, None, (event,), row, tuple(waitpoints), suspend_key=key)


def create_waitpoint(
    execution: Execution | None, known: WaitpointRow | None, command: CreateWaitpoint, at: Moment
) -> EpisodeDecision:
    """An address that buffers signals until the owner suspends on it, or it lapses."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return EpisodeDecision(refusal)
    if known is not None:
        return EpisodeDecision(Refused(WaitpointAlreadyExists, f"waitpoint {known.waitpoint_id}"))
    binding = Binding(command.waitpoint_id, command.waitpoint_key, True, command.payload_type)
    until = at.now + command.expires_in_ms
    made = replace(
        new_waitpoint(execution, binding, command.token_kid, at), expires_at=until, due_at=until
    )
    counted = replace(execution, side_holds=execution.side_holds + 1)
    return EpisodeDecision(made, counted, waitpoints=(made,))


def close_waitpoint(
    execution: Execution | None, waitpoint: WaitpointRow | None, command: CloseWaitpoint, at: Moment
) -> EpisodeDecision:
    """A pending waitpoint its maker will not use; one that is waited on cannot be closed."""
    if waitpoint is None or waitpoint.execution_id != command.execution_id:
        missing = f"waitpoint {command.waitpoint_id}"
        return EpisodeDecision(Refused(NotFound, missing, {"entity": "waitpoint"}))
    if waitpoint.state is WaitpointState.CLOSED:
        return EpisodeDecision(waitpoint)
    if waitpoint.state is WaitpointState.ACTIVE:
        detail = f"{waitpoint.execution_id} waits on it"
        return EpisodeDecision(Refused(WaitpointInUse, detail))
    gone = closed_waitpoint(waitpoint, command.reason, at)
    after = None
    if execution is not None:  # written even if it stays as it is: its version guards its waits
        after = replace(execution, side_holds=max(0, execution.side_holds - 1))
    return EpisodeDecision(gone, after, waitpoints=(gone,))
