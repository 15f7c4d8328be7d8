"""The quota gates one transaction touches: loaded once, decided in order, written together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from flowfabric import ids
from flowfabric.engine.unit.corrupt import readable
from flowfabric.engine.unit.records import Rows, save_rows
from flowfabric.errors import Corruption
from flowfabric.kernel.command import Needs
from flowfabric.kernel.decision import Moment
from flowfabric.kernel.limit.admission import Denial, quota_denial, unknown_quota
from flowfabric.kernel.limit.quota import (
    CheckAdmission,
    CreateQuota,
    Gate,
    QuotaDecision,
    ReleaseAdmission,
    UpdateQuota,
    admit,
    admit_new,
    create_quota,
    is_idle,
    looked_after,
    no_quota,
    refuse_release,
    release,
    trimmed,
    update_quota,
)
from flowfabric.model.event import OperatorEvent
from flowfabric.model.execution import Execution
from flowfabric.model.quota import (
    AdmissionReleased,
    AdmissionRow,
    AdmissionState,
    Admitted,
    AlreadyAdmitted,
    GateRow,
)
from flowfabric.model.record import replace
from flowfabric.stores.base import Transaction
from flowfabric.stores.tables import ADMISSIONS, GATES, QUOTAS, Key

WINDOW_PAGE = 500
_ADMITTED = (Admitted, AlreadyAdmitted)
QUOTA_COMMANDS = (CreateQuota, UpdateQuota, CheckAdmission, ReleaseAdmission)


class GateBook:
    """Gates by policy and key, as they stand."""

    def __init__(
        self, tx: Transaction, rows: Rows, at: Moment, publish: Callable[[OperatorEvent], None]
    ) -> None:
        self._tx = tx
        self._rows = rows
        self._at = at
        self._publish = publish
        self._gates: dict[Key, Gate] = {}
        self._unknown: set[Key] = set()
        self._looked_up: set[Key] = set()  # admissions: who has the gate has them too
        self._freed: Counter[Key] = Counter()  # places to offer

    # --- loading -------------------------------------------------------------------------------

    async def hold(self, gates: Iterable[Key], admissions: Iterable[Key] = ()) -> None:
        """Take these gates, in the order of their keys, and the admissions named with them."""
        new = sorted({*gates} - self._gates.keys() - self._unknown)
        if new:
            found, spoiled = await readable(self._tx.rows, GATES, new)
            self._rows.take(GATES, found)
            self._unknown.update(spoiled)
            # Read after the gates are held: whoever changes a policy takes its gates as well.
            policies = sorted({key[:1] for key in new})
            self._rows.take(QUOTAS, (await readable(self._tx.peek_rows, QUOTAS, policies))[0])
            for key in new:
                await self._open(key)
        wanted = sorted({*admissions} - self._looked_up)
        if wanted:
            self._looked_up.update(wanted)
            places, odd = await readable(self._tx.peek_rows, ADMISSIONS, wanted)
            self._rows.take(ADMISSIONS, places)
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

    def is_known(self, key: Key) -> bool:
        """Whether a gate that was held can be read, and has a policy."""
        return key in self._gates

    async def _trim(self, key: Key) -> None:
        """What is older than the window leaves it: each admission once, whatever the rate."""
        first = await self._tx.oldest_rows(ADMISSIONS, key, 1)
        gate, left = trimmed(self._gates[key], first, self._at)
        if not left:  # as a rule nothing has left since the last look
            self._gates[key] = gate
            return
        while True:
            oldest = await self._tx.oldest_rows(ADMISSIONS, key, WINDOW_PAGE)
            self._rows.take(ADMISSIONS, {ADMISSIONS.key_of(each): each for each in oldest})
            gate, left = trimmed(self._gates[key], oldest, self._at)
            self._put_gate(gate)
            for each in left:
                self._put_admission(each)
            if len(left) < WINDOW_PAGE:
                return
            await save_rows(self._tx, self._rows)

    async def hold_for(self, need: Needs) -> None:
        """Everything that commands about quotas will ask for."""
        if need.policies:
            policies = sorted(need.policies)
            self._rows.take(QUOTAS, await self._tx.rows(QUOTAS, policies))
            known = await self._tx.rows(GATES, policies)
            self._rows.take(GATES, known)
            need.gates.update(known)
        await self.hold(need.gates, need.admissions)

    # --- deciding ------------------------------------------------------------------------------

    def decide(self, command: Any) -> Any:
        """The reply to a command about a quota; its changes join the batch."""
        match command:
            case CreateQuota() | UpdateQuota():
                rule: Any = create_quota if isinstance(command, CreateQuota) else update_quota
                policy = self._rows.get(QUOTAS, (command.quota_policy_id,))
                decision = rule(policy, command, self._at)
                if decision.policy is not None:
                    self._rows.put(QUOTAS, decision.policy)
                    self._change_policy(decision.policy)
                for event in decision.events:
                    self._publish(event)
                return decision.reply
            case CheckAdmission():
                return self._check(command)
            case _:
                key = (command.quota_policy_id, command.dimension)
                held = self._rows.get(ADMISSIONS, (*key, command.execution_id))
                return refuse_release(held) or AdmissionReleased(
                    self.release(key, command.execution_id)
                )

    @property
    def has_work(self) -> bool:
        """Whether what was decided concerns executions that wait."""
        return bool(self._freed)

    def _change_policy(self, policy: Any) -> None:
        for key in [each for each in self._unknown if each[0] == policy.quota_policy_id]:
            self._unknown.discard(key)
            self._gates[key] = Gate(policy, self._rows.get(GATES, key) or GateRow(*key))
        for key, gate in list(self._gates.items()):
            if key[0] == policy.quota_policy_id:
                self._gates[key] = Gate(policy, gate.row, gate.oldest_at)
                self.touch(key)

    def _check(self, command: CheckAdmission) -> Any:
        key = (command.quota_policy_id, command.dimension)
        gate = self._gates.get(key)
        if gate is None:
            return no_quota(command.quota_policy_id)
        decision = admit(
            gate,
            self._rows.get(ADMISSIONS, (*key, command.execution_id)),
            command.execution_id,
            AdmissionState.RESERVED,
            self._at,
            jitter=command.jitter,
            due_at=self._at.now + command.reservation_ms,
            parks=False,
        )
        if not isinstance(decision.reply, AlreadyAdmitted):
            self._apply(decision)
        return decision.reply

    def admit(
        self, execution: Execution, state: AdmissionState, due_at: int | None
    ) -> Denial | None:
        """Give the execution its place, or say why it gets none."""
        key = execution.bounds.gate
        if key is None:
            return None
        gate = self._gates.get(key)
        if gate is None:
            return unknown_quota(execution)
        held = self._rows.get(ADMISSIONS, (*key, execution.execution_id))
        decision = admit(
            gate,
            held,
            execution.execution_id,
            state,
            self._at,
            jitter=ids.jitter() if gate.policy.jitter_ms else 0.0,
            due_at=due_at,
        )
        self._apply(decision)
        if isinstance(decision.reply, _ADMITTED):
            return None
        return quota_denial(self._gates[key], decision.reply, self._at.now)

    def admit_all(
        self, executions: Iterable[Execution], state: AdmissionState, due_at: int | None
    ) -> bool:
        """Give all of them their places at once, or change nothing if something is in the way."""
        new: dict[Key, list[str]] = {}
        for execution in executions:
            key = execution.bounds.gate
            if key is not None:
                if self._rows.get(ADMISSIONS, (*key, execution.execution_id)) is not None:
                    return False
                new.setdefault(key, []).append(execution.execution_id)
        for key, owners in new.items():
            gate = self._gates.get(key)
            if gate is None or gate.room < len(owners):
                return False
        for key, owners in new.items():
            gate, made = admit_new(self._gates[key], owners, state, self._at, due_at)
            self._put_gate(gate)
            for admission in made:
                self._rows.put_at(ADMISSIONS, (*key, admission.execution_id), admission)
        return True

    def release(self, key: Key, execution_id: str) -> bool:
        """Free an execution's place, if it has one."""
        gate = self._gates.get(key)
        if gate is None:
            return False
        held = self._rows.get(ADMISSIONS, (*key, execution_id))
        after, admission, freed = release(gate, held)
        if freed and admission is not None:
            self._put_gate(after)
            self._put_admission(admission)
            self._freed[key] += 1
        return freed

    def promote(self, key: Key) -> None:
        """A reserved place is used: its execution runs."""
        admission = self._rows.get(ADMISSIONS, key)
        if admission is not None and admission.state is AdmissionState.RESERVED:
            running = replace(admission, state=AdmissionState.RUNNING, due_at=None)
            self._put_admission(running)

    def _apply(self, decision: QuotaDecision) -> None:
        if decision.gate is not None:
            self._put_gate(decision.gate)
        if decision.admission is not None:
            self._put_admission(decision.admission)

    def _put_gate(self, gate: Gate) -> None:
        key = GATES.key_of(gate.row)
        known = self._rows.get(GATES, key) or GateRow(*key)  # an idle gate needs no row
        if known is not gate.row and known != gate.row:
            gate = looked_after(gate, self._at.now)
            self._rows.put_at(GATES, key, gate.row)
        self._gates[key] = gate

    def _put_admission(self, admission: AdmissionRow) -> None:
        """A released admission that has left the window has nothing more to say."""
        gone = not admission.is_active and admission.counted_at is None
        self._rows.put_at(ADMISSIONS, ADMISSIONS.key_of(admission), None if gone else admission)

    # --- consequences --------------------------------------------------------------------------

    def freed(self) -> list[tuple[Gate, int]]:
        """Gates where places became free, with how many to offer, each told once.

        Not all the room there is: the rest was offered before, to some who are on their way.
        """
        freed, self._freed = self._freed, Counter()
        found = ((self._gates.get(key), freed[key]) for key in sorted(freed))
        return [(gate, min(gate.room, most)) for gate, most in found if gate is not None]

    def touch(self, key: Key, on_their_way: int = 0) -> None:
        """Offer all the room of a gate, but for those who come by themselves at this moment."""
        gate = self._gates.get(key)
        if gate is not None:
            self._freed[key] += max(0, gate.room - on_their_way)

    def look_again(self, gate: Gate, when: int | None) -> None:
        """When the gate must be looked at by itself; none: when it is time to tidy up.

        A gate that counts nothing by then is forgotten. Not at once: a key that is used again and
        again would be inserted and deleted each time, and rivals would collide on it.
        """
        planned = gate.row.due_at
        is_due = planned is not None and planned <= self._at.now
        if when is None and is_due and is_idle(gate):
            key = GATES.key_of(gate.row)
            self._rows.put_at(GATES, key, None)
            self._gates[key] = Gate(gate.policy, GateRow(*key))
            return
        if when is None and not is_due:
            when = planned
        self._put_gate(replace(gate, row=replace(gate.row, due_at=when)))
