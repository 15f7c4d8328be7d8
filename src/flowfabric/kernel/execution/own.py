"""Calls of a lease's owner while it runs: renew, report progress, pause."""

from __future__ import annotations

from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import AnyEvent, Decision, Moment
from flowfabric.kernel.execution.answer import kept
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner, refuse_writer
from flowfabric.kernel.execution.transition import lease_event, lease_horizon, let_go, wait_until
from flowfabric.model.event import LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.journal import RunningRow
from flowfabric.model.record import replace
from flowfabric.model.results import Delayed, LeaseRenewal, Progressed
from flowfabric.model.state import AttemptState, BlockingReason


class Renew(ExecutionCommand[LeaseRenewal], frozen=True, kw_only=True):
    """The owner is still at work. `running`: the key of the step that it runs, and for how long."""

    fence: Fence
    lease_ttl_ms: int
    running: str | None = None
    running_ms: int = 0

    def needs(self, need: Needs) -> None:
        """The execution, and what an earlier renewal told of it."""
        need.executions.add(self.execution_id)
        if self.running is not None:
            need.running.add((self.execution_id,))


class Progress(ExecutionCommand[Progressed], frozen=True, kw_only=True):
    """The owner reports progress; absent fields keep their values."""

    fence: Fence
    percent: int | None = None
    message: str | None = None


class Delay(ExecutionCommand[Delayed], frozen=True, kw_only=True):
    """The owner pauses the attempt until an instant and continues it then."""

    fence: Fence | None
    delay_until: int
    source: str


def renew(execution: Execution | None, command: Renew, at: Moment) -> Decision[LeaseRenewal]:
    """A later expiry, never past the deadline or the attempt's time."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    expires_at = lease_horizon(
        at.now + command.lease_ttl_ms, execution.deadline_at, execution.attempt_due_at
    )
    renewed = replace(
        execution, lease_expires_at=expires_at, lease_renewed_at=at.now, last_mutation_at=at.now
    )
    events: tuple[AnyEvent, ...] = ()
    if execution.policy.renewal_events:
        events = (lease_event(renewed, LeaseEventType.RENEWED, "", at.now),)
    saves: tuple[RunningRow, ...] = ()
    if command.running is not None:
        since = max(0, at.now - command.running_ms)
        epoch = execution.lease_epoch
        saves = (RunningRow(execution.execution_id, command.running, since, at.now, epoch),)
    reply = LeaseRenewal(expires_at, execution.lease_epoch)
    return Decision(reply, renewed, events=events, saves=saves)


def progress(execution: Execution | None, command: Progress, at: Moment) -> Decision[Progressed]:
    """The two progress fields, each only when given."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    percent, message = command.percent, command.message
    reported = replace(
        execution,
        progress_pct=execution.progress_pct if percent is None else percent,
        progress_message=execution.progress_message if message is None else message,
        progress_updated_at=at.now,
        last_mutation_at=at.now,
    )
    return Decision(Progressed(execution.execution_id), reported)


def delay(execution: Execution | None, command: Delay, at: Moment) -> Decision[Delayed]:
    """The lease is released, the attempt waits and continues later."""
    refusal = refuse_writer(execution, command.execution_id, command.fence, command.source, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    state, detail = wait_until(
        command.delay_until,
        AttemptState.ATTEMPT_INTERRUPTED,
        at.now,
        BlockingReason.WAITING_FOR_DELAY,
    )
    parked = let_go(
        execution,
        state,
        at,
        eligible_at=command.delay_until,
        blocking_detail=detail,
        attempt_spent_ms=execution.spent_ms(at.now),
    )
    event = lease_event(execution, LeaseEventType.RELEASED, "worker_delay", at.now)
    reply = Delayed(execution.execution_id, command.delay_until)
    fenced = command.fence is not None
    told = (kept(execution, execution.lease_epoch, reply, at),) if fenced else ()
    return Decision(reply, parked, None, (event,), saves=told)
