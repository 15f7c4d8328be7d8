"""Limits inside one transaction: what is admitted, what is spent, and what a change sets free.

Locks are taken in one order: executions, then budgets, then quota gates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from flowfabric.engine.unit.asks import Asks
from flowfabric.engine.unit.budgets import Budgets
from flowfabric.engine.unit.due import Due
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.quotas import Gates
from flowfabric.engine.unit.room import Room
from flowfabric.engine.unit.view import View
from flowfabric.engine.unit.waits import Waits
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.limit.admission import (
    Denial,
    block,
    budget_denial,
    gate_key,
    has_begun,
)
from flowfabric.kernel.limit.attachment import attach_living
from flowfabric.kernel.limit.budget_policy import ResetBudget, reset_budget
from flowfabric.kernel.limit.fairness import Line
from flowfabric.kernel.limit.holdings import (
    gives_back_holdings,
    gives_back_slot,
    return_all,
    uses_reserved_slots,
)
from flowfabric.kernel.limit.reservation import lapse_hold, return_hold
from flowfabric.model.budget import HoldReleased
from flowfabric.model.execution import Body, Execution
from flowfabric.model.quota import AdmissionState
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import ADMISSIONS_OF, Search
from flowfabric.stores.tables import ADMISSIONS, ASKS, BUDGETS, GATES, HOLDS, Key

Candidate = tuple[Execution, Body]
Move = tuple[Execution, Execution]  # an execution before and after


class Limits:
    """Budgets and quotas as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay, waits: Waits) -> None:
        self._tx = tx
        self._view = view
        self._waits = waits
        self.budgets = Budgets(tx, view)
        self.gates = Gates(tx, view, overlay)
        self.asks = Asks(tx, view, overlay, waits, self.budgets)
        self._room = Room(tx, view, overlay, self.budgets, self.gates)

    async def prepare(self, need: Needs) -> None:
        """Lock what the commands will touch: all budgets in one step, then all gates in one."""
        running = [each for each in self._view.loaded() if each.side_holds]
        budgets, slots = await self._holdings_of(running) if running else ((), ())
        need.budgets.update(budgets)
        await self.budgets.prepare(need)
        need.gates.update(key[:2] for key in slots)
        need.admissions.update(slots)
        await self.gates.prepare(need)

    # --- admission -----------------------------------------------------------------------------

    async def admit(
        self,
        candidates: Sequence[Candidate],
        parts: Mapping[Line, int],
        state: AdmissionState = AdmissionState.RUNNING,
        due_at: int | None = None,
    ) -> list[Candidate]:
        """The candidates that may start, no more of each line than its part; the others that were
        looked at wait for what they lack, or end as it says."""
        executions = [execution for execution, _ in candidates]
        denials = await self._payable(executions)
        if (
            not any(denials)
            and _all_fit(executions, parts)
            and self.gates.admit_all(executions, state, due_at)
        ):
            return list(candidates)
        left = dict(parts)
        admitted = []
        for candidate, unpayable in zip(candidates, denials, strict=True):
            execution, denial = candidate[0], unpayable
            line = line_of(execution)
            if denial is None:
                if left[line] <= 0:
                    continue  # only looked at in case others are blocked
                denial = self.gates.admit(execution, state, due_at)
            if denial is None:
                left[line] -= 1
                admitted.append(candidate)
            else:
                self._block(execution, denial)
        return admitted

    async def admit_named(
        self, execution: Execution, state: AdmissionState, due_at: int | None
    ) -> Denial | None:
        """As `admit`, for one execution a caller named."""
        denial = (await self._payable([execution]))[0]
        if denial is None:
            denial = self.gates.admit(execution, state, due_at)
        if denial is not None and execution.is_waiting:
            self._block(execution, denial)
        return denial

    def _block(self, execution: Execution, denial: Denial) -> None:
        """What a denial does."""
        self._view.effects.denied.append(denial.blocked_on)
        self._view.apply(execution, block(execution, denial, self._view.at))

    async def _payable(self, executions: Sequence[Execution]) -> list[Denial | None]:
        """What the budgets say; the gates of those they let pass are locked afterwards."""
        # Executions that name the same budgets and have begun, or have not, are judged once.
        examples = {_judged_as(each): each for each in executions}
        budgets = await self.budgets.peek(budget_id for ids, _ in examples for budget_id in ids)
        # A denial must be ordered with changes that make room, so it is judged again under lock.
        doubtful = {
            budget_id
            for (ids, _), example in examples.items()
            if budget_denial(example, budgets) is not None
            for budget_id in ids
        }
        if doubtful:
            await self.budgets.lock(doubtful)
            budgets |= self.budgets.locked(doubtful)
        judged = {key: budget_denial(example, budgets) for key, example in examples.items()}
        denials = [judged[_judged_as(each)] for each in executions]
        payable = [each for each, no in zip(executions, denials, strict=True) if no is None]
        await self._lock_gates(payable)
        return denials

    async def _lock_gates(self, executions: Iterable[Execution]) -> None:
        """One step for all gates this transaction may need, so that their order is kept."""
        admissions = [
            (*gate, each.execution_id)
            for each in (*executions, *self._view.loaded())
            if (gate := each.bounds.gate) is not None
        ]
        if admissions:
            await self.gates.lock((key[:2] for key in admissions), admissions)

    # --- what follows from transitions ---------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether something follows from what was decided so far."""
        return self._view.has_bounded or self.budgets.has_work or self.gates.has_work

    async def follow_up(self) -> int:
        """Return what ended executions held, and move on what waited for it.

        How many executions were moved on.
        """
        freed = 0
        while True:
            moves = self._view.take_bounded()
            await self._waits.close_after(moves)
            await self._follow_moves(moves)
            step = await self._room.use()
            freed += step
            if not step and not self._view.has_bounded:
                return freed

    async def _follow_moves(self, moves: Sequence[Move]) -> None:
        """Give back, use and count what executions hold, as their moves say."""
        now = self._view.at.now
        holders = [move for move in moves if move[0].side_holds or move[1].side_holds]
        await self._return_holdings([move for move in holders if gives_back_holdings(*move)])
        await self._return_slots([move[0] for move in moves if gives_back_slot(*move, now)])
        await self._use_reserved([move[1] for move in holders if uses_reserved_slots(*move)])
        for before, after in moves:
            if before.is_terminal is not after.is_terminal and after.bounds.budget_ids:
                self._attach(after)

    async def _return_holdings(self, moves: Sequence[Move]) -> None:
        """Reservations and slots of other quotas go back; pending waitpoints stay."""
        if not moves:
            return
        await self._lock_holdings([before for before, _ in moves])
        kept = await self._waits.pending([before.execution_id for before, _ in moves])
        view, at = self._view, self._view.at
        for _, after in moves:
            key = after.execution_id
            for hold in view.rows.group(HOLDS, (key,)):
                budget = self.budgets.get(hold.budget_id)
                if not isinstance(budget, Refused):
                    view.apply(None, return_hold(budget, hold, at))
            for held in self.gates.admissions_of(key):
                self.gates.release((held.quota_policy_id, held.dimension), [key])
            current = view.execution(key) or after
            view.apply(current, return_all(current, kept[key]))

    async def _return_slots(self, executions: Sequence[Execution]) -> None:
        """The slots of their own quotas become free."""
        if not executions:
            return
        await self._lock_gates(executions)
        leaving: dict[Key, list[str]] = {}
        for execution in executions:
            if (gate := execution.bounds.gate) is not None:
                leaving.setdefault(gate, []).append(execution.execution_id)
        for gate, execution_ids in leaving.items():
            self.gates.release(gate, execution_ids)

    async def _use_reserved(self, executions: Sequence[Execution]) -> None:
        """Slots that an external scheduler reserved are used now."""
        if executions:
            await self._lock_holdings(executions)
        for execution in executions:
            self.gates.use_reserved(execution.execution_id)

    def _attach(self, execution: Execution) -> None:
        """The rows of an execution in the lists of its budgets go when it ends."""
        self._view.apply(None, attach_living(execution))

    async def _lock_holdings(self, executions: Sequence[Execution]) -> None:
        """Budgets and gates of what executions hold beside their own slot."""
        budgets, slots = await self._holdings_of(executions)
        await self.budgets.lock(budgets)
        await self.gates.lock((key[:2] for key in slots), slots)

    async def _holdings_of(self, executions: Sequence[Execution]) -> tuple[list[str], list[Key]]:
        """Reservations and other quotas' slots: their budgets, and their keys, yet to be locked.

        They do not change meanwhile: their executions are locked.
        """
        owners = tuple((each.execution_id,) for each in executions)
        holds = await self._tx.peek_rows(HOLDS, owners)
        self._view.rows.take(HOLDS, holds)
        slots = await self._tx.search_keys(Search(ADMISSIONS_OF, owners))
        return [each.budget_id for each in holds.values()], slots

    # --- what is due by itself -----------------------------------------------------------------

    async def move_due(self, due: Due, came_back: Counter[str | None]) -> int:
        """Resets, lapsed reservations of amounts and slots, room to be offered again; how many.

        `came_back`: how many executions have just stopped waiting for each thing by themselves.
        """
        view, slots = self._view, due.of(ADMISSIONS)
        moved = await self._lapse_holds(due.of(HOLDS))
        await self.budgets.lock(key[0] for key in (*due.of(BUDGETS), *due.of(ASKS)))
        await self.gates.lock((*due.of(GATES), *(key[:2] for key in slots)), slots)
        # What cannot be read is left for doctor: it must not keep the loop busy.
        for (budget_id,) in due.of(BUDGETS):
            budget = self.budgets.get(budget_id)
            if not isinstance(budget, Refused):
                command = ResetBudget(budget_id=budget_id, only_if_due=True)
                view.apply(None, reset_budget(budget, command, view.at))
                self.budgets.go_on(budget_id)
                moved += 1
        moved += await self.asks.move_due(due.of(ASKS))
        moved += sum(self.gates.lapse(key[:2], key[2]) for key in slots)
        for key in due.of(GATES):
            if self.gates.get(key) is not None:
                self.gates.offer_all(key, came_back[gate_key(*key)])
                moved += 1
        await self.follow_up()
        return moved

    async def _lapse_holds(self, keys: Sequence[Key]) -> int:
        """End reservations whose time is over; how many. That of an unreadable budget stays."""
        if not keys:
            return 0
        view = self._view
        for execution in (await self._tx.load(sorted({key[0] for key in keys}))).values():
            view.executions.setdefault(execution.execution_id, execution)
        need = Needs()
        need.holds.update(keys)
        need.budgets.update(key[1] for key in keys)
        await self.budgets.prepare(need)
        lapsed = 0
        for key in keys:
            owner, budget = view.execution(key[0]), self.budgets.get(key[1])
            if not isinstance(budget, Refused):
                decision = lapse_hold(owner, budget, self.budgets.hold(key), view.at)
                lapsed += view.apply(owner, decision) == HoldReleased(True)
        return lapsed


def _judged_as(execution: Execution) -> tuple[tuple[str, ...], bool]:
    """What the judgement of budgets depends on."""
    return execution.bounds.budget_ids, has_begun(execution)


def _all_fit(executions: Sequence[Execution], parts: Mapping[Line, int]) -> bool:
    """Whether no line has more candidates than its part."""
    if len(executions) > sum(parts.values()):
        return False
    if len(parts) == 1:
        return True
    return all(count <= parts[line] for line, count in Counter(map(line_of, executions)).items())


def line_of(execution: Execution) -> Line:
    """The line it stands in: its lane and its tenant."""
    return (execution.route.lane_id, execution.route.namespace)
