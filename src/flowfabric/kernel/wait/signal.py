"""Deliver: a signal reaches the episode its waitpoint is bound to, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flowfabric import limits
from flowfabric.errors import (
    InvalidToken,
    NotFound,
    SignalLimitExceeded,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused, refuse
from flowfabric.kernel.repeat import in_force
from flowfabric.kernel.wait.condition import contributes, is_met, keys_of, tokens_of
from flowfabric.kernel.wait.episode import Episode, awake, ended, signal_event
from flowfabric.kernel.wait.token import verifies
from flowfabric.model.execution import Execution
from flowfabric.model.record import Record, replace
from flowfabric.model.suspension import (
    Contribution,
    ResumeCause,
    SecretRow,
    SignalAccepted,
    SignalDuplicate,
    SignalEffect,
    SignalKeyRow,
    SignalRow,
    WaitpointRow,
    WaitpointState,
)

SYSTEM: Final = "system"  # the source of the engine's own signals


class TypeDeclared(Record, frozen=True):
    """The payload must fit this type. Comparing takes time, so nothing is locked meanwhile: the
    caller compares, and repeats the command with `fits`. Only an authenticated sender gets here."""

    payload_type: str


Delivered = SignalAccepted | SignalDuplicate | TypeDeclared


class DeliverSignal(ExecutionCommand[Delivered], frozen=True, kw_only=True):
    """A sender with the right to it signals a waitpoint."""

    waitpoint_id: str
    presented: str | None  # the token; none for an operator of this installation
    signal_id: str
    signal_name: str
    signal_category: str
    source_type: str
    source_identity: str
    correlation_id: str
    payload: bytes | None
    payload_encoding: str
    created_at: int | None
    idempotency_key: str | None
    dedup_ttl_ms: int
    resume_delay_ms: int
    fits: str | None = None  # the declared type that the payload was compared with, and fits

    def __repr__(self) -> str:
        return f"DeliverSignal({self.signal_name!r} to {self.waitpoint_id})"

    def needs(self, need: Needs) -> None:
        """The execution, the waitpoint, an earlier signal under the key."""
        need.executions.add(self.execution_id)
        need.waits = True
        need.waitpoints.add((self.waitpoint_id,))
        if self.idempotency_key is not None:
            need.signal_keys.add((self.waitpoint_id, self.idempotency_key))


def refuse_sender(
    execution: Execution | None,
    waitpoint: WaitpointRow | None,
    secrets: Sequence[SecretRow],
    command: DeliverSignal,
    at: Moment,
) -> Refused | None:
    """A sender without the right learns nothing, not even whether the waitpoint exists."""
    if waitpoint is not None and waitpoint.execution_id != command.execution_id:
        waitpoint = None
    if command.presented is None and waitpoint is None:  # an operator may know
        missing = f"waitpoint {command.waitpoint_id}"
        return Refused(NotFound, missing, {"entity": "waitpoint"})
    known = command.presented is None or verifies(command.presented, waitpoint, secrets, at.now)
    return None if known and execution is not None else Refused(InvalidToken)


def deliver(
    execution: Execution | None,
    waitpoint: WaitpointRow | None,
    episode: Episode | None,
    seen: SignalKeyRow | None,
    command: DeliverSignal,
    at: Moment,
) -> Decision[Delivered]:
    """After authentication: the key, the state, the cap, the payload's type, the condition."""
    if execution is None or waitpoint is None:
        return refuse(InvalidToken)
    known = in_force(seen, at.now) if command.dedup_ttl_ms > 0 else None
    if known is not None:
        return Decision(SignalDuplicate(known.signal_id, known.effect))
    if refusal := _refuse(execution, waitpoint, episode, at):
        return Decision(refusal)
    if refusal := _refuse_too_many(execution, command):
        return Decision(refusal)
    if waitpoint.payload_type is not None and waitpoint.payload_type != command.fits:
        return Decision(TypeDeclared(waitpoint.payload_type))
    if episode is None or not _counts_for(waitpoint, episode):
        return _stored(execution, waitpoint, command, SignalEffect.BUFFERED, at)
    return _evaluated(execution, waitpoint, episode, command, at)


def _counts_for(waitpoint: WaitpointRow, episode: Episode) -> bool:
    """Whether the signals of a waitpoint count for a wait: it is bound to it, or stays pending and
    stands for a key of its condition that no other one is bound to."""
    if waitpoint.state is not WaitpointState.PENDING:
        return True
    key = waitpoint.waitpoint_key
    if any(each.waitpoint_key == key for each in episode.waitpoints):
        return False
    return key in keys_of(episode.row.condition)


def _refuse_too_many(execution: Execution, command: DeliverSignal) -> Refused | None:
    """Signals of one execution are bounded in number and in size; the engine's own are not."""
    if command.source_type == SYSTEM:
        return None
    most = execution.policy.max_signals_per_execution
    if 0 < most <= execution.signal_count:
        detail = f"{execution.signal_count} signals are the limit {most}"
        return Refused(SignalLimitExceeded, detail)
    if execution.signal_bytes + len(command.payload or b"") > limits.SIGNAL_BYTES_TOTAL:
        detail = f"payload: all payloads together are over {limits.SIGNAL_BYTES_TOTAL} bytes"
        return Refused(SignalLimitExceeded, detail, {"field": "payload"})
    return None


