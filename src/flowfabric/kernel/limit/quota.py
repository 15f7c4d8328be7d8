"""Quotas: who gets a place, who is told to come back when, and how a place becomes free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric.errors import LimitConflict, NotFound, PlaceInUse
from flowfabric.kernel.command import Command, ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
    AdmissionRow,
    AdmissionState,
    Admitted,
    AlreadyAdmitted,
    ConcurrencyExceeded,
    GateRow,
    QuotaAlreadySatisfied,
    QuotaCreated,
    QuotaPolicy,
    QuotaUpdated,
    RateExceeded,
)
from flowfabric.model.record import Record, replace

IDLE_GATE_MS = 60_000  # so long a gate is left alone before it is looked at for nothing
LOOK_AGAIN_MS = 1_000  # room that the ones called up have not used by then is offered to others


class CreateQuota(Command[QuotaCreated | QuotaAlreadySatisfied], frozen=True, kw_only=True):
    """Put a policy in force."""

    quota_policy_id: str
    window_seconds: int
    max_requests_per_window: int
    max_concurrent: int
    jitter_ms: int

    def needs(self, need: Needs) -> None:
        """The policy with all its gates."""
        need.catalog = need.is_limited = True
        need.policies.add((self.quota_policy_id,))


class UpdateQuota(Command[QuotaUpdated], frozen=True, kw_only=True):
    """Change limits; what is absent stays."""

    quota_policy_id: str
    window_seconds: int | None
    max_requests_per_window: int | None
    max_concurrent: int | None
    jitter_ms: int | None

    def needs(self, need: Needs) -> None:
        """The policy with all its gates."""
        need.catalog = need.is_limited = True
        need.policies.add((self.quota_policy_id,))


class CheckAdmission(ExecutionCommand[AdmissionOutcome], frozen=True, kw_only=True):
    """An external scheduler asks for a place."""

    quota_policy_id: str
    dimension: str
    reservation_ms: int
    jitter: float

    def needs(self, need: Needs) -> None:
        """The execution, the gate and its place there."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.gates.add((self.quota_policy_id, self.dimension))
        need.admissions.add((self.quota_policy_id, self.dimension, self.execution_id))


class ReleaseAdmission(ExecutionCommand[AdmissionReleased], frozen=True, kw_only=True):
    """Free a place."""

    quota_policy_id: str
    dimension: str

    def needs(self, need: Needs) -> None:
        """The execution, the gate and its place there."""
        need.executions.add(self.execution_id)
        need.catalog = need.is_limited = True
        need.gates.add((self.quota_policy_id, self.dimension))
        need.admissions.add((self.quota_policy_id, self.dimension, self.execution_id))


class Gate(Record, frozen=True):
    """A quota's counters for one key, with its policy and the oldest of its window."""

    policy: QuotaPolicy
    row: GateRow
    oldest_at: int | None = None

    @property
    def room(self) -> int:
        """How many more could be admitted now; a large number where nothing limits."""
        return min(self.places, self.starts)

    @property
    def places(self) -> int:
        """How many more may run at once."""
        cap = self.policy.active_concurrency_cap
        return max(0, cap - self.row.active) if cap else 1 << 30

    @property
    def starts(self) -> int:
        """How many more may start in this window."""
        most = self.policy.max_requests_per_window
        return max(0, most - self.row.in_window) if most else 1 << 30


class QuotaDecision(Record, frozen=True):
    """The reply to one command about a quota, and what changed."""

    reply: Any
    policy: QuotaPolicy | None = None
    gate: Gate | None = None
    admission: AdmissionRow | None = None
    events: tuple[OperatorEvent, ...] = ()


def no_quota(quota_policy_id: str) -> Refused:
    """No such policy."""
    return Refused(NotFound, f"quota policy {quota_policy_id}", {"entity": "quota_policy"})


