"""Quotas: which executions get a slot, when the others come back, how a slot becomes free."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric.errors import NotFound, PlaceInUse
from flowfabric.kernel.command import ExecutionCommand, Key, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.limit.holdings import with_holdings
from flowfabric.model.execution import Execution
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    AdmissionRow,
    AdmissionState,
    Admitted,
    AlreadyAdmitted,
    ConcurrencyExceeded,
    GateRow,
    QuotaPolicy,
    RateExceeded,
)
from flowfabric.model.record import Record, replace

IDLE_GATE_MS = 60_000  # so long a gate is left alone before it is looked at for nothing
LOOK_AGAIN_MS = 1_000  # room that the ones called up have not used by then is offered to others


class CheckAdmission(ExecutionCommand[AdmissionOutcome], frozen=True, kw_only=True):
    """An external scheduler asks for a slot."""

    quota_policy_id: str
    dimension: str
    reservation_ms: int
    jitter: float

    @property
    def gate(self) -> Key:
        """Which counters it is about."""
        return (self.quota_policy_id, self.dimension)

    def needs(self, need: Needs) -> None:
        """The execution, the gate and its slot there."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.gates.add(self.gate)
        need.admissions.add((*self.gate, self.execution_id))


class ReleaseAdmission(ExecutionCommand[AdmissionReleased], frozen=True, kw_only=True):
    """Free a slot."""

    quota_policy_id: str
    dimension: str

    @property
    def gate(self) -> Key:
        """Which counters it is about."""
        return (self.quota_policy_id, self.dimension)

    def needs(self, need: Needs) -> None:
        """The execution, the gate and its slot there."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.gates.add(self.gate)
        need.admissions.add((*self.gate, self.execution_id))


class Gate(Record, frozen=True):
    """A quota's counters for one key, with its policy and the oldest of its window."""

    policy: QuotaPolicy
    row: GateRow
    oldest_at: int | None = None

    @property
    def room(self) -> int:
        """How many more could be admitted now; a large number where nothing limits."""
        return min(self.slots, self.starts)

    @property
    def slots(self) -> int:
        """How many more may run at once."""
        cap = self.policy.active_concurrency_cap
        return max(0, cap - self.row.active) if cap else 1 << 30

    @property
    def starts(self) -> int:
        """How many more may start in this window."""
        most = self.policy.max_requests_per_window
        return max(0, most - self.row.in_window) if most else 1 << 30


def no_quota(quota_policy_id: str) -> Refused:
    """No such policy."""
    return Refused(NotFound, f"quota policy {quota_policy_id}", {"entity": "quota_policy"})


def in_order(gate: Gate, at: Moment) -> Moment:
    """Rivals read the clock before they wait for the gate: for its window time never goes back."""
    return at if gate.row.seen_at <= at.now else replace(at, now=gate.row.seen_at)


def trim(gate: Gate, oldest: Sequence[AdmissionRow], at: Moment) -> Decision[int]:
    """Let what is older than the window leave it; how many entries left.

    `oldest` are the window's oldest entries. Those that left stay as rows while they are active.
    """
    at = in_order(gate, at)
    since = at.now - gate.policy.window_ms
    left = [each for each in oldest if each.counted_at is not None and each.counted_at <= since]
    staying = [each.counted_at for each in oldest[len(left) :] if each.counted_at is not None]
    row = gate.row
    if left:
        row = replace(row, in_window=max(0, row.in_window - len(left)), seen_at=at.now)
    trimmed = Gate(gate.policy, row, min(staying, default=None))
    uncounted = [replace(each, counted_at=None) for each in left]
    kept = [each for each in uncounted if each.is_active]
    gone = tuple(each for each in uncounted if not each.is_active)
    return Decision(len(left), saves=(trimmed, *kept), drops=gone)


