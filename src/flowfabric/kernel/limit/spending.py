"""Spending: reports, and spends with a ledger; each all or nothing under hard limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from flowfabric.kernel.command import Command, Key, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.limit.admission import fail_unpayable
from flowfabric.kernel.limit.budget import (
    Budget,
    count_hard_breach,
    count_soft_breach,
    hard_breach,
    moved,
    overflow,
    refuse_unknown,
    soft_breach,
)
from flowfabric.kernel.limit.ledger import Account, entered
from flowfabric.kernel.repeat import in_force
from flowfabric.model.budget import (
    AlreadyApplied,
    DedupRow,
    HardAction,
    HardBreach,
    Ok,
    UsageOutcome,
)
from flowfabric.model.event import BudgetEvent, OperatorEvent, OperatorEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import Record, replace

R = TypeVar("R")
# Of a remembered outcome: the budget, the operation, the execution or "", the caller's key.
DedupKey = tuple[str, str, str, str]

REPORT = "report_usage"
SPEND = "record_spend"


class ReportUsage(Command[UsageOutcome], frozen=True, kw_only=True):
    """What was used. A worker proves that it owns the execution; an operator needs no fence."""

    budget_id: str
    amounts: Mapping[str, int]
    dedup_key: str | None
    dedup_ttl_ms: int
    execution_id: str | None = None
    fence: Fence | None = None
    must_exist: bool = False  # a budget without a policy is refused
    is_admin: bool = False  # from outside any execution: it is audited

    @property
    def seen_under(self) -> DedupKey | None:
        """Where the outcome is remembered, if it is to be."""
        return None if self.dedup_key is None else (self.budget_id, REPORT, "", self.dedup_key)

    def needs(self, need: Needs) -> None:
        """The budget, an earlier report under the key, the execution that is named."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        if (key := self.seen_under) is not None:
            need.dedups.add(key)
        if self.execution_id is not None:
            need.executions.add(self.execution_id)
            need.ledgers.add((self.budget_id, self.execution_id))


class RecordSpend(Command[UsageOutcome], frozen=True, kw_only=True):
    """What one execution spent, remembered so that it can be given back."""

    budget_id: str
    execution_id: str
    amounts: Mapping[str, int]
    dedup_key: str | None
    dedup_ttl_ms: int

    @property
    def seen_under(self) -> DedupKey | None:
        """Where the outcome is remembered, if it is to be."""
        key = self.dedup_key
        return None if key is None else (self.budget_id, SPEND, self.execution_id, key)

    def needs(self, need: Needs) -> None:
        """The budget, the account, and the execution, which may be long gone."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        if (key := self.seen_under) is not None:
            need.dedups.add(key)


class ReleaseBudget(Command[None], frozen=True, kw_only=True):
    """Give back everything one execution spent."""

    budget_id: str
    execution_id: str

    @property
    def spends(self) -> Key:
        """Under what the outcomes of its spends are remembered."""
        return (self.budget_id, SPEND, self.execution_id)

    def needs(self, need: Needs) -> None:
        """The budget, the account, and the execution, which may be long gone."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        need.dedups.add(self.spends)


def report_usage(
    execution: Execution | None,
    budget: Budget,
    seen: DedupRow | None,
    account: Account | None,
    command: ReportUsage,
    at: Moment,
) -> Decision[UsageOutcome]:
    """Applied once per key; the first outcome is answered again.

    `account`: of the execution whose worker reports.
    """
    known, fence = in_force(seen, at.now), command.fence
    if fence is not None:
        refusal = refuse_unless_owner(execution, command.execution_id or "", fence, at.now)
        if refusal is not None:  # a repeated call may come after the end of its worker's lease
            return Decision(refusal if known is None else known.outcome)
    if command.must_exist and (refusal := refuse_unknown(budget)):
        return Decision(refusal)
    if known is not None and not isinstance(known.outcome, HardBreach):
        return Decision(known.outcome)
    decided = _spend(None if fence is None else execution, budget, known, account, command, at)
    if command.is_admin and not isinstance(decided.reply, Refused | HardBreach):
        details = {"amounts": dict(command.amounts)}
        kind = OperatorEventType.USAGE_REPORTED
        event = OperatorEvent(command.budget_id, kind, details, "", {}, at.now)
        decided = decided.audited(event)
    return decided


def record_spend(
    budget: Budget,
    seen: DedupRow | None,
    account: Account,
    command: RecordSpend,
    at: Moment,
) -> Decision[UsageOutcome]:
    """As a report, of amounts that can be given back."""
    known = in_force(seen, at.now)
    if known is not None and not isinstance(known.outcome, HardBreach):
        return Decision(AlreadyApplied())
    return _spend(None, budget, known, account, command, at)


def _spend(
    execution: Execution | None,
    budget: Budget,
    known: DedupRow | None,
    account: Account | None,
    command: ReportUsage | RecordSpend,
    at: Moment,
) -> Decision[UsageOutcome]:
    """`execution`: the one whose worker spends."""
    if refusal := overflow(budget, command.amounts):
        return Decision(refusal)
    if breach := hard_breach(budget, command.amounts):
        decision: Decision[UsageOutcome] = Decision(breach)
        if known is None:  # the same call again is refused again, and counted once
            counted, events = count_hard_breach(budget, breach, at)
            saves = (counted, *_remembered(command, breach, at))
            decision = Decision(breach, events=events, saves=saves)
        return failing(decision, execution, budget, breach, at)
    outcome, after, events = charged(budget, command.amounts, at)
    is_kept, lines = isinstance(command, ReportUsage), list[Record]()
    if account is not None:
        lines = entered(after.row, account, command.amounts, is_kept=is_kept)
    saved = (after, *_remembered(command, outcome, at), *lines)
    return Decision(outcome, None, None, events, saved)


def charged(
    budget: Budget, amounts: Mapping[str, int], at: Moment
) -> tuple[UsageOutcome, Budget, tuple[BudgetEvent, ...]]:
    """Apply what no hard limit forbids, and say whether a soft limit was passed."""
    after = moved(budget, at, used=amounts)
    soft = soft_breach(after, amounts)
    if soft is None:
        return Ok(), after, ()
    counted, events = count_soft_breach(budget, after, amounts, at)
    return soft, counted, events


def failing(
    decision: Decision[R],
    execution: Execution | None,
    budget: Budget,
    breach: HardBreach,
    at: Moment,
) -> Decision[R]:
    """The policy may be to fail the execution whose worker breaches."""
    policy = budget.row.policy
    if execution is None or policy is None or policy.on_hard_limit is not HardAction.FAIL:
        return decision
    name, used = budget.row.budget_id, f"{breach.current_usage}/{breach.hard_limit}"
    detail = f"budget {name}: {breach.dimension} {used}"
    failed = fail_unpayable(decision.execution or execution, detail, at)
    return replace(
        decision,
        execution=failed.execution,
        attempt=failed.attempt,
        events=(*decision.events, *failed.events),
    )


def _remembered(
    command: ReportUsage | RecordSpend, outcome: UsageOutcome, at: Moment
) -> tuple[DedupRow, ...]:
    if (key := command.seen_under) is None:
        return ()
    return (DedupRow(*key, outcome, at.now + command.dedup_ttl_ms),)
