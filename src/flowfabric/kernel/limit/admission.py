"""Admission: may this execution start now? Budgets first, then the quota; a no says until when."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric.errors import ExecutionNotEligible
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.transition import finish, park
from flowfabric.kernel.limit.budget import Budget, Closed, closed
from flowfabric.kernel.limit.quota import Gate, admit, denial_text
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.budget import HardAction
from flowfabric.model.execution import Execution
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionRow,
    AdmissionState,
    ConcurrencyExceeded,
    RateExceeded,
)
from flowfabric.model.record import Record
from flowfabric.model.state import BlockingReason, TerminalOutcome

BUDGET_EXCEEDED = "budget_exceeded"


class Denial(Record, frozen=True):
    """Why an execution may not start, what it waits for, and when to look again at the latest."""

    reason: BlockingReason
    detail: str
    blocked_on: str
    until: int | None = None
    action: HardAction = HardAction.BLOCK

    def refusal(self) -> Refused:
        """What a caller that named the execution is told."""
        return Refused(ExecutionNotEligible, self.detail, {"blocking_reason": self.reason.value})


def budget_key(budget_id: str) -> str:
    """What an execution blocked on a budget waits for."""
    return f"budget:{budget_id}"


def gate_key(quota_policy_id: str, dimension: str) -> str:
    """What an execution blocked on a quota waits for; names hold no control character."""
    return f"quota:{quota_policy_id}\x1f{dimension}"


def budget_denial(execution: Execution, budgets: Mapping[str, Budget | None]) -> Denial | None:
    """The first attached budget that is closed; one that does not exist admits none."""
    for budget_id in execution.bounds.budget_ids:
        budget = budgets.get(budget_id)
        if budget is None or budget.row.policy is None:
            return _denied(budget_id, "does not exist or cannot be read")
        full = closed(budget)
        if full is not None and not _asks_itself(execution, full):
            detail = f"{full.dimension} {full.committed}/{full.limit}"
            return _denied(budget_id, detail, full.action)
    return None


def has_begun(execution: Execution) -> bool:
    """Whether it has run before."""
    return execution.attempt_index is not None


def _asks_itself(execution: Execution, full: Closed) -> bool:
    """A full budget that asks starts nothing new. What has begun goes on: it may have an allowance,
    or be about to ask, or to be told of an answer."""
    return full.action is HardAction.ASK and has_begun(execution)


def _denied(budget_id: str, what: str, action: HardAction = HardAction.BLOCK) -> Denial:
    return Denial(
        BlockingReason.WAITING_FOR_BUDGET,
        f"budget {budget_id}: {what}",
        budget_key(budget_id),
        action=action,
    )


def quota_denial(gate: Gate, outcome: AdmissionOutcome, now: int) -> Denial:
    """A quota said no."""
    until = now + outcome.retry_after_ms if isinstance(outcome, RateExceeded) else None
    row = gate.row
    return Denial(
        BlockingReason.WAITING_FOR_QUOTA,
        denial_text(gate, outcome),
        gate_key(row.quota_policy_id, row.dimension),
        until,
    )


def unknown_quota(execution: Execution) -> Denial:
    """There is no quota to ask: deny, and say so."""
    bounds = execution.bounds
    quota_policy_id = bounds.quota_policy_id or ""
    return Denial(
        BlockingReason.WAITING_FOR_QUOTA,
        f"quota {quota_policy_id} does not exist or cannot be read",
        gate_key(quota_policy_id, bounds.dimension),
    )


def take_slot(
    execution: Execution,
    gate: Gate | None,
    held: AdmissionRow | None,
    state: AdmissionState,
    at: Moment,
    *,
    jitter: float,
    due_at: int | None,
) -> Decision[Denial | None]:
    """A slot of its quota for an execution, or why it gets none. `gate`: none where it cannot be
    read."""
    if gate is None:
        return Decision(unknown_quota(execution))
    key = execution.execution_id
    decision = admit(gate, held, key, state, at, jitter=jitter, due_at=due_at)
    if isinstance(decision.reply, RateExceeded | ConcurrencyExceeded):
        return decision.told(quota_denial(gate, decision.reply, at.now))
    return decision.told(None)


def block(execution: Execution, denial: Denial, at: Moment) -> Decision[None]:
    """What a denial does to the execution: it waits, or it ends as the budget's policy says."""
    match denial.action:
        case HardAction.CANCEL_PENDING:
            return cancel_unpayable(execution, denial.detail, at)
        case HardAction.FAIL:
            return fail_unpayable(execution, denial.detail, at)
        case _:
            parked = park(
                execution,
                denial.reason,
                denial.detail,
                at,
                blocked_on=denial.blocked_on,
                blocked_until=denial.until,
            )
            return Decision(None, parked)


def cancel_unpayable(execution: Execution, detail: str, at: Moment) -> Decision[None]:
    """Pending work of an exhausted budget is cancelled."""
    return finish(
        execution,
        TerminalOutcome.CANCELLED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_CANCELLED,
        cancellation_reason=detail,
        cancelled_by=BUDGET_EXCEEDED,
        reply=None,
    )


def fail_unpayable(execution: Execution, detail: str, at: Moment) -> Decision[None]:
    """The budget's policy is to fail what cannot be paid; no retry would help."""
    return finish(
        execution,
        TerminalOutcome.FAILED,
        at,
        attempt_outcome=AttemptOutcome.ENDED_FAILURE,
        failure_reason=detail,
        failure_category=BUDGET_EXCEEDED,
        reply=None,
    )
