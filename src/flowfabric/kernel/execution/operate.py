"""Changes of an operator to waiting work: priority, holds, blocks, tags."""

from __future__ import annotations

from typing import TypeVar

from flowfabric.errors import ExecutionNotEligible, InvalidBlockingReason
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.fence import not_active, not_found
from flowfabric.kernel.execution.routing import NO_WORKER, route_key
from flowfabric.kernel.execution.transition import operator_event, park, without_block
from flowfabric.kernel.tags import with_tags
from flowfabric.model.event import OperatorEventType
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.model.results import Blocked, PriorityChanged, Rejected, Unblocked
from flowfabric.model.state import (
    ADMISSION_BLOCK_REASONS,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
)

R = TypeVar("R")


class ChangePriority(ExecutionCommand[PriorityChanged], frozen=True, kw_only=True):
    """Move waiting work up or down."""

    new_priority: int


class Hold(ExecutionCommand[Blocked], frozen=True, kw_only=True):
    """Keep runnable work from being claimed until released."""

    reason: str


class Release(ExecutionCommand[Unblocked], frozen=True, kw_only=True):
    """End a hold: an operator's, or that of an execution whose code does not fit its journal."""

    def needs(self, need: Needs) -> None:
        """The execution and its open suspension."""
        need.executions.add(self.execution_id)
        need.waits = True


class Block(ExecutionCommand[Blocked | Rejected], frozen=True, kw_only=True):
    """Admission refuses: keep waiting work from being claimed, for a reason."""

    reason: BlockingReason
    detail: str


class BlockRoute(ExecutionCommand[Blocked | Rejected], frozen=True, kw_only=True):
    """A scheduler has found no worker that can run it."""

    lane_id: str | None  # the lane it is expected on
    detail: str


class Unblock(ExecutionCommand[Unblocked], frozen=True, kw_only=True):
    """The reason is gone; `expected` guards against lifting another block."""

    expected: BlockingReason | None
    by_operator: bool = False  # else a limit lifts its own block, which is not audited


class SetTag(ExecutionCommand[None], frozen=True, kw_only=True):
    """Label an execution."""

    key: str
    value: str


_HOLDABLE = (
    EligibilityState.ELIGIBLE_NOW,
    EligibilityState.NOT_ELIGIBLE_UNTIL_TIME,
    EligibilityState.BLOCKED_BY_DEPENDENCIES,  # dependencies go on being resolved underneath
    EligibilityState.BLOCKED_BY_TURN,  # its line goes on underneath
)


def _not_runnable(execution: Execution) -> Decision[R]:
    return refuse(ExecutionNotEligible, f"execution is {execution.public_state.value}")


def change_priority(
    execution: Execution | None, command: ChangePriority, at: Moment
) -> Decision[PriorityChanged]:
    """Takes effect at the next claim; refused for running or ended work."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if execution.state.lifecycle_phase is not LifecyclePhase.RUNNABLE:
        return _not_runnable(execution)
    old, new = execution.priority, command.new_priority
    changed = replace(execution, priority=new, last_mutation_at=at.now)
    audit = operator_event(
        execution,
        OperatorEventType.PRIORITY_CHANGED,
        at.now,
        old_priority=old,
        new_priority=new,
    )
    return Decision(PriorityChanged(execution.execution_id, old, new), changed, None, (audit,))


def hold(execution: Execution | None, command: Hold, at: Moment) -> Decision[Blocked]:
    """Blocked by the operator; a delay keeps running underneath, a grant is withdrawn."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    reason = BlockingReason.PAUSED_BY_OPERATOR
    if execution.state.lifecycle_phase is not LifecyclePhase.RUNNABLE:
        return _not_runnable(execution)
    if execution.state.blocking_reason is reason:
        return Decision(Blocked(execution.execution_id, reason))
    if execution.state.eligibility_state not in _HOLDABLE:  # another block must not be lost
        return _not_runnable(execution)
    held = park(execution, reason, command.reason or "held by an operator", at)
    audit = operator_event(execution, OperatorEventType.HELD, at.now, reason=command.reason)
    return Decision(Blocked(execution.execution_id, reason), held, None, (audit,))


