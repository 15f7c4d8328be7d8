"""Suspend: how an episode begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flowfabric import limits
from flowfabric.errors import (
    AlreadySuspended,
    InvalidInput,
    InvalidWaitpointKey,
    KeyringEmpty,
    NotFound,
    PendingWaitpointExpired,
    SuspendConflict,
    WaitpointAlreadyExists,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
)
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner, same_lease
from flowfabric.kernel.execution.transition import lease_event, let_go
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.repeat import in_force
from flowfabric.kernel.wait.condition import counted, is_met
from flowfabric.kernel.wait.episode import Episode, contribution, ended, signals_of
from flowfabric.kernel.wait.token import mint
from flowfabric.kernel.wait.waitpoint import Binding, new_waitpoint
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace
from flowfabric.model.state import suspended
from flowfabric.model.suspension import (
    AlreadyMet,
    ReasonCode,
    RequestedBy,
    ResumeCause,
    ResumeCondition,
    SecretRow,
    SignalRow,
    Suspended,
    SuspendKeyRow,
    SuspensionRow,
    TimeoutOnly,
    WaitpointDetails,
    WaitpointRow,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior


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
    idempotency_key: str | None
    idempotency_ttl_ms: int
    digest: str
    entries: Checkpoint | None = None  # added to the journal with it

    def needs(self, need: Needs) -> None:
        """The execution, the waitpoints handed out before, and what their signals said."""
        need.executions.add(self.execution_id)
        need.waits = True
        pending = [(each.waitpoint_id,) for each in self.bindings if each.is_pending]
        need.waitpoints.update(pending)
        need.signals.update(pending)
        if self.idempotency_key is not None:
            need.suspend_keys.add((self.execution_id, self.idempotency_key))
        if self.entries is not None:
            self.entries.needs(need)


class Facts(Record, frozen=True):
    """What is known when an owner suspends."""

    key: SecretRow | None  # signs the tokens
    waitpoints: Mapping[str, WaitpointRow] = {}  # of the bindings, by id: handed out before
    signals: Sequence[SignalRow] = ()  # at these, and at the waitpoints of `made`
    seen: SuspendKeyRow | None = None  # of the call's key
    made: Episode | None = None  # by the first call with this key


Begun = Suspended | AlreadyMet


def suspend(
    execution: Execution | None, facts: Facts, command: SuspendExecution, at: Moment
) -> Decision[Begun]:
    """Release the lease and wait; or go on at once when early signals meet the condition."""
    if facts.key is None:
        return refuse(KeyringEmpty)
    seen = in_force(facts.seen, at.now)
    if seen is not None and facts.made is not None and same_lease(seen, command.fence):
        return _again(seen, facts.made, facts.key, facts.signals, command)
    if refusal := _refuse(execution, seen, command, at):
        return Decision(refusal)
    if execution is None:
        return Decision(not_found(command.execution_id))
    command = with_default_timeout(execution, command, at)
    waitpoints = []
    for binding in command.bindings:
        known = facts.waitpoints.get(binding.waitpoint_id)
        used = _used(execution, binding, known, facts.key, command, at)
        if isinstance(used, Refused):
            return Decision(used)
        waitpoints.append(used)
    row = _new_episode(execution, command, waitpoints, facts.signals, at)
    met = is_met(command.condition, row.progress)
    reply = _told(Episode(row, tuple(waitpoints)), facts.key, facts.signals, is_met=met)
    bound = [each for each in waitpoints if each.state is not WaitpointState.PENDING]
    episode = Episode(row, tuple(bound))
    keys = _key(execution, command, met, at)
    if met:  # the lease stays; the episode is kept, already closed, with the signals that met it
        over = ended(episode, ResumeCause.SIGNAL, "early signals", "resumed", at)
        after = replace(execution, side_holds=_still_pending(execution, command))
        return Decision(reply, after, saves=(*over.rows, *keys))
    event = lease_event(execution, LeaseEventType.RELEASED, "suspend", at.now)
    parked = _parked(execution, row, command, at)
    return Decision(reply, parked, None, (event,), (*episode.rows, *keys))


def _told(episode: Episode, key: SecretRow, signals: Sequence[SignalRow], *, is_met: bool) -> Begun:
    """The answer, with the tokens, which are worked out and not stored."""
    row = episode.row
    details = tuple(
        WaitpointDetails(each.waitpoint_id, each.waitpoint_key, mint(each, key))
        for each in episode.waitpoints
    )
    if not is_met:
        return Suspended(row.suspension_id, details)
    return AlreadyMet(row.suspension_id, details, signals_of(row, episode.waitpoints, signals))


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


def _again(
    seen: SuspendKeyRow,
    made: Episode,
    key: SecretRow,
    signals: Sequence[SignalRow],
    command: SuspendExecution,
) -> Decision[Begun]:
    """The owner's repeated call is answered again, however far the execution has gone on."""
    if seen.digest != command.digest:
        return Decision(_key_refused("used for another suspension"))
    return Decision(_told(made, key, signals, is_met=bool(seen.is_met)))


