"""Reservations: amounts held before they are spent, settled or given back afterwards.

In tables, commands and answers a reservation is called a hold. It belongs to the lease under which
it was made, and ends with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from flowfabric import limits
from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.kernel.command import ExecutionCommand, Key, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.execution.fence import refuse_unless_owner
from flowfabric.kernel.limit.allowance import covered, used_up
from flowfabric.kernel.limit.budget import (
    AskKey,
    Budget,
    asks_people,
    count_hard_breach,
    hard_breach,
    moved,
    no_room,
    overflow,
    refuse_unknown,
)
from flowfabric.kernel.limit.holdings import with_holdings
from flowfabric.kernel.limit.ledger import Account, entered
from flowfabric.kernel.limit.spending import DedupKey, charged, failing
from flowfabric.kernel.repeat import in_force
from flowfabric.model.ask import AllowanceRow
from flowfabric.model.budget import (
    AskFirst,
    DedupRow,
    HardBreach,
    HoldReleased,
    HoldRow,
    Reserved,
    UsageOutcome,
)
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import replace

SETTLE = "settle_budget"
NO_ALLOWANCES: Final[Mapping[AskKey, int]] = {}


class Reserve(ExecutionCommand[Reserved | HardBreach | AskFirst], frozen=True, kw_only=True):
    """Reserve amounts before they are spent."""

    budget_id: str
    fence: Fence
    hold_id: str
    amounts: Mapping[str, int]
    ttl_ms: int

    @property
    def hold_key(self) -> Key:
        """Where the reservation is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    @property
    def seen_under(self) -> DedupKey:
        """Where it is remembered how the reservation was settled."""
        return (self.budget_id, SETTLE, self.execution_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget, a reservation of this name and how it was settled."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.holds.add(self.hold_key)
        need.allowances.add((self.execution_id, self.budget_id))
        need.dedups.add(self.seen_under)


class Settle(ExecutionCommand[UsageOutcome], frozen=True, kw_only=True):
    """Replace a reservation by what was really spent.

    `is_carried`: with an entry of the journal, which must not fail because the reservation is over.
    What was spent is charged then as if nothing had been reserved.
    """

    budget_id: str
    fence: Fence
    hold_id: str
    amounts: Mapping[str, int]
    is_carried: bool = False

    @property
    def hold_key(self) -> Key:
        """Where the reservation is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    @property
    def seen_under(self) -> DedupKey:
        """Where it is remembered how the reservation was settled."""
        return (self.budget_id, SETTLE, self.execution_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget, the account, the reservation and how it was settled."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.ledgers.add((self.budget_id, self.execution_id))
        need.holds.add(self.hold_key)
        need.allowances.add((self.execution_id, self.budget_id))
        need.dedups.add(self.seen_under)


class ReleaseHold(ExecutionCommand[HoldReleased], frozen=True, kw_only=True):
    """Give a reservation back unspent."""

    budget_id: str
    fence: Fence
    hold_id: str

    @property
    def hold_key(self) -> Key:
        """Where the reservation is kept."""
        return (self.execution_id, self.budget_id, self.hold_id)

    def needs(self, need: Needs) -> None:
        """The execution, the budget and the reservation."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.budgets.add(self.budget_id)
        need.holds.add(self.hold_key)


def reserve(
    execution: Execution | None,
    budget: Budget,
    hold: HoldRow | None,
    settled: DedupRow | None,
    command: Reserve,
    at: Moment,
    allowances: Mapping[AskKey, int] = NO_ALLOWANCES,
) -> Decision[Reserved | HardBreach | AskFirst]:
    """Hold amounts against the hard limits; the same reservation asked for twice is made once.

    One that lapsed and was not yet taken away is replaced. A misspelt name must not mean that there
    is no limit, so nothing is reserved of a budget without a policy. `settled`: how an earlier
    reservation of this name was settled, which is not this one's answer. `allowances`: what the
    execution may reserve beyond limits.
    """
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    refusal = refusal or refuse_unknown(budget)
    if refusal is not None:
        return Decision(refusal)
    amounts = dict(sorted(command.amounts.items()))
    free = budget
    if hold is not None:
        if not lapsed(hold, command.fence.lease_epoch, at):
            return Decision(_reserved_already(budget, hold, amounts))
        free = returned(budget, hold, at)
    if refusal := overflow(free, amounts):
        return Decision(refusal)
    if (reason := no_room(free, amounts, allowances)) is not None:
        return _no_room(execution, budget, reason, at)
    made = _new_hold(command, amounts, at)
    if allowances and (needed := covered(free, amounts, allowances)):
        made = replace(made, allowed=needed)
    return Decision(
        _reserved(budget, made),
        with_holdings(execution, 1) if hold is None else None,
        saves=(moved(free, at, held=amounts), made),
        drops=() if settled is None else (settled,),
    )


def _no_room(
    execution: Execution | None, budget: Budget, reason: HardBreach | AskFirst, at: Moment
) -> Decision[Reserved | HardBreach | AskFirst]:
    """A refusal counts as a breach of the hard limit; a soft limit is not passed yet."""
    if isinstance(reason, AskFirst):
        if reason.is_soft:
            return Decision(reason)
        breach = HardBreach(reason.dimension, reason.current_usage, reason.limit)
    else:
        breach = reason
    counted, events = count_hard_breach(budget, breach, at)
    decision: Decision[Reserved | HardBreach | AskFirst] = Decision(
        reason, events=events, saves=(counted,)
    )
    return failing(decision, execution, budget, breach, at)


def _new_hold(command: Reserve, amounts: Mapping[str, int], at: Moment) -> HoldRow:
    return HoldRow(
        command.execution_id,
        command.budget_id,
        command.hold_id,
        command.fence.lease_epoch,
        amounts,
        at.now + command.ttl_ms,
    )


def _reserved(budget: Budget, hold: HoldRow) -> Reserved:
    return Reserved(hold.hold_id, hold.due_at, asks_people(budget.row.policy))


def _reserved_already(
    budget: Budget, hold: HoldRow, amounts: Mapping[str, int]
) -> Reserved | Refused:
    """A caller that asks for other amounts under a known name must not believe that it has them."""
    if dict(hold.amounts) == amounts:
        return _reserved(budget, hold)
    detail = f"hold_id: {hold.hold_id} holds other amounts"
    return Refused(IdempotencyConflict, detail, {"field": "hold_id"})


def returned(budget: Budget, hold: HoldRow, at: Moment) -> Budget:
    """The budget without this reservation."""
    freed = {dimension: -amount for dimension, amount in hold.amounts.items()}
    return moved(budget, at, held=freed)


def settle(
    execution: Execution | None,
    budget: Budget,
    hold: HoldRow | None,
    account: Account,
    seen: DedupRow | None,
    command: Settle,
    at: Moment,
    allowances: Sequence[AllowanceRow] = (),
) -> Decision[UsageOutcome]:
    """The reservation ends and what was really spent is charged; asked again, it answers the same.

    What was reserved is always charged: it was promised. What exceeds it is a spend like any other:
    if a hard limit forbids it, it is not applied and the breach is reported and counted. An
    allowance that the reservation needed is used up.
    """
    known = in_force(seen, at.now)
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if known is not None and (hold is None or refusal is not None):
        return Decision(known.outcome)
    if refusal is not None:
        return Decision(refusal)
    is_over = hold is None or _is_late(hold, command, at)
    if is_over and not command.is_carried:
        name = f"hold {command.hold_id} of budget {command.budget_id}"
        return refuse(NotFound, f"{name}: settled, released or lapsed", entity="hold")
    free = budget if hold is None else returned(budget, hold, at)
    if refusal := overflow(free, command.amounts):
        if not command.is_carried:
            return Decision(refusal)
        command = replace(command, amounts={})  # more than any budget can count
    decided, spent = _settled(execution, free, hold, account, command, at)
    gone = used_up(allowances, None if is_over else hold, spent)
    return replace(decided, drops=(*decided.drops, *gone)) if gone else decided


def _settled(
    execution: Execution | None,
    free: Budget,
    hold: HoldRow | None,
    account: Account,
    command: Settle,
    at: Moment,
) -> tuple[Decision[UsageOutcome], Mapping[str, int]]:
    """The decision, and what is charged."""
    promised = {} if hold is None or _is_late(hold, command, at) else hold.amounts
    breach, spent = hard_breach(free, _unpromised(hold, promised, command.amounts)), command.amounts
    if breach is not None:
        spent = {
            dimension: min(amount, promised.get(dimension, 0))
            for dimension, amount in command.amounts.items()
        }
    outcome, after, events = charged(free, spent, at)
    if breach is not None:
        after, alarms = count_hard_breach(after, breach, at)
        outcome, events = breach, (*events, *alarms)
    until = at.now + limits.DEDUP_TTL_MS_DEFAULT
    told = DedupRow(*command.seen_under, outcome, until)
    lines = entered(after.row, account, spent)
    held = () if hold is None else (hold,)
    decision: Decision[UsageOutcome] = Decision(
        outcome,
        with_holdings(execution, -1) if held else None,
        None,
        events,
        (after, told, *lines),
        held,
    )
    if breach is not None:
        decision = failing(decision, execution, free, breach, at)
    return decision, spent


def _unpromised(
    hold: HoldRow | None, promised: Mapping[str, int], amounts: Mapping[str, int]
) -> Mapping[str, int]:
    """The amounts whose limits are looked at again: not those within an allowance."""
    if hold is None or not hold.allowed:
        return amounts
    allowed = {name.partition(":")[2] for name in hold.allowed}
    return {
        dimension: amount
        for dimension, amount in amounts.items()
        if dimension not in allowed or amount > promised.get(dimension, 0)
    }


def _is_late(hold: HoldRow, command: Settle, at: Moment) -> bool:
    return lapsed(hold, command.fence.lease_epoch, at)


def release_hold(
    execution: Execution | None,
    budget: Budget,
    hold: HoldRow | None,
    command: ReleaseHold,
    at: Moment,
) -> Decision[HoldReleased]:
    """Give a reservation back; twice is harmless."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None:
        return Decision(refusal)
    if hold is None:
        return Decision(HoldReleased(False))
    return _given_back(execution, budget, hold, at)


def lapse_hold(
    execution: Execution | None, budget: Budget, hold: HoldRow | None, at: Moment
) -> Decision[HoldReleased]:
    """Give a reservation back whose time is over."""
    if hold is None or hold.due_at > at.now:
        return Decision(HoldReleased(False))
    return _given_back(execution, budget, hold, at)


def return_hold(budget: Budget, hold: HoldRow, at: Moment) -> Decision[HoldReleased]:
    """Give a reservation back with the lease it belongs to, where all holdings of its execution
    are counted anew."""
    return _given_back(None, budget, hold, at)


def _given_back(
    execution: Execution | None, budget: Budget, hold: HoldRow, at: Moment
) -> Decision[HoldReleased]:
    after = with_holdings(execution, -1)
    saves = (returned(budget, hold, at),)
    return Decision(HoldReleased(True), after, saves=saves, drops=(hold,))


def lapsed(hold: HoldRow, lease_epoch: int, at: Moment) -> bool:
    """Whether a reservation's time, or the lease it was made under, is over."""
    return hold.due_at <= at.now or hold.lease_epoch != lease_epoch
