"""The budgets one transaction touches: loaded once, decided in order, written together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.records import Rows
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.limit.budget import (
    Budget,
    BudgetDecision,
    CreateBudget,
    ResetBudget,
    UpdateBudget,
    closed,
    create_budget,
    new_budget,
    reset_budget,
    update_budget,
    with_pending,
)
from flowfabric.kernel.limit.spending import (
    SPEND,
    LapseHold,
    RecordSpend,
    ReleaseBudget,
    ReleaseHold,
    ReportUsage,
    Reserve,
    Settle,
    Spending,
    record_spend,
    release_budget,
    release_hold,
    report_usage,
    reserve,
    settle,
)
from flowfabric.model.budget import DedupRow, HoldRow, PendingWork, UsageOutcome
from flowfabric.model.event import OperatorEvent
from flowfabric.model.record import Record, replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import BUDGETS, DEDUP, HOLDS, LEDGER, USAGE, Key, Table

R = TypeVar("R", bound=Record)

BUDGET_COMMANDS = (
    CreateBudget,
    UpdateBudget,
    ResetBudget,
    ReportUsage,
    RecordSpend,
    ReleaseBudget,
    Reserve,
    Settle,
    ReleaseHold,
    LapseHold,
)


_POLICY_RULES: dict[type, Callable[[Budget, Any, Moment], BudgetDecision]] = {
    CreateBudget: create_budget,
    UpdateBudget: update_budget,
    ResetBudget: reset_budget,
}


class BudgetBook:
    """Budgets by id, as they stand."""

    def __init__(
        self, tx: Transaction, rows: Rows, at: Moment, publish: Callable[[OperatorEvent], None]
    ) -> None:
        self._tx = tx
        self._rows = rows
        self._at = at
        self._publish = publish
        self._budgets: dict[str, Budget] = {}
        self._was_closed: set[str] = set()
        self._spoiled: dict[str, str] = {}
        self._work: set[str] = set()  # those that may set executions free, or end them

    # --- loading -------------------------------------------------------------------------------

    async def hold(self, budget_ids: Iterable[str]) -> None:
        """Take these budgets for the rest of the transaction, in the order of their ids."""
        new = [(each,) for each in sorted(set(budget_ids) - self._budgets.keys())]
        if not new:
            return
        self._rows.take(BUDGETS, await self._readable(self._tx.rows, BUDGETS, new))
        # Whoever has a budget's row has its usage too.
        self._rows.take(USAGE, await self._readable(self._tx.peek_rows, USAGE, new))
        for (budget_id,) in new:
            if budget_id in self._spoiled:
                continue
            row = self._rows.get(BUDGETS, (budget_id,))
            if row is None:
                budget = new_budget(budget_id, self._at)
            else:
                usage = {each.dimension: each for each in self._rows.group(USAGE, (budget_id,))}
                budget = Budget(row, usage)
            self._budgets[budget_id] = budget
            if closed(budget) is not None:
                self._was_closed.add(budget_id)

    async def _readable(self, load: Any, table: Table[R], keys: list[Key]) -> dict[Key, R]:
        """Rows of budgets; a budget that cannot be read is remembered and harms only itself."""
        found, spoiled = await readable(load, table, keys)
        self._spoiled.update((key[0], detail) for key, detail in spoiled.items())
        return found

    async def hold_for(self, need: Needs) -> None:
        """Everything that commands about budgets will ask for."""
        await self.hold(need.budgets)
        for table, wanted in ((LEDGER, need.ledgers), (DEDUP, need.dedups), (HOLDS, need.holds)):
            if wanted:
                self._rows.take(table, await self._tx.rows(table, sorted(wanted)))

    async def peek(self, budget_ids: Iterable[str]) -> dict[str, Budget | None]:
        """Budgets as committed, not held: enough to admit, not to deny."""
        wanted = sorted(set(budget_ids))
        found: dict[str, Budget | None] = {
            each: self._budgets[each] for each in wanted if each in self._budgets
        }
        new = [(each,) for each in wanted if each not in found]
        if new:
            rows = await self._readable(self._tx.peek_rows, BUDGETS, new)
            lines = await self._readable(self._tx.peek_rows, USAGE, new)
            usage: dict[str, dict[str, Any]] = {}
            for line in lines.values():
                usage.setdefault(line.budget_id, {})[line.dimension] = line
            for key in new:
                row = None if key[0] in self._spoiled else rows.get(key)
                found[key[0]] = None if row is None else Budget(row, usage.get(key[0], {}))
        return found

    def held(self, budget_ids: Iterable[str]) -> dict[str, Budget | None]:
        """Budgets as they stand in this transaction."""
        return {each: self._budgets.get(each) for each in budget_ids}

    # --- deciding ------------------------------------------------------------------------------

    def decide(self, command: Any) -> Spending:
        """The reply to a command about a budget; its changes join the batch."""
        if command.budget_id in self._spoiled:
            return Spending(Refused(Corruption, self._spoiled[command.budget_id]))
        budget, at = self._budgets[command.budget_id], self._at
        rule = _POLICY_RULES.get(type(command))
        if rule is not None:
            changed = rule(budget, command, at)
            decision = Spending(changed.reply, changed.budget, changed.events)
        else:
            decision = self._spending(budget, command)
        self._apply(command, decision)
        return decision

    def _spending(self, budget: Budget, command: Any) -> Spending:
        at = self._at
        match command:
            case ReportUsage():
                return report_usage(budget, self._seen(command), command, at)
            case RecordSpend():
                return record_spend(budget, self._seen(command), self._lines(command), command, at)
            case ReleaseBudget():
                return release_budget(budget, self._lines(command), at)
            case Reserve():
                return reserve(
                    budget, self.hold_of(command), command.fence.lease_epoch, command, at
                )
            case Settle():
                hold, seen = self.hold_of(command), self._seen(command)
                return settle(budget, hold, self._lines(command), command, at, seen=seen)
            case _:
                return release_hold(budget, self.hold_of(command), at)

    def _apply(self, command: Any, decision: Spending) -> None:
        if decision.budget is not None:
            self._put(decision.budget)
        for event in decision.events:
            self._publish(event)
        if decision.dedup is not None:
            self._rows.put(DEDUP, decision.dedup)
        for line in decision.ledger:
            self._rows.put(LEDGER, line)
        if decision.hold is not None:
            self._rows.put(HOLDS, decision.hold)
            # How an earlier hold of this name was settled is not this one's answer.
            self._rows.drop(DEDUP, [command.seen_under])
        if decision.hold_ends:
            self._rows.drop(HOLDS, [command.hold_key])
        if isinstance(command, ReleaseBudget):
            self._forget(command)

    def _forget(self, command: ReleaseBudget) -> None:
        """What was given back may be spent again under the same keys."""
        owner = (command.budget_id, command.execution_id)
        self._rows.drop(LEDGER, [LEDGER.key_of(each) for each in self._rows.group(LEDGER, owner)])
        spends = self._rows.group(DEDUP, (command.budget_id, SPEND, command.execution_id))
        self._rows.drop(DEDUP, [DEDUP.key_of(each) for each in spends])

    def _put(self, budget: Budget) -> None:
        budget_id = budget.row.budget_id
        before = self._budgets[budget_id]
        self._budgets[budget_id] = budget
        for dimension, usage in budget.usage.items():
            if before.usage.get(dimension) is not usage:
                self._rows.put(USAGE, usage)
        if budget.row != before.row or self._rows.get(BUDGETS, (budget_id,)) is None:
            self._rows.put(BUDGETS, budget.row)
        if closed(budget) is not None:
            self._was_closed.add(budget_id)
        elif budget_id in self._was_closed:
            self._work.add(budget_id)
        if budget.row.pending is PendingWork.CANCEL:
            self._work.add(budget_id)

    def _seen(self, command: ReportUsage | RecordSpend | Settle) -> DedupRow | None:
        key = command.seen_under
        seen = None if key is None else self._rows.get(DEDUP, key)
        return seen if seen is not None and seen.due_at > self._at.now else None

    def told_before(self, command: Any) -> UsageOutcome | None:
        """How a call with a key went the first time; its worker's lease may be long over."""
        seen = self._seen(command) if isinstance(command, ReportUsage | Settle) else None
        return None if seen is None else seen.outcome

    def _lines(self, command: Any) -> list[Any]:
        return self._rows.group(LEDGER, (command.budget_id, command.execution_id))

    def hold_of(self, command: Any) -> HoldRow | None:
        """The hold a command names."""
        return self._rows.get(HOLDS, command.hold_key)

    # --- consequences --------------------------------------------------------------------------

    def is_readable(self, budget_id: str) -> bool:
        """Whether a budget that was to be held could be read."""
        return budget_id not in self._spoiled

    @property
    def has_work(self) -> bool:
        """Whether what was decided concerns executions that wait."""
        return bool(self._work)

    def opened(self) -> list[str]:
        """Budgets that were closed, or have executions left to set free, and now have room."""
        return [each for each in sorted(self._work) if closed(self._budgets[each]) is None]

    def cancelling(self) -> list[str]:
        """Budgets whose waiting executions are to be cancelled."""
        return [
            each
            for each in sorted(self._work)
            if self._budgets[each].row.pending is PendingWork.CANCEL
        ]

    def go_on(self, budget_id: str) -> None:
        """Go on with what an earlier transaction has left to be done.

        There is nothing to unblock while the budget is closed; the next room starts it anew.
        """
        budget = self._budgets[budget_id]
        if budget.row.pending is PendingWork.UNBLOCK and closed(budget) is not None:
            self.worked(budget_id, PendingWork.NONE, self._at.now)
        elif budget.row.pending is not PendingWork.NONE:
            self._work.add(budget_id)
        elif budget.row.due_at is not None and budget.row.due_at <= self._at.now:
            self.worked(budget_id, PendingWork.NONE, self._at.now)  # it was due for nothing

    def worked(self, budget_id: str, work: PendingWork, look_at: int) -> None:
        """Remember what is left to be done for the executions of a budget, and when."""
        budget = self._budgets[budget_id]
        row = with_pending(replace(budget.row, pending=PendingWork.NONE), work, look_at)
        self._put(replace(budget, row=row))
        self._was_closed.discard(budget_id)
        self._work.discard(budget_id)
