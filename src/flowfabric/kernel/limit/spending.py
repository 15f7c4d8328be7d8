"""Spending: reports, spends with a ledger, reservations; each all or nothing under hard limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.kernel.command import Command, ExecutionCommand, Key, Needs
from flowfabric.kernel.decision import Moment, Refused
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
from flowfabric.model.budget import (
    AlreadyApplied,
    DedupRow,
    HardAction,
    HardBreach,
    HoldReleased,
    HoldRow,
    LedgerRow,
    Ok,
    Reserved,
    UsageOutcome,
)
from flowfabric.model.event import OperatorEvent
from flowfabric.model.execution import Fence
from flowfabric.model.record import Record

REPORT = "report_usage"
SPEND = "record_spend"
SETTLE = "settle_budget"


class ReportUsage(Command[UsageOutcome], frozen=True, kw_only=True):
    """What was used. A worker proves that it owns the execution; an operator needs no fence."""

    budget_id: str
    amounts: Mapping[str, int]
    dedup_key: str | None
    dedup_ttl_ms: int
    execution_id: str | None = None
    fence: Fence | None = None
    must_exist: bool = False  # a budget without a policy is refused

    @property
    def seen_under(self) -> Key | None:
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


class RecordSpend(Command[UsageOutcome], frozen=True, kw_only=True):
    """What one execution spent, remembered so that it can be given back."""

    budget_id: str
    execution_id: str
    amounts: Mapping[str, int]
    dedup_key: str | None
    dedup_ttl_ms: int

    @property
    def seen_under(self) -> Key | None:
        """Where the outcome is remembered, if it is to be."""
        key = self.dedup_key
        return None if key is None else (self.budget_id, SPEND, self.execution_id, key)

    def needs(self, need: Needs) -> None:
        """The budget and the account; the execution itself may be long gone."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        if (key := self.seen_under) is not None:
            need.dedups.add(key)


class ReleaseBudget(Command[None], frozen=True, kw_only=True):
    """Give back everything one execution spent."""

    budget_id: str
    execution_id: str

    def needs(self, need: Needs) -> None:
        """The budget and the account; the execution itself may be long gone."""
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        need.dedups.add((self.budget_id, SPEND, self.execution_id))


