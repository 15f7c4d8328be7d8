"""The quota gates one transaction touches: loaded once, decided in order, written together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from flowfabric import ids
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.overlay import Overlay
from flowfabric.engine.unit.view import View
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Needs
from flowfabric.kernel.limit.admission import Denial, take_slot
from flowfabric.kernel.limit.quota import (
    Gate,
    admit_new,
    lapse,
    release,
    row_of,
    trim,
    use_reserved,
)
from flowfabric.kernel.limit.room import slots_freed, slots_unused
from flowfabric.model.execution import Execution
from flowfabric.model.quota import AdmissionRow, AdmissionState, GateRow, QuotaPolicy
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.indexes import WINDOW, Search
from flowfabric.stores.tables import ADMISSIONS, GATES, QUOTAS, Key

WINDOW_PAGE = 500


class Gates:
    """Gates by policy and key, as they stand."""

    def __init__(self, tx: Transaction, view: View, overlay: Overlay) -> None:
        self._tx = tx
        self._view = view
        self._overlay = overlay
        self._rows = view.rows
        self._gates: dict[Key, Gate] = {}  # locked
        self._unknown: set[Key] = set()
        self._looked_up: set[Key] = set()  # admissions: their gate's lock is their lock too
        self._freed: Counter[Key] = Counter()  # slots to offer
        view.keep_with(Gate, self._keep)
        view.keep_with(QuotaPolicy, self._keep_policy)

    # --- loading -------------------------------------------------------------------------------

    async def lock(self, gates: Iterable[Key], admissions: Iterable[Key] = ()) -> None:
        """Lock these gates, in the order of their keys, and load the admissions named with them."""
        new = sorted({*gates} - self._gates.keys() - self._unknown)
        if new:
            found, unreadable = await readable(self._tx.rows, GATES, new)
            self._rows.take(GATES, found)
            self._unknown.update(unreadable)
            # Read after the gates are locked: a change of a policy locks its gates as well.
            policies = sorted({key[:1] for key in new})
            self._rows.take(QUOTAS, (await readable(self._tx.peek_rows, QUOTAS, policies))[0])
            for key in new:
                await self._open(key)
        wanted = sorted({*admissions} - self._looked_up)
        if wanted:
            self._looked_up.update(wanted)
            found_rows, odd = await readable(self._tx.peek_rows, ADMISSIONS, wanted)
            self._rows.take(ADMISSIONS, found_rows)
            for key in odd:
                self._close(key[:2])

    async def _open(self, key: Key) -> None:
        policy = self._rows.get(QUOTAS, key[:1])
        if policy is None or key in self._unknown:
            self._unknown.add(key)
            return
        row = self._rows.get(GATES, key) or GateRow(*key)
        self._gates[key] = Gate(policy, row)
        if row.in_window:
            try:
                await self._trim(key)
            except Corruption:
                self._close(key)

    def _close(self, key: Key) -> None:
        """Of a gate with a row that cannot be read, nothing is known and none is admitted."""
        self._gates.pop(key, None)
        self._unknown.add(key)

    async def _trim(self, key: Key) -> None:
        """What is older than the window leaves it: each admission once, whatever the rate."""
        first = await self._overlay.search(Search(WINDOW, (key,), limit=1))
        decision = trim(self._gates[key], first, self._view.at)
        if decision.reply == 0:  # as a rule nothing has left since the last look
            self._view.apply(None, decision)
            return
        page = Search(WINDOW, (key,), limit=WINDOW_PAGE)
        while True:
            oldest = await self._overlay.search(page)
            self._rows.take(ADMISSIONS, {ADMISSIONS.key_of(each): each for each in oldest})
            left = self._view.apply(None, trim(self._gates[key], oldest, self._view.at))
            if left != WINDOW_PAGE:
                return
            page = replace(page, after=(oldest[-1].counted_at, oldest[-1].execution_id))

    async def prepare(self, need: Needs) -> None:
        """Everything that commands about quotas will ask for."""
        if need.policies:
            policies = sorted(need.policies)
            self._rows.take(QUOTAS, await self._tx.rows(QUOTAS, policies))
            known = await self._tx.rows(GATES, policies)
            self._rows.take(GATES, known)
            need.gates.update(known)
        await self.lock(need.gates, need.admissions)

    # --- what the rules ask for ----------------------------------------------------------------

    def policy(self, quota_policy_id: str) -> QuotaPolicy | None:
        """A policy, as it stands."""
        return self._rows.get(QUOTAS, (quota_policy_id,))

    def get(self, key: Key) -> Gate | None:
        """A locked gate; none where it has no policy, or cannot be read."""
        return self._gates.get(key)

    def admission(self, key: Key, execution_id: str) -> AdmissionRow | None:
        """What a gate knows of an execution."""
        return self._rows.get(ADMISSIONS, (*key, execution_id))

    # --- slots ---------------------------------------------------------------------------------

    def admit(
        self, execution: Execution, state: AdmissionState, due_at: int | None
    ) -> Denial | None:
        """Give the execution its slot, or say why it gets none."""
        key = execution.bounds.gate
        if key is None:
            return None
        gate = self._gates.get(key)
        held = self.admission(key, execution.execution_id)
        jitter = ids.jitter() if gate is not None and gate.policy.jitter_ms else 0.0
        decision = take_slot(
            execution, gate, held, state, self._view.at, jitter=jitter, due_at=due_at
        )
        denial = self._view.apply(None, decision)
        return denial if isinstance(denial, Denial) else None

    def admit_all(
        self, executions: Iterable[Execution], state: AdmissionState, due_at: int | None
    ) -> bool:
        """Give all of them their slots at once, or change nothing if something is in the way."""
        new: dict[Key, list[str]] = {}
        for execution in executions:
            key = execution.bounds.gate
            if key is not None:
                if self.admission(key, execution.execution_id) is not None:
                    return False
                new.setdefault(key, []).append(execution.execution_id)
        for key, owners in new.items():
            gate = self._gates.get(key)
            if gate is None or gate.room < len(owners):
                return False
        for key, owners in new.items():
            decision = admit_new(self._gates[key], owners, state, self._view.at, due_at)
            self._view.apply(None, decision)
        return True

    def release(self, key: Key, execution_ids: Iterable[str]) -> None:
        """Free the slots of executions at a gate, as far as they have one."""
        held = [self.admission(key, each) for each in execution_ids]
        self._view.apply(None, release(self.get(key), held))

    def lapse(self, key: Key, execution_id: str) -> bool:
        """Free an execution's slot, if the time of its reservation is over."""
        decision = lapse(self.get(key), self.admission(key, execution_id), self._view.at)
        return self._view.apply(None, decision) == 1

    def use_reserved(self, execution_id: str) -> None:
        """The slots that were reserved for an execution are used from now on."""
        for held in self.admissions_of(execution_id):
            self._view.apply(None, use_reserved(held))

    def admissions_of(self, execution_id: str) -> list[AdmissionRow]:
        """What the gates that were locked know of an execution."""
        return self._rows.matching(ADMISSIONS, "execution_id", execution_id)

    # --- what was decided ----------------------------------------------------------------------

    def _keep(self, gate: Gate) -> None:
        """A gate is kept in a row of its own, if it needs one, beside its policy."""
        key = (gate.row.quota_policy_id, gate.row.dimension)
        known = self._rows.get(GATES, key)
        if known is not gate.row and known != gate.row:
            row = row_of(gate, self._view.at.now)
            if row is not None and row is not gate.row:
                gate = replace(gate, row=row)
            if row is not None or known is not None:
                self._rows.put_at(GATES, key, row)
        freed = slots_freed(self._gates.get(key), gate)
        if freed is not None:
            self._freed[key] += freed
        self._gates[key] = gate

    def _keep_policy(self, policy: QuotaPolicy) -> None:
        """A policy holds for all its gates at once."""
        self._rows.put(QUOTAS, policy)
        for key in [*self._unknown, *self._gates]:
            if key[0] == policy.quota_policy_id:
                self._unknown.discard(key)
                gate = self._gates.get(key)
                if gate is None:
                    gate = Gate(policy, self._rows.get(GATES, key) or GateRow(*key))
                self._keep(replace(gate, policy=policy))

    # --- consequences --------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether what was decided concerns executions that wait."""
        return bool(self._freed)

    def freed(self) -> list[tuple[Gate, int]]:
        """Gates where slots became free, with how many to offer, each told once."""
        freed, self._freed = self._freed, Counter()
        found = ((self._gates.get(key), freed[key]) for key in sorted(freed))
        return [(gate, min(gate.room, most)) for gate, most in found if gate is not None]

    def offer_all(self, key: Key, on_their_way: int) -> None:
        """Offer all the room of a gate, but for executions that come by themselves."""
        self._freed[key] += slots_unused(self._gates[key], on_their_way)