def _refuse(
    execution: Execution, waitpoint: WaitpointRow, episode: Episode | None, at: Moment
) -> Refused | None:
    if execution.is_terminal:
        return Refused(TargetNotSignalable, f"execution is {execution.public_state.value}")
    if waitpoint.state is WaitpointState.CLOSED:
        return Refused(WaitpointClosed, f"closed: {waitpoint.close_reason}")
    if waitpoint.state is WaitpointState.PENDING:
        lapsed = waitpoint.expires_at is not None and waitpoint.expires_at <= at.now
        return Refused(WaitpointClosed, "expired before it was waited on") if lapsed else None
    bound = episode is not None and execution.suspension_id == waitpoint.suspension_id
    return None if bound else Refused(WaitpointClosed, "its suspension has ended")


def _signal(
    waitpoint: WaitpointRow, command: DeliverSignal, effect: SignalEffect, at: Moment
) -> SignalRow:
    return SignalRow(
        waitpoint.waitpoint_id,
        waitpoint.signal_count,
        command.execution_id,
        command.signal_id,
        command.signal_name,
        command.signal_category,
        command.source_type,
        command.source_identity,
        command.correlation_id,
        command.payload,
        command.payload_encoding,
        at.now if command.created_at is None else command.created_at,
        at.now,
        effect,
    )


def _remembered(
    command: DeliverSignal, effect: SignalEffect, at: Moment
) -> tuple[SignalKeyRow, ...]:
    if command.idempotency_key is None or command.dedup_ttl_ms <= 0:
        return ()
    until = at.now + command.dedup_ttl_ms
    key = command.idempotency_key
    return (SignalKeyRow(command.waitpoint_id, key, command.signal_id, effect, until),)


_MATCHED = (SignalEffect.RESUMED, SignalEffect.APPENDED, SignalEffect.DUPLICATE)


def _heard(waitpoint: WaitpointRow, effect: SignalEffect, at: Moment) -> WaitpointRow:
    """The waitpoint with one more signal."""
    return replace(
        waitpoint,
        signal_count=waitpoint.signal_count + 1,
        matched_signal_count=waitpoint.matched_signal_count + (effect in _MATCHED),
        last_signal_at=at.now,
    )


def _stored(
    execution: Execution,
    waitpoint: WaitpointRow,
    command: DeliverSignal,
    effect: SignalEffect,
    at: Moment,
    rows: tuple[Record, ...] = (),
) -> Decision[Delivered]:
    """An accepted signal is kept and counted, whatever it did. `rows`: of its episode, after it;
    without them only the waitpoint has changed."""
    after = replace(
        execution,
        # Those of the engine itself are no senders': a run may be woken as often as it waits.
        signal_count=execution.signal_count + (command.source_type != SYSTEM),
        signal_bytes=execution.signal_bytes + len(command.payload or b""),
        last_mutation_at=at.now,
    )
    signal = _signal(waitpoint, command, effect, at)
    changed = rows or (_heard(waitpoint, effect, at),)
    return Decision(
        SignalAccepted(command.signal_id, effect),
        after,
        None,
        (signal_event(execution, signal),),
        (*changed, signal, *_remembered(command, effect, at)),
    )


def _evaluated(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: Episode,
    command: DeliverSignal,
    at: Moment,
) -> Decision[Delivered]:
    row = episode.row
    found = Contribution(
        waitpoint.waitpoint_key,
        command.signal_id,
        command.signal_name,
        command.source_type,
        command.source_identity,
    )
    if waitpoint.waitpoint_key not in keys_of(row.condition):
        return _stored(execution, waitpoint, command, SignalEffect.NOT_IN_CONDITION, at)
    if not tokens_of(row.condition, found):
        return _stored(execution, waitpoint, command, SignalEffect.MATCHER_FAILED, at)
    if row.progress and not contributes(row.condition, row.progress, found):
        return _stored(execution, waitpoint, command, SignalEffect.DUPLICATE, at)
    progress = (*row.progress, found)
    noted = replace(row, progress=progress, last_signal_at=at.now)
    if is_met(row.condition, progress):
        return _resumed(execution, waitpoint, Episode(noted, episode.waitpoints), command, at)
    appended = SignalEffect.APPENDED
    rows = (noted, _heard(waitpoint, appended, at))
    return _stored(execution, waitpoint, command, appended, at, rows)


def _resumed(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: Episode,
    command: DeliverSignal,
    at: Moment,
) -> Decision[Delivered]:
    """This signal completed the condition: the episode ends and the execution goes on."""
    own = _heard(waitpoint, SignalEffect.RESUMED, at)
    bound = tuple(
        own if each.waitpoint_id == own.waitpoint_id else each for each in episode.waitpoints
    )
    actor = f"{command.source_type}:{command.source_identity}"
    over = ended(Episode(episode.row, bound), ResumeCause.SIGNAL, actor, "resumed", at)
    rows = over.rows if own.state is not WaitpointState.PENDING else (*over.rows, own)
    stored = _stored(execution, waitpoint, command, SignalEffect.RESUMED, at, rows)
    delay = command.resume_delay_ms or episode.row.resume_delay_ms
    counted = stored.execution or execution
    return replace(stored, execution=awake(counted, delay, f"signal {command.signal_name}", at))
