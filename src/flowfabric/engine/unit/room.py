"""Use of room: executions that wait for a budget or a quota go on when there is some.

Executions are locked before budgets and gates. Those that are found here are loaded only if no
other transaction has locked them, so nothing waits against that order.
"""

from __future__ import annotations

from flowfabric.engine.unit.budgets import Budgets
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.quotas import Gates
from flowfabric.engine.unit.view import View
from flowfabric.kernel.limit.admission import budget_key, gate_key
from flowfabric.kernel.limit.budget import Budget
from flowfabric.kernel.limit.quota import Gate
from flowfabric.kernel.limit.room import (
    after_cancelling,
    after_offering,
    after_unblocking,
    call_up,
    cancel_waiting,
    without_offer,
)
from flowfabric.model.budget import PendingWork
from flowfabric.model.execution import Execution
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import BLOCKED, Search, by_key
from flowfabric.stores.tables import ATTACHMENTS

UNBLOCK_CHUNK = 500  # executions moved on by the transaction that made room; more follow at once
ATTACHED_PAGE = 500


class Room:
    """What the budgets and gates of one transaction have room for."""

    def __init__(
        self, tx: Transaction, view: View, overlay: Overlay, budgets: Budgets, gates: Gates
    ) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._budgets = budgets
        self._gates = gates

    async def use(self) -> int:
        """Move on what waits, as far as there is room; how many executions."""
        moved = 0
        for budget, work in self._budgets.work():
            if work is PendingWork.CANCEL:
                moved += await self._cancel_attached(budget)
            else:
                moved += await self._unblock_budget(budget)
        for gate, slots in self._gates.freed():
            moved += await self._offer(gate, slots)
        return moved

    async def _cancel_attached(self, budget: Budget) -> int:
        """Cancel what waits, a bounded number at a time; the loop goes on with the rest."""
        budget_id, at = budget.row.budget_id, self._view.at
        found, more = await self._attached(budget_id)
        for execution in found:
            self._view.apply(execution, cancel_waiting(execution, budget_id, at))
        self._budgets.worked(budget_id, after_cancelling(budget, more, at))
        return 0 if more else len(found)

    async def _unblock_budget(self, budget: Budget) -> int:
        budget_id = budget.row.budget_id
        found, more = await self._unblock(budget_key(budget_id), UNBLOCK_CHUNK)
        decision = after_unblocking(budget, found, more, self._view.at)
        self._budgets.worked(budget_id, decision)
        return 0 if more else found

    async def _offer(self, gate: Gate, slots: int) -> int:
        """Call up as many as there are slots; room that is not used is offered again later."""
        key, found = gate_key(gate.row.quota_policy_id, gate.row.dimension), 0
        if slots:
            found, more = await self._unblock(key, min(slots, UNBLOCK_CHUNK))
            decision = after_offering(gate, more, self._view.at)
        else:
            is_awaited = gate.slots > 0 and await self._is_awaited(key)
            decision = without_offer(gate, is_awaited, self._view.at)
        self._view.apply(None, decision)
        return found

    async def _unblock(self, awaited: str, limit: int) -> tuple[int, bool]:
        """Executions waiting for this become claimable; whether more of them wait."""
        search = Search(BLOCKED, ((awaited,),), limit=limit, is_held=True)
        found = await self._overlay.search(search)
        for execution in found:
            current = self._current(execution)
            self._view.apply(current, call_up(current, awaited, self._view.at))
        return len(found), await self._is_awaited(awaited)

    async def _is_awaited(self, key: str) -> bool:
        search = Search(BLOCKED, ((key,),), limit=1)
        return bool(await self._overlay.search_keys(search))

    async def _attached(self, budget_id: str) -> tuple[list[Execution], bool]:
        """Executions of a budget that neither run nor have ended, a bounded number of those that
        are unlocked; whether there may be more."""
        found: list[Execution] = []
        page = Search(by_key(ATTACHMENTS), ((budget_id,),), limit=ATTACHED_PAGE)
        while keys := await self._overlay.search_keys(page):
            ids = [key[1] for key in keys]
            seen = await self._tx.get([each for each in ids if not self._view.execution(each)])
            waiting = [
                each
                for each in ids
                if isinstance(image := self._view.execution(each) or seen.get(each), Execution)
                and image.is_runnable
            ]
            missing = [each for each in waiting if not self._view.execution(each)]
            self._view.executions.update(await self._tx.load_free(missing) if missing else {})
            current = (self._view.execution(each) for each in waiting)
            found += [each for each in current if each is not None and each.is_runnable]
            if len(found) >= UNBLOCK_CHUNK or len(keys) < ATTACHED_PAGE:
                break
            page = replace(page, after=(ids[-1],))
        return found[:UNBLOCK_CHUNK], len(found) >= UNBLOCK_CHUNK

    def _current(self, execution: Execution) -> Execution:
        """The image of this transaction, or the one just loaded."""
        return self._view.execution(execution.execution_id) or self._view.take(execution)