def _refuse(
    execution: Execution | None, seen: SuspendKeyRow | None, command: SuspendExecution, at: Moment
) -> Refused | None:
    """Why this call cannot suspend the execution."""
    if refusal := _refuse_timeout(command, at):
        return refusal
    is_taken = (
        execution is not None and seen is not None and seen.attempt_index == execution.attempt_index
    )
    if execution is not None and execution.suspension_id is not None and not is_taken:
        return Refused(AlreadySuspended, execution.suspension_id)
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is None and is_taken:
        return _key_refused("the suspension it made has ended")
    return refusal


def _refuse_timeout(command: SuspendExecution, at: Moment) -> Refused | None:
    """A wait that only its timeout ends has one, and no timeout has passed already."""
    until = command.timeout_at
    if until is None and isinstance(command.condition, TimeoutOnly):
        detail = "timeout_at: TimeoutOnly needs a timeout"
    elif until is not None and until + limits.TIMEOUT_SKEW_MS < at.now:
        detail = "timeout_at: is in the past"
    else:
        return None
    return Refused(InvalidInput, detail, {"field": "timeout_at"})


def _key_refused(why: str) -> Refused:
    return Refused(SuspendConflict, f"idempotency_key: {why}", {"field": "idempotency_key"})


def _used(
    execution: Execution,
    binding: Binding,
    known: WaitpointRow | None,
    key: SecretRow,
    command: SuspendExecution,
    at: Moment,
) -> WaitpointRow | Refused:
    """A waitpoint as the wait leaves it: bound to it for good, or pending as before."""
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
        return replace(new_waitpoint(execution, binding, key, at), **active)
    if known is None or known.execution_id != execution.execution_id:
        return Refused(NotFound, f"waitpoint {binding.waitpoint_id}", {"entity": "waitpoint"})
    if known.waitpoint_key != binding.waitpoint_key:
        return Refused(InvalidWaitpointKey, f"waitpoint {known.waitpoint_id} has another key")
    if known.state is not WaitpointState.PENDING:
        return Refused(
            WaitpointNotPending, f"waitpoint {known.waitpoint_id} is {known.state.value}"
        )
    if known.attempt_index != execution.attempt_index and not known.is_lasting:
        return Refused(WaitpointOfOtherAttempt, f"waitpoint {known.waitpoint_id}")
    if known.expires_at is not None and known.expires_at <= at.now:
        return Refused(PendingWaitpointExpired, f"at {known.expires_at}")
    return known if binding.stays_pending else replace(known, **active)


def _new_episode(
    execution: Execution,
    command: SuspendExecution,
    waitpoints: Sequence[WaitpointRow],
    signals: Sequence[SignalRow],
    at: Moment,
) -> SuspensionRow:
    """With what the signals that came early contribute."""
    keys = {each.waitpoint_id: each.waitpoint_key for each in waitpoints}
    early = [each for each in signals if each.waitpoint_id in keys]
    early.sort(key=lambda each: (each.accepted_at, each.sequence))
    said = (contribution(signal, keys[signal.waitpoint_id]) for signal in early)
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
        counted(command.condition, said),
    )


def _key(
    execution: Execution, command: SuspendExecution, met: bool, at: Moment
) -> tuple[SuspendKeyRow, ...]:
    if command.idempotency_key is None:
        return ()
    row = SuspendKeyRow(
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
    return (row,)


def _parked(
    execution: Execution, row: SuspensionRow, command: SuspendExecution, at: Moment
) -> Execution:
    """The execution without its lease, waiting."""
    gone = let_go(
        execution,
        suspended(row.reason_code.blocking_reason),
        at,
        blocking_detail=f"suspended: {row.reason_code.value.replace('_', ' ')}",
        attempt_spent_ms=execution.spent_ms(at.now),
        side_holds=_still_pending(execution, command),
    )
    return replace(gone, suspension_id=row.suspension_id, blocked_until=row.timeout_at)


def _still_pending(execution: Execution, command: SuspendExecution) -> int:
    """What the execution holds without the waitpoints that are waited on now."""
    used = sum(each.is_pending and not each.stays_pending for each in command.bindings)
    return max(0, execution.side_holds - used)
