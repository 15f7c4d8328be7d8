"""Deliver: a signal reaches the episode its waitpoint is bound to, and no other."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.errors import (
    InvalidToken,
    NotFound,
    SignalLimitExceeded,
    TargetNotSignalable,
    WaitpointClosed,
)
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.wait.condition import contributes, is_met, keys_of, tokens_of
from flowfabric.kernel.wait.episode import (
    Episode,
    EpisodeDecision,
    awake,
    ended,
    signal_event,
)
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
    SuspensionRow,
    WaitpointRow,
    WaitpointState,
)


class TypeDeclared(Record, frozen=True):
    """The payload must fit this type. Comparing takes time, so nothing is held meanwhile: the
    caller compares, and repeats the command with `fits`. Only an authenticated sender gets here."""

    payload_type: str


class DeliverSignal(
    ExecutionCommand[SignalAccepted | SignalDuplicate | TypeDeclared], frozen=True, kw_only=True
):
    """Somebody with the right to it signals a waitpoint."""

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
    """Nobody without the right learns anything, not even whether the waitpoint exists."""
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
) -> EpisodeDecision:
    """After authentication: the key, the state, the cap, the payload's type, the condition."""
    if execution is None or waitpoint is None:
        return EpisodeDecision(Refused(InvalidToken))
    if seen is not None and command.dedup_ttl_ms > 0 and seen.due_at > at.now:
        return EpisodeDecision(SignalDuplicate(seen.signal_id, seen.effect))
    if refusal := _refuse(execution, waitpoint, episode, at):
        return EpisodeDecision(refusal)
    most = execution.policy.max_signals_per_execution
    if 0 < most <= execution.signal_count:
        detail = f"{execution.signal_count} signals are the limit {most}"
        return EpisodeDecision(Refused(SignalLimitExceeded, detail))
    if execution.signal_bytes + len(command.payload or b"") > limits.SIGNAL_BYTES_TOTAL:
        detail = f"payload: all payloads together are over {limits.SIGNAL_BYTES_TOTAL} bytes"
        return EpisodeDecision(Refused(SignalLimitExceeded, detail, {"field": "payload"}))
    if waitpoint.payload_type is not None and waitpoint.payload_type != command.fits:
        return EpisodeDecision(TypeDeclared(waitpoint.payload_type))
    if waitpoint.state is WaitpointState.PENDING or episode is None:
        return _stored(execution, waitpoint, command, SignalEffect.BUFFERED, at)
    return _evaluated(execution, waitpoint, episode, command, at)


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


def _remembered(command: DeliverSignal, effect: SignalEffect, at: Moment) -> SignalKeyRow | None:
    if command.idempotency_key is None or command.dedup_ttl_ms <= 0:
        return None
    return SignalKeyRow(
        command.waitpoint_id,
        command.idempotency_key,
        command.signal_id,
        effect,
        at.now + command.dedup_ttl_ms,
    )


_MATCHED = (SignalEffect.RESUMED, SignalEffect.APPENDED, SignalEffect.DUPLICATE)


def _stored(
    execution: Execution,
    waitpoint: WaitpointRow,
    command: DeliverSignal,
    effect: SignalEffect,
    at: Moment,
    *,
    row: SuspensionRow | None = None,
) -> EpisodeDecision:
    counted = replace(
        waitpoint,
        signal_count=waitpoint.signal_count + 1,
        matched_signal_count=waitpoint.matched_signal_count + (effect in _MATCHED),
        last_signal_at=at.now,
    )
    after = replace(
        execution,
        signal_count=execution.signal_count + 1,
        signal_bytes=execution.signal_bytes + len(command.payload or b""),
        last_mutation_at=at.now,
    )
    signal = _signal(waitpoint, command, effect, at)
    return EpisodeDecision(
        SignalAccepted(command.signal_id, effect),
        after,
        events=(signal_event(execution, signal),),
        episode=row,
        waitpoints=(counted,),
        signal=signal,
        signal_key=_remembered(command, effect, at),
    )


def _evaluated(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: Episode,
    command: DeliverSignal,
    at: Moment,
) -> EpisodeDecision:
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
    if not is_met(row.condition, progress):
        return _stored(execution, waitpoint, command, SignalEffect.APPENDED, at, row=noted)
    return _resumed(execution, waitpoint, Episode(noted, episode.waitpoints), command, at)


def _resumed(
    execution: Execution,
    waitpoint: WaitpointRow,
    episode: Episode,
    command: DeliverSignal,
    at: Moment,
) -> EpisodeDecision:
    """This signal completed the condition: the episode ends and the execution goes on."""
    stored = _stored(execution, waitpoint, command, SignalEffect.RESUMED, at)
    delay = command.resume_delay_ms or episode.row.resume_delay_ms
    counted = stored.execution or execution
    after = awake(counted, delay, f"signal {command.signal_name}", at)
    own = stored.waitpoints[0]
    others = tuple(
        own if each.waitpoint_id == own.waitpoint_id else each for each in episode.waitpoints
    )
    actor = f"{command.source_type}:{command.source_identity}"
    row, waitpoints = ended(Episode(episode.row, others), ResumeCause.SIGNAL, actor, "resumed", at)
    return replace(stored, execution=after, episode=row, waitpoints=waitpoints)