def admit(
    gate: Gate,
    held: AdmissionRow | None,
    execution_id: str,
    state: AdmissionState,
    at: Moment,
    *,
    jitter: float,
    due_at: int | None = None,
    parks: bool = True,
) -> Decision[AdmissionOutcome]:
    """A slot and a start for one execution, or the reason why not.

    An execution is in the window once: admitted again, its entry moves. A reservation becomes a
    running admission without being counted again. What `parks` comes back when told and not
    before, so the times told are spread over the windows to come.
    """
    if held is not None and held.is_active:
        kept = replace(held, state=state, due_at=due_at)
        return Decision(AlreadyAdmitted(), saves=(kept,) if kept != held else ())
    policy, row, at = gate.policy, gate.row, in_order(gate, at)
    again = held is not None and held.counted_at is not None
    counted = row.in_window - again
    if 0 < policy.max_requests_per_window <= counted:
        spread = int(policy.jitter_ms * jitter)
        return _come_back(gate, at, spread) if parks else _retry_after(gate, at, spread)
    if 0 < policy.active_concurrency_cap <= row.active:
        return Decision(ConcurrencyExceeded())
    rated = policy.max_requests_per_window > 0
    since, seen_at = (at.now, at.now) if rated else (None, row.seen_at)
    key = (policy.quota_policy_id, row.dimension)
    admission = AdmissionRow(*key, execution_id, state, at.now, since, due_at)
    taken = replace(row, active=row.active + 1, in_window=counted + rated, seen_at=seen_at)
    oldest = gate.oldest_at if gate.oldest_at is not None or not rated else at.now
    return Decision(Admitted(), saves=(Gate(policy, taken, oldest), admission))


def admit_new(
    gate: Gate, execution_ids: Sequence[str], state: AdmissionState, at: Moment, due_at: int | None
) -> Decision[None]:
    """As `admit` for each of them, where none is known to the gate and it has room for all."""
    policy, row, count = gate.policy, gate.row, len(execution_ids)
    rated, at = policy.max_requests_per_window > 0, in_order(gate, at)
    since = at.now if rated else None
    key = (policy.quota_policy_id, row.dimension)
    made = [AdmissionRow(*key, each, state, at.now, since, due_at) for each in execution_ids]
    taken = replace(row, active=row.active + count)
    if rated:
        taken = replace(taken, in_window=row.in_window + count, seen_at=at.now)
    oldest = gate.oldest_at if gate.oldest_at is not None or not rated else at.now
    return Decision(None, saves=(Gate(policy, taken, oldest), *made))


def _first_room(gate: Gate, at: Moment) -> int:
    oldest = gate.oldest_at if gate.oldest_at is not None else at.now
    return max(at.now + 1, oldest + gate.policy.window_ms)


def _retry_after(gate: Gate, at: Moment, spread: int) -> Decision[AdmissionOutcome]:
    return Decision(RateExceeded(_first_room(gate, at) - at.now + spread))


def _come_back(gate: Gate, at: Moment, spread: int) -> Decision[AdmissionOutcome]:
    """When the window has room again; of many that are refused, no more come at once than fit."""
    policy, row = gate.policy, gate.row
    first = _first_room(gate, at)
    if row.wave_at < first:
        wave_at, size = first, 1
    elif row.wave_size < policy.max_requests_per_window:
        wave_at, size = row.wave_at, row.wave_size + 1
    else:
        wave_at, size = row.wave_at + policy.window_ms, 1
    # One that comes too early, or not at all, must not leave the window empty: look at its opening.
    look_at = look_again_at(gate, first + policy.jitter_ms, at.now)
    told_row = replace(row, wave_at=wave_at, wave_size=size, due_at=look_at)
    told = Gate(policy, told_row, gate.oldest_at)
    return Decision(RateExceeded(wave_at - at.now + spread), saves=(told,))


def look_again_at(gate: Gate, room_at: int, now: int) -> int:
    """When to see whether room is used while some wait for it; what is planned is not put off."""
    planned, fresh = gate.row.due_at, room_at + LOOK_AGAIN_MS
    return fresh if planned is None or planned <= now else min(planned, fresh)


def window_opens_at(gate: Gate) -> int | None:
    """When the oldest start leaves a full window and those told to come back have been given time;
    none when no start is in it."""
    if gate.oldest_at is None:
        return None
    return gate.oldest_at + gate.policy.window_ms + gate.policy.jitter_ms


def row_of(gate: Gate, now: int) -> GateRow | None:
    """The row a gate is kept in; none for one that was never used.

    With a time at which the gate is looked at by itself, even if nothing happens there: a key that
    is never used again must not stay for ever. What is planned already is not put off.
    """
    row = gate.row
    if row.due_at is not None:
        return row
    if row == GateRow(row.quota_policy_id, row.dimension):
        return None
    return replace(row, due_at=now + max(IDLE_GATE_MS, gate.policy.window_ms))