def create_quota(policy: QuotaPolicy | None, command: CreateQuota, at: Moment) -> QuotaDecision:
    """Idempotent; other limits under the same id are a conflict."""
    wanted = (
        command.window_seconds,
        command.max_requests_per_window,
        command.max_concurrent,
        command.jitter_ms,
    )
    key = command.quota_policy_id
    if policy is None:
        made = QuotaPolicy(key, *wanted, at.now, at.now)
        audit = _audit(made, OperatorEventType.QUOTA_CREATED, at)
        return QuotaDecision(QuotaCreated(key), made, events=(audit,))
    if _numbers(policy) == wanted:
        return QuotaDecision(QuotaAlreadySatisfied(key))
    detail = f"quota policy {key} exists with other limits"
    return QuotaDecision(Refused(LimitConflict, detail, {"field": "quota_policy_id"}))


def _numbers(policy: QuotaPolicy) -> tuple[int, int, int, int]:
    return (
        policy.requests_per_window_seconds,
        policy.max_requests_per_window,
        policy.active_concurrency_cap,
        policy.jitter_ms,
    )


def update_quota(policy: QuotaPolicy | None, command: UpdateQuota, at: Moment) -> QuotaDecision:
    """The new limits hold for the next admission; nobody who runs is stopped."""
    if policy is None:
        return QuotaDecision(no_quota(command.quota_policy_id))
    asked = (
        command.window_seconds,
        command.max_requests_per_window,
        command.max_concurrent,
        command.jitter_ms,
    )
    window, starts, places, jitter = (
        old if new is None else new for old, new in zip(_numbers(policy), asked, strict=True)
    )
    changed = replace(
        policy,
        requests_per_window_seconds=window,
        max_requests_per_window=starts,
        active_concurrency_cap=places,
        jitter_ms=jitter,
        updated_at=at.now,
    )
    audit = _audit(changed, OperatorEventType.QUOTA_UPDATED, at)
    return QuotaDecision(QuotaUpdated(policy.quota_policy_id), changed, events=(audit,))


def _audit(policy: QuotaPolicy, event_type: OperatorEventType, at: Moment) -> OperatorEvent:
    """The limits that hold from now on."""
    window, starts, places, jitter = _numbers(policy)
    details = {
        "window_seconds": window,
        "max_requests_per_window": starts,
        "max_concurrent": places,
        "jitter_ms": jitter,
    }
    return OperatorEvent(policy.quota_policy_id, event_type, details, "", {}, at.now)


def in_order(gate: Gate, at: Moment) -> Moment:
    """Rivals read the clock before they wait for the gate: for its window time never goes back."""
    return at if gate.row.seen_at <= at.now else replace(at, now=gate.row.seen_at)


def trimmed(
    gate: Gate, oldest: Sequence[AdmissionRow], at: Moment
) -> tuple[Gate, list[AdmissionRow]]:
    """Let what is older than the window leave it; `oldest` are the window's oldest entries.

    Returns the gate and the entries that left: those still active stay as rows, the rest go.
    """
    at = in_order(gate, at)
    since = at.now - gate.policy.window_ms
    left = [each for each in oldest if each.counted_at is not None and each.counted_at <= since]
    staying = [each.counted_at for each in oldest[len(left) :] if each.counted_at is not None]
    row = gate.row
    if left:
        row = replace(row, in_window=max(0, row.in_window - len(left)), seen_at=at.now)
    trimmed_gate = Gate(gate.policy, row, min(staying, default=None))
    return trimmed_gate, [replace(each, counted_at=None) for each in left]


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
) -> QuotaDecision:
    """A place and a start for one execution, or the reason why not.

    An execution is in the window once: admitted again, its entry moves. A reservation becomes a
    running admission without being counted again. Who `parks` will come back when told and not
    before, so the times told are spread over the windows to come.
    """
    if held is not None and held.is_active:
        kept = replace(held, state=state, due_at=due_at)
        return QuotaDecision(AlreadyAdmitted(), None, gate, kept if kept != held else None)
    policy, row, at = gate.policy, gate.row, in_order(gate, at)
    again = held is not None and held.counted_at is not None
    counted = row.in_window - again
    if 0 < policy.max_requests_per_window <= counted:
        spread = int(policy.jitter_ms * jitter)
        return _come_back(gate, at, spread) if parks else _retry_after(gate, at, spread)
    if 0 < policy.active_concurrency_cap <= row.active:
        return QuotaDecision(ConcurrencyExceeded(), None, gate)
    rated = policy.max_requests_per_window > 0
    admission = AdmissionRow(
        policy.quota_policy_id,
        row.dimension,
        execution_id,
        state,
        at.now,
        at.now if rated else None,
        due_at,
    )
    seen_at = at.now if rated else row.seen_at
    taken = replace(row, active=row.active + 1, in_window=counted + rated, seen_at=seen_at)
    oldest = gate.oldest_at if gate.oldest_at is not None or not rated else at.now
    return QuotaDecision(Admitted(), None, Gate(policy, taken, oldest), admission)


