"""The budgets one transaction touches: loaded once, decided in order, written together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.limit.allowance import free_allowances
from flowfabric.kernel.limit.asking import without_vain_asks
from flowfabric.kernel.limit.budget import (
    AskKey,
    Budget,
    asks_people,
    closed,
    new_budget,
)
from flowfabric.kernel.limit.ledger import Account, Place, counted_in
from flowfabric.kernel.limit.room import work_of, work_when_due
from flowfabric.model.ask import AllowanceRow
from flowfabric.model.budget import (
    DedupRow,
    HoldRow,
    LedgerRow,
    PendingWork,
    ScopeRow,
    TotalRow,
    UsageRow,
)
from flowfabric.model.record import Record, replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import (
    ALLOWANCES,
    ASKS,
    BUDGETS,
    DEDUP,
    HOLDS,
    LEDGER,
    SCOPES,
    TOTALS,
    USAGE,
    Key,
    Table,
)

R = TypeVar("R", bound=Record)
Load = Callable[[Table[R], Sequence[Key]], Awaitable[dict[Key, R]]]


class Budgets:
    """Budgets by id, as they stand."""

    def __init__(self, tx: Transaction, view: View) -> None:
        self._tx = tx
        self._view = view
        self._rows = view.rows
        self._budgets: dict[str, Budget] = {}  # locked
        self._was_closed: set[str] = set()
        self._with_asks: set[str] = set()
        self._with_allowances: set[Key] = set()
        # Rows of accounts that are known, by budget and execution: its lines, its totals.
        self._lines: dict[Key, dict[Key, None]] = {}
        self._totals: dict[Key, dict[Key, None]] = {}
        self._places: dict[Key, tuple[Place, ...]] = {}  # in which they count, as they were loaded
        self._unreadable: dict[str, str] = {}
        self._work: set[str] = set()  # those that may unblock executions, or end them
        view.keep_with(Budget, self.keep)
        view.keep_with(ScopeRow, self._keep_scope)
        view.keep_with(LedgerRow, self._keep_line)
        view.keep_with(TotalRow, self._keep_total)

    # --- loading -------------------------------------------------------------------------------

    async def lock(self, budget_ids: Iterable[str]) -> None:
        """Lock these budgets for the rest of the transaction, in the order of their ids."""
        new = [(each,) for each in sorted(set(budget_ids) - self._budgets.keys())]
        if not new:
            return
        self._rows.take(BUDGETS, await self._readable(self._tx.rows, BUDGETS, new))
        # The lock of a budget's row is the lock of its usage too.
        self._rows.take(USAGE, await self._readable(self._tx.peek_rows, USAGE, new))
        for (budget_id,) in new:
            if budget_id in self._unreadable:
                continue
            row = self._rows.get(BUDGETS, (budget_id,))
            if row is None:
                budget = new_budget(budget_id, self._view.at)
            else:
                usage = {each.dimension: each for each in self._rows.group(USAGE, (budget_id,))}
                budget = Budget(row, usage)
            self._budgets[budget_id] = budget
            if closed(budget) is not None:
                self._was_closed.add(budget_id)
        asking = [key[0] for key in new if self._asks(key[0])]
        if asking:
            await self.load_asks(asking)

    def _asks(self, budget_id: str) -> bool:
        budget = self._budgets.get(budget_id)
        return budget is not None and asks_people(budget.row.policy)

    async def load_asks(self, budget_ids: Iterable[str]) -> None:
        """The last questions of budgets that are locked."""
        new = [(each,) for each in sorted(set(budget_ids) - self._with_asks)]
        if not new:
            return
        found = await self._readable(self._tx.peek_rows, ASKS, new)
        self._with_asks.update(key[0] for key in new)
        self._rows.take(ASKS, found)
        for (budget_id,) in new:
            if budget_id in self._unreadable or budget_id not in self._budgets:
                continue
            rows = self._rows.group(ASKS, (budget_id,))
            asks = {(each.limit_kind, each.dimension): each for each in rows}
            self._budgets[budget_id] = replace(self._budgets[budget_id], asks=asks)

    async def load_allowances(self, pairs: Iterable[Key]) -> None:
        """What executions may reserve beyond limits, with the reservations that need it already."""
        wanted = sorted(set(pairs) - self._with_allowances)
        if not wanted:
            return
        self._with_allowances.update(wanted)
        found = await self._tx.peek_rows(ALLOWANCES, wanted)
        self._rows.take(ALLOWANCES, found)
        using = sorted({key[:2] for key in found})
        if using:
            self._rows.take(HOLDS, await self._tx.peek_rows(HOLDS, using))

    async def _load_accounts(self, pairs: Sequence[Key]) -> None:
        """What executions have spent of budgets, and the totals in which they count. These rows
        change under the lock of their budget, which this transaction has."""
        self._take_lines(await self._tx.peek_rows(LEDGER, pairs))
        self._places |= {pair: counted_in(self._view.execution(pair[1])) for pair in pairs}
        totals = sorted({(*place, pair[0]) for pair in pairs for place in self._places[pair]})
        found, unreadable = await readable(self._tx.peek_rows, TOTALS, totals)
        self._unreadable.update((key[3], detail) for key, detail in unreadable.items())
        self._rows.take(TOTALS, found)
        for key in found:
            self._totals.setdefault(key[:4], {})[key] = None

    def _take_lines(self, found: Mapping[Key, LedgerRow]) -> None:
        self._rows.take(LEDGER, found)
        for key in found:
            self._lines.setdefault(key[:2], {})[key] = None

    async def _readable(self, load: Load[R], table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """Rows of budgets; a budget that cannot be read is remembered and harms only itself."""
        found, unreadable = await readable(load, table, keys)
        self._unreadable.update((key[0], detail) for key, detail in unreadable.items())
        return found

    async def prepare(self, need: Needs) -> None:
        """Everything that commands about budgets will ask for."""
        await self.lock(need.budgets)
        if need.ledgers:
            await self._load_accounts(sorted(need.ledgers))
        if need.dedups:
            self._rows.take(DEDUP, await self._tx.rows(DEDUP, sorted(need.dedups)))
        if need.holds:
            self._rows.take(HOLDS, await self._tx.rows(HOLDS, sorted(need.holds)))
        if need.allowances:
            needed = {key[:2] for key in need.holds if self._needs_allowance(key)}
            asking = {key for key in need.allowances if self._asks(key[1])}
            await self.load_allowances(needed | asking)

    def _needs_allowance(self, key: Key) -> bool:
        hold = self._rows.get(HOLDS, key)
        return hold is not None and bool(hold.allowed)

    async def peek(self, budget_ids: Iterable[str]) -> dict[str, Budget | None]:
        """Budgets as committed, not locked: enough to admit, not to deny."""
        wanted = sorted(set(budget_ids))
        found: dict[str, Budget | None] = {
            each: self._budgets[each] for each in wanted if each in self._budgets
        }
        new = [(each,) for each in wanted if each not in found]
        if new:
            rows = await self._readable(self._tx.peek_rows, BUDGETS, new)
            lines = await self._readable(self._tx.peek_rows, USAGE, new)
            usage: dict[str, dict[str, UsageRow]] = {}
            for line in lines.values():
                usage.setdefault(line.budget_id, {})[line.dimension] = line
            for key in new:
                row = None if key[0] in self._unreadable else rows.get(key)
                found[key[0]] = None if row is None else Budget(row, usage.get(key[0], {}))
        return found

    def locked(self, budget_ids: Iterable[str]) -> dict[str, Budget | None]:
        """Budgets as they stand in this transaction."""
        return {each: self._budgets.get(each) for each in budget_ids}

    # --- what the rules ask for ----------------------------------------------------------------

    def get(self, budget_id: str) -> Budget | Refused:
        """A locked budget, or the refusal where it cannot be read."""
        if budget_id in self._unreadable:
            return Refused(Corruption, self._unreadable[budget_id])
        return self._budgets[budget_id]

    def seen(self, key: Key | None) -> DedupRow | None:
        """How an earlier call with the same key went."""
        return None if key is None else self._rows.get(DEDUP, key)

    def seen_with(self, prefix: Key) -> list[DedupRow]:
        """How all earlier calls went whose keys begin so."""
        return self._rows.group(DEDUP, prefix)

    def account(self, budget_id: str, execution_id: str) -> Account:
        """What an execution has spent of a budget, as it stands. A flow that it joins in this
        transaction, whose totals were not loaded, counts that with its next spend."""
        rows, places = self._rows, self._places.get((budget_id, execution_id), ())
        known = self._lines.get((budget_id, execution_id), ())
        lines = [line for key in known if (line := rows.get(LEDGER, key)) is not None]
        counted = [key for place in places for key in self._totals.get((*place, budget_id), ())]
        totals = [row for key in counted if (row := rows.get(TOTALS, key)) is not None]
        return Account(execution_id, lines, places, totals)

    def allowances(self, execution_id: str, budget_id: str) -> list[AllowanceRow]:
        """What an execution may reserve of a budget beyond its limits."""
        return self._rows.group(ALLOWANCES, (execution_id, budget_id))

    def free_allowances(
        self, execution_id: str, budget_id: str, but: str = ""
    ) -> dict[AskKey, int]:
        """The same, without what its reservations need already."""
        rows = self.allowances(execution_id, budget_id)
        if not rows:
            return {}
        holds = self._rows.group(HOLDS, (execution_id, budget_id))
        return free_allowances(self._budgets[budget_id], rows, holds, but)

    def hold(self, key: Key) -> HoldRow | None:
        """A reservation."""
        return self._rows.get(HOLDS, key)

    # --- what was decided ----------------------------------------------------------------------

    def keep(self, budget: Budget) -> None:
        """A budget is kept in a row of its own, one for each dimension, for each question, and for
        each total."""
        budget_id = budget.row.budget_id
        before = self._budgets[budget_id]
        if budget.asks:
            budget = without_vain_asks(budget, self._view.at)
            self._put_changed(ASKS, before.asks, budget.asks)
        self._budgets[budget_id] = budget
        self._put_changed(USAGE, before.usage, budget.usage)
        if budget.row != before.row or self._rows.get(BUDGETS, (budget_id,)) is None:
            self._rows.put(BUDGETS, budget.row)
        if closed(budget) is not None:
            self._was_closed.add(budget_id)
        elif budget_id in self._was_closed:
            self._work.add(budget_id)
        if budget.row.pending is PendingWork.CANCEL:
            self._work.add(budget_id)

    def _put_changed(
        self, table: Table[R], before: Mapping[Any, R], after: Mapping[Any, R]
    ) -> None:
        for key, row in after.items():
            if before.get(key) is not row:
                self._rows.put(table, row)

    def _keep_line(self, row: LedgerRow) -> None:
        key = (row.budget_id, row.execution_id, row.dimension)
        self._lines.setdefault(key[:2], {})[key] = None
        self._rows.put_at(LEDGER, key, row)

    def _keep_total(self, row: TotalRow) -> None:
        key = (row.scope, row.namespace, row.scope_id, row.budget_id, row.dimension)
        self._totals.setdefault(key[:4], {})[key] = None
        self._rows.put_at(TOTALS, key, row)

    def _keep_scope(self, row: ScopeRow) -> None:
        self._rows.put(SCOPES, row)
        self._view.add_scope(row.scope_type, row.scope_id, row.budget_id)

    # --- consequences --------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether what was decided concerns executions that wait."""
        return bool(self._work)

    def work(self) -> list[tuple[Budget, PendingWork]]:
        """Budgets with what is to be done for the executions that wait for them; what cancels
        comes first."""
        found = [
            (each, work_of(each)) for each in map(self._budgets.__getitem__, sorted(self._work))
        ]
        found.sort(key=lambda pair: pair[1] is not PendingWork.CANCEL)
        return [pair for pair in found if pair[1] is not PendingWork.NONE]

    def go_on(self, budget_id: str) -> None:
        """Go on with what an earlier transaction has left to be done."""
        decision = work_when_due(self._budgets[budget_id], self._view.at)
        if decision.saves:
            self.worked(budget_id, decision)
        elif decision.reply is not PendingWork.NONE:
            self._work.add(budget_id)

    def worked(self, budget_id: str, decision: Decision[PendingWork]) -> None:
        """This transaction has done its part; the decision says what is left."""
        self._view.apply(None, decision)
        self._was_closed.discard(budget_id)
        self._work.discard(budget_id)