def unused(gate: Gate) -> Gate:
    """The gate as if it had never been used."""
    return Gate(gate.policy, GateRow(gate.row.quota_policy_id, gate.row.dimension))


def is_idle(gate: Gate) -> bool:
    """Whether nothing is counted: such a gate needs no row, unless something waits for it."""
    return not gate.row.active and not gate.row.in_window


def without_waves(gate: Gate) -> Gate:
    """Nothing waits any more: the next one that is refused comes back as soon as there is room."""
    return replace(gate, row=replace(gate.row, wave_at=0, wave_size=0))


def release(gate: Gate | None, admissions: Sequence[AdmissionRow | None]) -> Decision[int]:
    """Free the slots of some executions, as far as they have one, and each once; how many. Their
    starts stay counted in the window."""
    active = (each for each in admissions if each is not None and each.is_active)
    held = {each.execution_id: each for each in active}.values()
    if gate is None or not held:
        return Decision(0)
    row = replace(gate.row, active=max(0, gate.row.active - len(held)))
    counted = [each for each in held if each.counted_at is not None]
    gone = tuple(each for each in held if each.counted_at is None)  # have nothing more to say
    freed = [replace(each, state=AdmissionState.RELEASED, due_at=None) for each in counted]
    after = Gate(gate.policy, row, gate.oldest_at)
    return Decision(len(held), saves=(after, *freed), drops=gone)


def lapse(gate: Gate | None, held: AdmissionRow | None, at: Moment) -> Decision[int]:
    """Free a reserved slot whose time is over; how many."""
    is_over = held is not None and held.due_at is not None and held.due_at <= at.now
    return release(gate, [held]) if is_over else Decision(0)


def use_reserved(held: AdmissionRow) -> Decision[None]:
    """A reserved slot is used: its execution runs."""
    if held.state is not AdmissionState.RESERVED:
        return Decision(None)
    return Decision(None, saves=(replace(held, state=AdmissionState.RUNNING, due_at=None),))


# --- an external scheduler -----------------------------------------------------------------------


def check_admission(
    execution: Execution | None,
    gate: Gate | None,
    held: AdmissionRow | None,
    command: CheckAdmission,
    at: Moment,
) -> Decision[AdmissionOutcome]:
    """A slot for an execution that is to be started elsewhere; it ends with the execution's lease,
    so the execution counts it."""
    if gate is None:
        return Decision(no_quota(command.quota_policy_id))
    runs = execution is not None and execution.is_leased
    decision = admit(
        gate,
        held,
        command.execution_id,
        AdmissionState.RUNNING if runs else AdmissionState.RESERVED,
        at,
        jitter=command.jitter,
        due_at=None if runs else at.now + command.reservation_ms,
        parks=False,
    )
    if isinstance(decision.reply, AlreadyAdmitted):
        return Decision(decision.reply)
    if execution is None or execution.is_terminal or not isinstance(decision.reply, Admitted):
        return decision
    return replace(decision, execution=with_holdings(execution, 1))


def release_admission(
    execution: Execution | None,
    gate: Gate | None,
    held: AdmissionRow | None,
    command: ReleaseAdmission,
) -> Decision[AdmissionReleased]:
    """Only a reservation is given back on request: what runs is counted until its lease ends."""
    if held is not None and held.state is AdmissionState.RUNNING:
        where = f"quota {held.quota_policy_id}"
        detail = f"execution {held.execution_id} runs in this place of {where} until its lease ends"
        return refuse(PlaceInUse, detail, quota_policy_id=held.quota_policy_id)
    freed = release(gate, [held])
    decision = freed.told(AdmissionReleased(freed.reply == 1))
    if execution is None or execution.is_terminal or not freed.reply:
        return decision
    if execution.bounds.gate == command.gate or not execution.side_holds:
        return decision  # the slot of its own quota is not counted beside it
    return replace(decision, execution=with_holdings(execution, -1))


def denial_text(gate: Gate, outcome: AdmissionOutcome) -> str:
    """One sentence for the execution that must wait."""
    policy, row = gate.policy, gate.row
    where = f"quota {policy.quota_policy_id}"
    if row.dimension != "default":
        where += f" for {row.dimension}"
    if isinstance(outcome, RateExceeded):
        window = policy.requests_per_window_seconds
        return f"{where}: {row.in_window}/{policy.max_requests_per_window} starts in {window} s"
    return f"{where}: {row.active}/{policy.active_concurrency_cap} running"