def release(execution: Execution | None, command: Release, at: Moment) -> Decision[Unblocked]:
    """Back to waiting, or to the rest of its delay."""
    lift = Unblock(execution_id=command.execution_id, expected=BlockingReason.PAUSED_BY_OPERATOR)
    decision = unblock(execution, lift, at)
    if execution is None or decision.execution is None:
        return decision
    audit = operator_event(execution, OperatorEventType.RELEASED, at.now)
    return replace(decision, events=(audit,))


def block(execution: Execution | None, command: Block, at: Moment) -> Decision[Blocked | Rejected]:
    """Only waiting work without a live grant can be blocked; anything else is left alone."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    if command.reason not in ADMISSION_BLOCK_REASONS:
        return refuse(InvalidBlockingReason, f"reason: {command.reason.value}", field="reason")
    if execution.is_terminal:
        return Decision(not_active(execution))
    if not execution.is_waiting or execution.granted_to_other(at.now):
        return Decision(Rejected(f"execution is {execution.public_state.value}"))
    done = park(execution, command.reason, command.detail, at)
    audit = operator_event(
        execution,
        OperatorEventType.BLOCKED,
        at.now,
        blocking_reason=command.reason.value,
        detail=command.detail,
    )
    return Decision(Blocked(execution.execution_id, command.reason), done, None, (audit,))


def block_route(
    execution: Execution | None, command: BlockRoute, at: Moment
) -> Decision[Blocked | Rejected]:
    """As `block`, on its route: a worker that can run it ends the wait when it registers."""
    lane_id = command.lane_id
    if execution is not None and lane_id is not None and execution.lane_id != lane_id:
        return Decision(Rejected(f"execution is on lane {execution.lane_id}"))
    reason = BlockingReason.WAITING_FOR_CAPABLE_WORKER
    if execution is not None and execution.blocked_on == route_key(execution.route):
        return Decision(Blocked(execution.execution_id, reason))
    detail = command.detail or NO_WORKER
    plain = Block(execution_id=command.execution_id, reason=reason, detail=detail)
    decision = block(execution, plain, at)
    if decision.execution is None:
        return decision
    blocked = replace(decision.execution, blocked_on=route_key(decision.execution.route))
    return replace(decision, execution=blocked)


def call_up_route(execution: Execution, at: Moment) -> Decision[Unblocked]:
    """A worker that can run it has registered."""
    reason = BlockingReason.WAITING_FOR_CAPABLE_WORKER
    return unblock(execution, Unblock(execution_id=execution.execution_id, expected=reason), at)


def unblock(execution: Execution | None, command: Unblock, at: Moment) -> Decision[Unblocked]:
    """Restore the state before: waiting, or delayed until its time."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    state, expected = execution.state, command.expected
    liftable = state.blocking_reason in ADMISSION_BLOCK_REASONS
    if state.lifecycle_phase is not LifecyclePhase.RUNNABLE or not liftable:
        return _not_runnable(execution)
    if expected is not None and expected is not state.blocking_reason:
        return refuse(ExecutionNotEligible, f"blocked because {state.blocking_reason.value}")
    restored, detail = without_block(execution, at.now)
    lifted = replace(
        execution,
        state=restored,
        blocking_detail=detail,
        blocked_on=None,
        blocked_until=None,
        last_transition_at=at.now,
        last_mutation_at=at.now,
    )
    reply = Unblocked(execution.execution_id, lifted.public_state)
    if not command.by_operator:
        return Decision(reply, lifted)
    audit = operator_event(
        execution,
        OperatorEventType.UNBLOCKED,
        at.now,
        blocking_reason=state.blocking_reason.value,
    )
    return Decision(reply, lifted, None, (audit,))


def set_tag(execution: Execution | None, command: SetTag, at: Moment) -> Decision[None]:
    """A tag is set or overwritten."""
    if execution is None:
        return Decision(not_found(command.execution_id))
    tags = with_tags(execution.tags, {command.key: command.value})
    if isinstance(tags, Refused):
        return Decision(tags)
    changed = replace(execution, tags=tags, last_mutation_at=at.now)
    before = execution.tags.get(command.key)
    audit = operator_event(
        changed, OperatorEventType.TAGGED, at.now, key=command.key, value=command.value, old=before
    )
    return Decision(None, changed, None, (audit,))
