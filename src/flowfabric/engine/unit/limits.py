"""Limits inside one transaction: who is admitted, what is spent, and whom a change sets free.

Locks are taken in one order: executions, then budgets, then quota gates. Executions that become
free afterwards are taken only if nobody holds them, so nothing waits against that order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowfabric.engine.unit.budgets import BUDGET_COMMANDS, BudgetBook
from flowfabric.engine.unit.due import Due
from flowfabric.engine.unit.quotas import QUOTA_COMMANDS, GateBook
from flowfabric.engine.unit.view import View
from flowfabric.engine.unit.waits import EpisodeBook
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.execution.operate import Unblock
from flowfabric.kernel.limit.admission import (
    Denial,
    budget_denial,
    budget_key,
    cancel_unpayable,
    fail_unpayable,
    gate_key,
    holds_place,
    keep_back,
)
from flowfabric.kernel.limit.budget import CreateBudget, ResetBudget
from flowfabric.kernel.limit.fairness import Line
from flowfabric.kernel.limit.quota import (
    LOOK_AGAIN_MS,
    Gate,
    look_again_at,
    window_opens_at,
    without_waves,
)
from flowfabric.kernel.limit.spending import (
    LapseHold,
    Reserve,
    Spending,
)
from flowfabric.model.budget import (
    AttachmentRow,
    BudgetCreated,
    PendingWork,
    ScopeRow,
    ScopeType,
)
from flowfabric.model.execution import Body, Execution
from flowfabric.model.quota import AdmissionReleased, AdmissionState, Admitted
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import (
    ADMISSIONS,
    ATTACHMENTS,
    BUDGETS,
    GATES,
    HOLDS,
    SCOPES,
    Key,
)

UNBLOCK_CHUNK = 500  # executions set free by the transaction that made room; more follow at once
_SPENDING: Final[frozenset[type[Command[Any]]]] = frozenset(BUDGET_COMMANDS)
_ADMITTING: Final[frozenset[type[Command[Any]]]] = frozenset(QUOTA_COMMANDS)
LIMIT_COMMANDS: Final = _SPENDING | _ADMITTING

Candidate = tuple[Execution, Body]


class Limiter:
    """Budgets and quotas as one transaction sees and changes them."""

    def __init__(self, tx: Transaction, view: View, episodes: EpisodeBook) -> None:
        self._tx = tx
        self._view = view
        self._episodes = episodes
        self._budgets = BudgetBook(tx, view.rows, view.at, view.note_event)
        self._gates = GateBook(tx, view.rows, view.at, view.note_event)

    # --- commands about limits -----------------------------------------------------------------

    async def prepare(self, need: Needs) -> None:
        """Take what the commands will touch: all budgets in one step, then all gates in one."""
        running = [e for e in self._view.loaded() if e.side_holds]
        budgets, places = await self._take_side(running) if running else ((), ())
        need.budgets.update(budgets)
        await self._budgets.hold_for(need)
        need.gates.update(key[:2] for key in places)
        need.admissions.update(places)
        await self._gates.hold_for(need)

    def decide(self, command: Any) -> Any:
        """The reply to a command about a budget or a quota."""
        if type(command) in _ADMITTING:
            reply = self._gates.decide(command)
            self._note_place(command, reply)
            return reply
        execution = self._execution(getattr(command, "execution_id", None))
        fence = getattr(command, "fence", None)
        if fence is not None:
            refusal = refuse_unless_owner(execution, command.execution_id, fence, self._view.at.now)
            if refusal is not None:
                return self._budgets.told_before(command) or refusal
        known = None
        if isinstance(command, Reserve):
            known = self._budgets.hold_of(command)
        if isinstance(command, CreateBudget):
            return self._create(command)
        decision = self._budgets.decide(command)
        if execution is not None:
            self._count_holds(execution, command, decision, known is not None)
            if decision.fails_execution is not None and fence is not None:
                self._fail(command.execution_id, command.budget_id, decision.fails_execution)
        return decision.reply

    def _create(self, command: CreateBudget) -> Any:
        """A budget for a lane, a namespace or one execution applies there from now on."""
        scope, target = command.policy.scope_type, command.policy.scope_id
        execution = self._execution(target) if scope is ScopeType.EXECUTION else None
        if scope is ScopeType.EXECUTION and execution is None:
            return not_found(target)
        reply = self._budgets.decide(command).reply
        if not isinstance(reply, BudgetCreated):
            return reply
        if scope in (ScopeType.LANE, ScopeType.NAMESPACE, ScopeType.FLOW):
            self._view.rows.put(SCOPES, ScopeRow(scope, target, command.budget_id))
            self._view.add_scope(scope, target, command.budget_id)
        if execution is not None and not execution.is_terminal:
            self._view.attach(execution, command.budget_id)
        return reply

    def _note_place(self, command: Any, reply: Any) -> None:
        """A place an external scheduler took for an execution ends with that execution's lease."""
        execution = self._execution(getattr(command, "execution_id", None))
        key = (command.quota_policy_id, getattr(command, "dimension", ""))
        if execution is None or execution.is_terminal:
            return
        if isinstance(reply, Admitted):
            held = replace(execution, side_holds=execution.side_holds + 1)
            self._view.apply(execution, Decision(reply, held), command)
            if execution.is_leased:
                self._gates.promote((*key, execution.execution_id))
        elif (
            reply == AdmissionReleased(True)
            and execution.side_holds
            and execution.bounds.gate != key
        ):
            freed = replace(execution, side_holds=execution.side_holds - 1)
            self._view.apply(execution, Decision(reply, freed), command)

    def _execution(self, execution_id: str | None) -> Execution | None:
        found = self._view.executions.get(execution_id or "")
        return found if isinstance(found, Execution) else None

    def _count_holds(
        self, execution: Execution, command: Any, decision: Spending, known: bool
    ) -> None:
        """The execution remembers how many holds are to be returned when its lease ends."""
        made = decision.hold is not None and not known
        change = int(made) - int(decision.hold_ends)
        if change:
            counted = replace(execution, side_holds=max(0, execution.side_holds + change))
            self._view.apply(execution, Decision(decision.reply, counted), command)

    def _fail(self, execution_id: str, budget_id: str, breach: Any) -> None:
        execution = self._execution(execution_id)
        if execution is not None and not execution.is_terminal:
            detail = (
                f"budget {budget_id}: {breach.dimension} {breach.current_usage}/{breach.hard_limit}"
            )
            self._view.apply(execution, fail_unpayable(execution, detail, self._view.at))

    # --- admission -----------------------------------------------------------------------------

    async def admit(
        self,
        candidates: Sequence[Candidate],
        parts: Mapping[Line, int],
        state: AdmissionState = AdmissionState.RUNNING,
        due_at: int | None = None,
    ) -> list[Candidate]:
        """Those who may start, no more of each line than its part; the others who were looked at
        wait for what they lack, or end as it says."""
        executions = [execution for execution, _ in candidates]
        denials = await self._payable(executions)
        if (
            not any(denials)
            and _all_fit(executions, parts)
            and self._gates.admit_all(executions, state, due_at)
        ):
            return list(candidates)
        left = dict(parts)
        admitted = []
        for candidate, unpayable in zip(candidates, denials, strict=True):
            execution, denial = candidate[0], unpayable
            line = line_of(execution)
            if denial is None:
                if left[line] <= 0:
                    continue  # only looked at in case others are kept back
                denial = self._gates.admit(execution, state, due_at)
            if denial is None:
                left[line] -= 1
                admitted.append(candidate)
            else:
                self._keep_back(execution, denial)
        return admitted

    async def admit_named(
        self, execution: Execution, state: AdmissionState, due_at: int | None
    ) -> Denial | None:
        """As `admit`, for one execution a caller named."""
        denial = (await self._payable([execution]))[0]
        if denial is None:
            denial = self._gates.admit(execution, state, due_at)
        if denial is not None and execution.is_waiting:
            self._keep_back(execution, denial)
        return denial

    async def _payable(self, executions: Sequence[Execution]) -> list[Denial | None]:
        """What the budgets say; the gates of those they let pass are held afterwards."""
        # Those who name the same budgets are judged once.
        examples = {each.bounds.budget_ids: each for each in executions}
        budgets = await self._budgets.peek(budget_id for ids in examples for budget_id in ids)
        # A denial must be ordered with whoever makes room, so it is judged again under lock.
        doubtful = {
            budget_id
            for ids, example in examples.items()
            if budget_denial(example, budgets) is not None
            for budget_id in ids
        }
        if doubtful:
            await self._budgets.hold(doubtful)
            budgets |= self._budgets.held(doubtful)
        judged = {ids: budget_denial(example, budgets) for ids, example in examples.items()}
        denials = [judged[each.bounds.budget_ids] for each in executions]
        payable = [each for each, no in zip(executions, denials, strict=True) if no is None]
        await self._hold_gates(payable)
        return denials

    async def _hold_gates(self, executions: Iterable[Execution]) -> None:
        """One step for all gates this transaction may need, so that their order is kept."""
        admissions = [
            (*gate, each.execution_id)
            for each in (*executions, *self._view.loaded())
            if (gate := each.bounds.gate) is not None
        ]
        if admissions:
            await self._gates.hold((key[:2] for key in admissions), admissions)

    def _keep_back(self, execution: Execution, denial: Denial) -> None:
        self._view.apply(execution, keep_back(execution, denial, self._view.at))

    # --- what follows from transitions ---------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether something follows from what was decided so far."""
        return self._view.has_bounded or self._budgets.has_work or self._gates.has_work

    async def follow_up(self) -> int:
        """Return what ended executions held, and set free whoever waited for it.

        How many executions were moved on.
        """
        freed = 0
        while True:
            moves = self._view.take_bounded()
            await self._episodes.close_after(moves)
            await self._return_held(moves)
            step = await self._make_use_of_room()
            freed += step
            if not step and not self._view.has_bounded:
                return freed

    async def _return_held(self, moves: Sequence[tuple[Execution, Execution]]) -> None:
        ended = [
            (before, after)
            for before, after in moves
            if before.side_holds
            and (
                (before.is_leased and not after.is_leased)
                or (after.is_terminal and not before.is_terminal)
            )
        ]
        if ended:
            await self._hold_side([before for before, _ in ended])
            kept = await self._episodes.pending([before.execution_id for before, _ in ended])
            for before, after in ended:
                self._return_side(before, after, kept[before.execution_id])
        now = self._view.at.now
        leaving = [
            before
            for before, after in moves
            if holds_place(before, now)
            and not holds_place(after, now)
            and before.bounds.gate is not None
        ]
        if leaving:
            await self._hold_gates(leaving)
        for execution in leaving:
            gate = execution.bounds.gate
            if gate is not None:
                self._gates.release(gate, execution.execution_id)
        await self._promote(
            [
                after
                for before, after in moves
                if after.side_holds and after.is_leased and not before.is_leased
            ]
        )
        for before, after in moves:
            if before.is_terminal != after.is_terminal:
                self._attach(after)

    async def _hold_side(self, executions: Sequence[Execution]) -> None:
        """Budgets and gates of what executions hold beside their own quota."""
        budgets, places = await self._take_side(executions)
        await self._budgets.hold(budgets)
        await self._gates.hold((key[:2] for key in places), places)

    async def _take_side(self, executions: Sequence[Execution]) -> tuple[list[str], list[Key]]:
        """Reservations and other quotas' places: their budgets, and their keys, yet to be held.

        Nobody else changes them meanwhile: their executions are held.
        """
        ids = [each.execution_id for each in executions]
        holds = await self._tx.rows_of(HOLDS, ids)
        self._view.rows.take(HOLDS, {HOLDS.key_of(each): each for each in holds})
        places = [ADMISSIONS.key_of(each) for each in await self._tx.rows_of(ADMISSIONS, ids)]
        return [each.budget_id for each in holds], places

    def _return_side(self, before: Execution, after: Execution, kept: int) -> None:
        rows, key = self._view.rows, before.execution_id
        for hold in rows.group(HOLDS, (key,)):
            self._budgets.decide(
                LapseHold(budget_id=hold.budget_id, execution_id=key, hold_id=hold.hold_id)
            )
        for admission in rows.matching(ADMISSIONS, "execution_id", key):
            self._gates.release((admission.quota_policy_id, admission.dimension), key)
        current = self._execution(key) or after
        self._view.apply(current, Decision(None, replace(current, side_holds=kept)))

    async def _promote(self, executions: Sequence[Execution]) -> None:
        """Places taken by an external scheduler are used now."""
        if executions:
            await self._hold_side(executions)
            for execution in executions:
                places = self._view.rows.matching(
                    ADMISSIONS, "execution_id", execution.execution_id
                )
                for admission in places:
                    self._gates.promote(ADMISSIONS.key_of(admission))

    def _attach(self, after: Execution) -> None:
        """Only what has not ended is attached: a budget's list stays as long as its work."""
        for budget_id in after.bounds.budget_ids:
            key = (budget_id, after.execution_id)
            if after.is_terminal:
                self._view.rows.drop_unseen(ATTACHMENTS, key)
            else:
                self._view.rows.put(ATTACHMENTS, AttachmentRow(*key))

    async def _make_use_of_room(self) -> int:
        moved = 0
        for budget_id in self._budgets.cancelling():
            moved += await self._cancel_attached(budget_id)
        for budget_id in self._budgets.opened():
            moved += await self._unblock_budget(budget_id)
        for gate, places in self._gates.freed():
            moved += await self._offer(gate, places)
        return moved

    async def _cancel_attached(self, budget_id: str) -> int:
        """Cancel what waits, a bounded number at a time; the loop goes on with the rest."""
        await self._save()
        found = await self._tx.attached(budget_id, UNBLOCK_CHUNK)
        for execution in found:
            current = self._take(execution)
            if not current.is_leased and not current.is_terminal:
                detail = f"budget {budget_id} is exhausted"
                decision = cancel_unpayable(current, detail, self._view.at)
                self._view.apply(current, decision)
        full = len(found) == UNBLOCK_CHUNK
        work = PendingWork.CANCEL if full else PendingWork.NONE
        self._budgets.worked(budget_id, work, self._view.at.now)
        return len(found) if not full else 0

    async def _unblock_budget(self, budget_id: str) -> int:
        found, more = await self._unblock(budget_key(budget_id), UNBLOCK_CHUNK)
        work = PendingWork.UNBLOCK if more else PendingWork.NONE
        later = self._view.at.now + (0 if found else LOOK_AGAIN_MS)
        self._budgets.worked(budget_id, work, later)
        return 0 if more else found

    async def _offer(self, gate: Gate, places: int) -> int:
        """Call up as many as there are places; room nobody used is offered again later."""
        key = gate_key(gate.row.quota_policy_id, gate.row.dimension)
        now, found, when = self._view.at.now, 0, None
        if places:
            found, more = await self._unblock(key, min(places, UNBLOCK_CHUNK))
            if more:
                when = look_again_at(gate, now, now)
            else:
                gate = without_waves(gate)
        elif gate.places and await self._is_blocked(key):
            # Every start of the window is taken, or those it has room for are on their way.
            opens_at = None if gate.room else window_opens_at(gate)
            when = look_again_at(gate, now, now) if opens_at is None else opens_at
        self._gates.look_again(gate, when)
        return found

    async def _unblock(self, key: str, limit: int) -> tuple[int, bool]:
        """Executions waiting for this become claimable; whether more of them wait."""
        await self._save()
        found = await self._tx.blocked(key, limit)
        for execution in found:
            current = self._take(execution)
            if current.blocked_on == key:
                reason = current.state.blocking_reason
                self._view.decide(Unblock(execution_id=current.execution_id, expected=reason))
        return len(found), await self._is_blocked(key)

    async def _is_blocked(self, key: str) -> bool:
        await self._save()
        return await self._tx.is_blocked(key)

    def _take(self, execution: Execution) -> Execution:
        """The image this transaction holds, or the one just loaded."""
        return self._execution(execution.execution_id) or self._view.take(execution)

    async def _save(self) -> None:
        """A search must see what this batch has decided."""
        if changes := self._view.take_changes():
            await self._tx.save(changes)

    # --- what is due by itself -----------------------------------------------------------------

    async def move_due(self, due: Due, came_back: Counter[str | None]) -> int:
        """Resets, lapsed holds and reservations, room to be offered again.

        `came_back`: how many executions have just stopped waiting for each thing by themselves.
        """
        now = self._view.at.now
        holds, budgets = due.of(HOLDS), due.of(BUDGETS)
        gates, places = due.of(GATES), due.of(ADMISSIONS)
        lapsed = await self._lapse_holds(holds)
        await self._budgets.hold(key[0] for key in budgets)
        # What cannot be read is left for doctor: it must not keep the loop busy.
        budgets = [key for key in budgets if self._budgets.is_readable(key[0])]
        await self._gates.hold((*gates, *(key[:2] for key in places)), places)
        gates = [key for key in gates if self._gates.is_known(key)]
        places = [key for key in places if self._gates.is_known(key[:2])]
        for (budget_id,) in budgets:
            self._budgets.decide(ResetBudget(budget_id=budget_id, only_if_due=True))
            self._budgets.go_on(budget_id)
        released = 0
        for key in places:
            admission = self._view.rows.get(ADMISSIONS, key)
            if admission is not None and admission.due_at is not None and admission.due_at <= now:
                released += self._gates.release(key[:2], key[2])
        for key in gates:
            self._gates.touch(key, came_back[gate_key(*key)])
        await self.follow_up()
        return lapsed + len(budgets) + len(gates) + released

    async def _lapse_holds(self, keys: Sequence[Key]) -> int:
        """End holds whose time is over; how many. One of a budget that cannot be read stays."""
        if not keys:
            return 0
        found = await self._tx.load(sorted({key[0] for key in keys}))
        for execution in found.values():
            self._view.executions.setdefault(execution.execution_id, execution)
        lapses = [
            LapseHold(budget_id=budget_id, execution_id=owner, hold_id=hold_id)
            for owner, budget_id, hold_id in keys
        ]
        need = Needs()
        for lapse in lapses:
            lapse.needs(need)
        await self._budgets.hold_for(need)
        lapsed = 0
        for lapse in lapses:
            hold = self._budgets.hold_of(lapse)
            if hold is not None and hold.due_at <= self._view.at.now:
                self.decide(lapse)
                lapsed += self._budgets.hold_of(lapse) is None
        return lapsed


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
