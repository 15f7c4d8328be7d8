"""Questions of budgets inside one transaction: the spenders that wait, and how they are told.

Spenders are found under the lock of their budget, and executions are locked before budgets: so they
are loaded only if no other transaction has locked them, and told later otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import ids
from flowfabric.engine.unit.budgets import Budgets
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.engine.unit.waits import Waits
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.limit.allowance import granted
from flowfabric.kernel.limit.asking import (
    is_waiting,
    looked_at,
    notice,
    told_all,
    with_ask,
)
from flowfabric.kernel.limit.budget import Budget
from flowfabric.kernel.wait.signal import deliver
from flowfabric.model.ask import AskerRow, AskRow, AskState, LimitKind
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import ASKERS_OF, Search, by_key
from flowfabric.stores.tables import ALLOWANCES, ASKERS, WAITPOINTS, Key

_TOLD: Final = 100  # spenders that one transaction tells of one answer
_LOOKED: Final = 500  # spenders of an open question that are looked at together


class Asks:
    """The questions of the budgets of one transaction."""

    def __init__(
        self, tx: Transaction, view: View, overlay: Overlay, waits: Waits, budgets: Budgets
    ) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._waits = waits
        self._budgets = budgets

    async def of_execution(self, execution_id: str) -> list[AskerRow]:
        """Where an execution waits for answers."""
        return await self._overlay.search(Search(ASKERS_OF, ((execution_id,),)))

    async def tell_one(
        self, askers: Sequence[AskerRow], state: AskState, *, is_once: bool, by: str, comment: str
    ) -> None:
        """Tell an execution, which is locked, of the answer that is for it alone."""
        await self._load(askers)
        for each in askers:
            self._tell(each, state, is_once=is_once, by=by, comment=comment)

    async def move_due(self, keys: Sequence[Key]) -> int:
        """Look at open questions, and tell spenders of answers; how many were told. The budgets are
        locked."""
        if not keys:
            return 0
        await self._budgets.load_asks(key[0] for key in keys)
        now, moved = self._view.at.now, 0
        for budget_id, dimension, kind in keys:
            budget = self._budgets.get(budget_id)
            if isinstance(budget, Refused):
                continue
            row = budget.asks.get((LimitKind(kind), dimension))
            if row is None or row.due_at is None or row.due_at > now:
                continue
            moved += await (self._look(row) if row.is_open else self._tell_all(row))
        return moved

    # --- open questions --------------------------------------------------------------------------

    async def _look(self, row: AskRow) -> int:
        """Forget the spenders that wait no more; how many."""
        search = Search(by_key(ASKERS), (_key(row),), limit=_LOOKED)
        page = await self._overlay.search(search)
        places = await self._tx.peek_rows(WAITPOINTS, sorted((each.waitpoint_id,) for each in page))
        alive: list[AskerRow] = []
        gone: list[AskerRow] = []
        for each in page:
            known = self._waits.waitpoint(each.waitpoint_id)
            place = places.get((each.waitpoint_id,)) if known is None else known
            (alive if is_waiting(place) else gone).append(each)
        self._drop(gone)
        is_all = len(page) < _LOOKED
        self._keep(looked_at(row, gone, alive, self._view.at, is_all=is_all))
        return len(gone)

    # --- answers ---------------------------------------------------------------------------------

    async def _tell_all(self, row: AskRow) -> int:
        """Tell some of the spenders; the loop comes again while any of them is left."""
        page = await self._overlay.search(Search(by_key(ASKERS), (_key(row),), limit=_TOLD))
        await self._load(page)
        told = 0
        for each in page:
            if await self._is_free(each.execution_id):
                self._tell(
                    each,
                    row.state,
                    is_once=bool(row.is_once),
                    by=row.answered_by,
                    comment=row.comment,
                )
                told += 1
        is_all = told == len(page) and len(page) < _TOLD
        self._keep(told_all(row, self._view.at, is_all=is_all))
        return told

    async def _load(self, askers: Sequence[AskerRow]) -> None:
        """Lock those spenders that no other transaction has locked, with their waits."""
        here = self._view.executions
        wanted = sorted({each.execution_id for each in askers if each.execution_id not in here})
        if wanted:
            here.update(await self._tx.load_free(wanted))
        loaded = {each.execution_id: self._view.execution(each.execution_id) for each in askers}
        places = sorted({(each.waitpoint_id,) for each in askers})
        await self._waits.look_at(filter(None, loaded.values()), places)
        await self._budgets.load_allowances((each.execution_id, each.budget_id) for each in askers)

    async def _is_free(self, execution_id: str) -> bool:
        """Whether a spender can be told: it is locked here, or gone for good."""
        if execution_id in self._view.executions:
            return self._waits.refuse_unreadable(execution_id) is None
        return execution_id not in await self._tx.get([execution_id])

    def _tell(
        self, asker: AskerRow, state: AskState, *, is_once: bool, by: str, comment: str
    ) -> None:
        """Tell one spender, unless it waits no more. Its allowance goes with it."""
        view, key = self._view, asker.execution_id
        self._drop([asker])
        execution, place = view.execution(key), self._waits.waitpoint(asker.waitpoint_id)
        if execution is None or execution.is_terminal or not is_waiting(place):
            return
        budget = self._budgets.get(asker.budget_id)
        if is_once and isinstance(budget, Budget):
            known = view.rows.get(
                ALLOWANCES, (key, asker.budget_id, asker.dimension, asker.limit_kind)
            )
            after, allowance = granted(budget, asker, known, view.at)
            view.rows.put(ALLOWANCES, allowance)
            self._budgets.keep(after)
        command = notice(asker, state, ids.new_secret_id(), by=by, comment=comment)
        episode = self._waits.episode(execution)
        decision = deliver(execution, place, episode, None, command, view.at)
        view.apply(execution, decision, command, ends_wait=True)

    def _drop(self, askers: Sequence[AskerRow]) -> None:
        for each in askers:
            self._view.rows.drop_unseen(ASKERS, ASKERS.key_of(each))

    def _keep(self, row: AskRow) -> None:
        budget = self._budgets.get(row.budget_id)
        if isinstance(budget, Budget):
            self._budgets.keep(with_ask(budget, row))


def _key(row: AskRow) -> Key:
    return (row.budget_id, row.dimension, row.limit_kind.value)