class Reserve(ExecutionCommand[Reserved | HardBreach], frozen=True, kw_only=True):
    """Hold amounts before they are spent."""

    budget_id: str
    fence: Fence
    hold_id: str
    amounts: Mapping[str, int]
    ttl_ms: int

    @property
    def hold_key(self) -> Key:
        """Where the hold is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    @property
    def seen_under(self) -> Key:
        """Where it is remembered how the hold was settled."""
        return (self.budget_id, SETTLE, self.execution_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget, a hold of this name and how it was settled."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.holds.add(self.hold_key)
        need.dedups.add(self.seen_under)


class Settle(ExecutionCommand[UsageOutcome], frozen=True, kw_only=True):
    """Replace a hold by what was really spent."""

    budget_id: str
    fence: Fence
    hold_id: str
    amounts: Mapping[str, int]

    @property
    def hold_key(self) -> Key:
        """Where the hold is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    @property
    def seen_under(self) -> Key:
        """Where it is remembered how the hold was settled."""
        return (self.budget_id, SETTLE, self.execution_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget, the account, the hold and how it was settled."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        need.holds.add(self.hold_key)
        need.dedups.add(self.seen_under)


class ReleaseHold(ExecutionCommand[HoldReleased], frozen=True, kw_only=True):
    """Give a hold back unspent."""

    budget_id: str
    fence: Fence
    hold_id: str

    @property
    def hold_key(self) -> Key:
        """Where the hold is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget and the hold."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.holds.add(self.hold_key)


class LapseHold(ExecutionCommand[HoldReleased], frozen=True, kw_only=True):
    """A hold may have outlived its time, or its lease."""

    budget_id: str
    hold_id: str

    @property
    def hold_key(self) -> Key:
        """Where the hold is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget and the hold."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.holds.add(self.hold_key)


class Spending(Record, frozen=True):
    """A decision about a budget with what else it writes; none where nothing changed."""

    reply: Any
    budget: Budget | None = None
    events: tuple[OperatorEvent, ...] = ()
    dedup: DedupRow | None = None
    ledger: tuple[LedgerRow, ...] = ()
    hold: HoldRow | None = None
    hold_ends: bool = False
    fails_execution: HardBreach | None = None  # the policy fails whoever breaches


def report_usage(
    budget: Budget, seen: DedupRow | None, command: ReportUsage, at: Moment
) -> Spending:
    """Applied once per key; the first outcome is answered again."""
    if command.must_exist and (refusal := refuse_unknown(budget)):
        return Spending(refusal)
    if seen is not None and not isinstance(seen.outcome, HardBreach):
        return Spending(seen.outcome)
    return _spend(budget, seen, command, REPORT, (), at)


def record_spend(
    budget: Budget,
    seen: DedupRow | None,
    ledger: Sequence[LedgerRow],
    command: RecordSpend,
    at: Moment,
) -> Spending:
    """As a report, with the amounts added to the execution's ledger."""
    if seen is not None and not isinstance(seen.outcome, HardBreach):
        return Spending(AlreadyApplied())
    lines = entered(budget, ledger, command.execution_id, command.amounts)
    return _spend(budget, seen, command, SPEND, lines, at)


def _spend(
    budget: Budget,
    seen: DedupRow | None,
    command: ReportUsage | RecordSpend,
    operation: str,
    ledger: tuple[LedgerRow, ...],
    at: Moment,
) -> Spending:
    if refusal := overflow(budget, command.amounts):
        return Spending(refusal)
    if breach := hard_breach(budget, command.amounts):
        dedup = _remembered(budget, command, operation, breach, at)
        if seen is not None:  # the same call again: refused again, counted once
            return Spending(breach, fails_execution=_fails(budget, breach))
        counted, events = count_hard_breach(budget, breach, at)
        return Spending(breach, counted, events, dedup, fails_execution=_fails(budget, breach))
    outcome, after, events = charged(budget, command.amounts, at)
    dedup = _remembered(budget, command, operation, outcome, at)
    return Spending(outcome, after, events, dedup, ledger)


def charged(
    budget: Budget, amounts: Mapping[str, int], at: Moment
) -> tuple[UsageOutcome, Budget, tuple[OperatorEvent, ...]]:
    """Apply what no hard limit forbids, and say whether a soft limit was passed."""
    after = moved(budget, at, used=amounts)
    soft = soft_breach(after, amounts)
    if soft is None:
        return Ok(), after, ()
    counted, events = count_soft_breach(budget, after, amounts, at)
    return soft, counted, events


def _fails(budget: Budget, breach: HardBreach) -> HardBreach | None:
    policy = budget.row.policy
    return breach if policy is not None and policy.on_hard_limit is HardAction.FAIL else None


def _remembered(
    budget: Budget,
    command: ReportUsage | RecordSpend,
    operation: str,
    outcome: UsageOutcome,
    at: Moment,
) -> DedupRow | None:
    if command.dedup_key is None:
        return None
    owner = command.execution_id if isinstance(command, RecordSpend) else ""
    return DedupRow(
        budget.row.budget_id,
        operation,
        owner,
        command.dedup_key,
        outcome,
        at.now + command.dedup_ttl_ms,
    )


def entered(
    budget: Budget, ledger: Sequence[LedgerRow], execution_id: str, amounts: Mapping[str, int]
) -> tuple[LedgerRow, ...]:
    """The execution's lines after a spend; lines of an earlier generation start anew."""
    row = budget.row
    known = {line.dimension: line for line in ledger if line.generation == row.generation}
    lines = []
    for dimension, amount in sorted(amounts.items()):
        before = known[dimension].spent if dimension in known else 0
        line = LedgerRow(row.budget_id, execution_id, dimension, row.generation, before + amount)
        lines.append(line)
    return tuple(lines)


def release_budget(budget: Budget, ledger: Sequence[LedgerRow], at: Moment) -> Spending:
    """Give back what this generation's lines say, never below zero; the lines go with it."""
    spent = {
        line.dimension: -line.spent for line in ledger if line.generation == budget.row.generation
    }
    return Spending(None, moved(budget, at, used=spent) if spent else None)


# --- reserve, settle, release ------------------------------------------------------------------


def reserve(
    budget: Budget, hold: HoldRow | None, lease_epoch: int, command: Reserve, at: Moment
) -> Spending:
    """Hold amounts against the hard limits; the same hold asked for twice is held once.

    One that lapsed and was not yet taken away is replaced. A misspelt name must not mean that there
    is no limit, so a budget without a policy holds nothing.
    """
    if refusal := refuse_unknown(budget):
        return Spending(refusal)
    amounts = dict(sorted(command.amounts.items()))
    free = budget
    if hold is not None:
        if not lapsed(hold, lease_epoch, at):
            return Spending(_held_already(hold, amounts))
        free = returned(budget, hold, at)
    if refusal := overflow(free, amounts):
        return Spending(refusal)
    if breach := hard_breach(free, amounts):
        counted, events = count_hard_breach(budget, breach, at)
        return Spending(breach, counted, events, fails_execution=_fails(budget, breach))
    until = at.now + command.ttl_ms
    made = HoldRow(
        command.execution_id,
        command.budget_id,
        command.hold_id,
        lease_epoch,
        amounts,
        until,
    )
    held = moved(free, at, held=amounts)
    return Spending(Reserved(command.hold_id, until), held, hold=made)


def _held_already(hold: HoldRow, amounts: Mapping[str, int]) -> Reserved | Refused:
    """Who asks for other amounts under a known name must not believe that they are held."""
    if dict(hold.amounts) == amounts:
        return Reserved(hold.hold_id, hold.due_at)
    detail = f"hold_id: {hold.hold_id} holds other amounts"
    return Refused(IdempotencyConflict, detail, {"field": "hold_id"})


def returned(budget: Budget, hold: HoldRow, at: Moment) -> Budget:
    """The budget without this hold."""
    freed = {dimension: -amount for dimension, amount in hold.amounts.items()}
    return moved(budget, at, held=freed)


def settle(
    budget: Budget,
    hold: HoldRow | None,
    ledger: Sequence[LedgerRow],
    command: Settle,
    at: Moment,
    *,
    seen: DedupRow | None = None,
) -> Spending:
    """The hold ends and what was really spent is charged; asked again, it answers the same.

    What the hold covers is always charged: it was promised. What exceeds it is a spend like any
    other: if a hard limit forbids it, it is not applied and the breach is reported and counted.
    """
    if hold is None and seen is not None:
        return Spending(seen.outcome)
    if hold is None or lapsed(hold, command.fence.lease_epoch, at):
        detail = (
            f"hold {command.hold_id} of budget {command.budget_id}: settled, released or lapsed"
        )
        return Spending(Refused(NotFound, detail, {"entity": "hold"}))
    free = returned(budget, hold, at)
    if refusal := overflow(free, command.amounts):
        return Spending(refusal)
    breach = hard_breach(free, command.amounts)
    spent = command.amounts
    if breach is not None:
        spent = {
            dimension: min(amount, hold.amounts.get(dimension, 0))
            for dimension, amount in command.amounts.items()
        }
    outcome, after, events = charged(free, spent, at)
    lines = entered(budget, ledger, command.execution_id, spent)
    if breach is None:
        told = _settled(command, outcome, at)
        return Spending(outcome, after, events, told, lines, hold_ends=True)
    counted, alarms = count_hard_breach(after, breach, at)
    return Spending(
        breach,
        counted,
        (*events, *alarms),
        _settled(command, breach, at),
        lines,
        hold_ends=True,
        fails_execution=_fails(budget, breach),
    )


def _settled(command: Settle, outcome: UsageOutcome, at: Moment) -> DedupRow:
    until = at.now + limits.DEDUP_TTL_MS_DEFAULT
    owner = command.execution_id
    return DedupRow(command.budget_id, SETTLE, owner, command.hold_id, outcome, until)


def release_hold(budget: Budget, hold: HoldRow | None, at: Moment) -> Spending:
    """Give a hold back; twice is harmless."""
    if hold is None:
        return Spending(HoldReleased(False))
    return Spending(HoldReleased(True), returned(budget, hold, at), hold_ends=True)


def lapsed(hold: HoldRow, lease_epoch: int, at: Moment) -> bool:
    """Whether a hold's time, or the lease it was made under, is over."""
    return hold.due_at <= at.now or hold.lease_epoch != lease_epoch