def admit_new(
    gate: Gate, execution_ids: Sequence[str], state: AdmissionState, at: Moment, due_at: int | None
) -> tuple[Gate, list[AdmissionRow]]:
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
    return Gate(policy, taken, oldest), made


def _first_room(gate: Gate, at: Moment) -> int:
    oldest = gate.oldest_at if gate.oldest_at is not None else at.now
    return max(at.now + 1, oldest + gate.policy.window_ms)


def _retry_after(gate: Gate, at: Moment, spread: int) -> QuotaDecision:
    return QuotaDecision(RateExceeded(_first_room(gate, at) - at.now + spread), None, gate)


def _come_back(gate: Gate, at: Moment, spread: int) -> QuotaDecision:
    """When the window has room again; of many who are refused, no more come at once than fit."""
    policy, row = gate.policy, gate.row
    first = _first_room(gate, at)
    if row.wave_at < first:
        wave_at, size = first, 1
    elif row.wave_size < policy.max_requests_per_window:
        wave_at, size = row.wave_at, row.wave_size + 1
    else:
        wave_at, size = row.wave_at + policy.window_ms, 1
    # Whoever comes too early, or not at all, must not leave the window empty: look at its opening.
    look_at = look_again_at(gate, first + policy.jitter_ms, at.now)
    told_row = replace(row, wave_at=wave_at, wave_size=size, due_at=look_at)
    told = Gate(policy, told_row, gate.oldest_at)
    return QuotaDecision(RateExceeded(wave_at - at.now + spread), None, told)


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


def looked_after(gate: Gate, now: int) -> Gate:
    """With a time at which the gate is looked at by itself, even if nothing happens there: a key
    that is never used again must not stay for ever. What is planned already is not put off."""
    row = gate.row
    if row.due_at is not None:
        return gate
    keep_ms = max(IDLE_GATE_MS, gate.policy.window_ms)
    return replace(gate, row=replace(row, due_at=now + keep_ms))


def is_idle(gate: Gate) -> bool:
    """Whether nothing is counted: such a gate needs no row, unless some wait for it."""
    return not gate.row.active and not gate.row.in_window


def without_waves(gate: Gate) -> Gate:
    """Nobody waits any more: the next one who is refused comes back as soon as there is room."""
    return replace(gate, row=replace(gate.row, wave_at=0, wave_size=0))


def release(gate: Gate, held: AdmissionRow | None) -> tuple[Gate, AdmissionRow | None, bool]:
    """Free the place, if this execution has one; its start stays counted in the window."""
    if held is None or not held.is_active:
        return gate, held, False
    row = replace(gate.row, active=max(0, gate.row.active - 1))
    freed = replace(held, state=AdmissionState.RELEASED, due_at=None)
    return Gate(gate.policy, row, gate.oldest_at), freed, True


def refuse_release(held: AdmissionRow | None) -> Refused | None:
    """Only a reservation is given back on request: what runs is counted until its lease ends."""
    if held is None or held.state is not AdmissionState.RUNNING:
        return None
    where = f"quota {held.quota_policy_id}"
    detail = f"execution {held.execution_id} runs in this place of {where} until its lease ends"
    return Refused(PlaceInUse, detail, {"quota_policy_id": held.quota_policy_id})


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
