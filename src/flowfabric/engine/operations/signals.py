"""Signals, which resume suspended executions; see docs/guides/suspension.md."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, cast

from flowfabric import ids, limits
from flowfabric.api import waits as api
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.performing import answers
from flowfabric.errors import FlowFabricError, InvalidInput, InvalidPayload, PayloadTooLarge
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.wait.episode import OWN_SOURCES
from flowfabric.kernel.wait.schema import payload_problem
from flowfabric.kernel.wait.signal import DeliverSignal, TypeDeclared
from flowfabric.model.checks import (
    check_instant,
    check_integer,
    check_lane,
    check_name,
    check_text,
)
from flowfabric.model.condition_checks import RESERVED_PREFIX
from flowfabric.model.links import PERSON_SOURCE, recipient_of
from flowfabric.model.nesting import JSON, check_nesting
from flowfabric.model.record import replace
from flowfabric.model.suspension import SignalAccepted, SignalDuplicate, Token

COMPARED_INLINE_BYTES: Final = 1024  # a thread costs more than checking a payload this small

# --- deliver -------------------------------------------------------------------------------------


@answers(api.DeliverSignal)
async def deliver_signal(
    machine: Machine, request: api.DeliverSignal
) -> SignalAccepted | SignalDuplicate:
    """Deliver with the waitpoint's token."""
    return await _deliver(machine, delivery(machine, request.signal))


@answers(api.DeliverTrustedSignal)
async def deliver_trusted_signal(
    machine: Machine, request: api.DeliverTrustedSignal
) -> SignalAccepted | SignalDuplicate:
    """Deliver with or without a token."""
    return await _deliver(machine, delivery(machine, request.signal, is_trusted=True))


@answers(api.DeliverSignals)
async def deliver_signals(
    machine: Machine, request: api.DeliverSignals
) -> list[SignalAccepted | SignalDuplicate | FlowFabricError]:
    """Deliver those that pass their check; each of the others gets its own error."""
    if not isinstance(request.signals, tuple | list):
        raise InvalidInput("signals: expected a list of signals", field="signals")
    outcomes: list[SignalAccepted | SignalDuplicate | FlowFabricError | None] = []
    commands = []
    for signal in request.signals:
        try:
            commands.append(delivery(machine, signal))
            outcomes.append(None)
        except FlowFabricError as error:
            outcomes.append(error)
    replies = iter(await _deliver_all(machine, commands))
    return [next(replies) if each is None else each for each in outcomes]


@answers(api.DeliverApprovalSignal)
async def deliver_approval_signal(
    machine: Machine, request: api.DeliverApprovalSignal
) -> SignalAccepted | SignalDuplicate:
    """Deliver in an operator's name."""
    checked = machine.check_id(request.execution_id)
    name = _name(request.signal_name)
    suffix = check_name(request.idempotency_suffix, field="idempotency_suffix")
    if request.lane_id is not None:
        lane = check_lane(request.lane_id)
        stored = (await machine.read(lambda reader: reader.get((checked,)))).get(checked)
        there = getattr(stored, "lane_id", lane)
        if there != lane:
            detail = f"lane_mismatch: args.lane_id={lane} exec_core.lane_id={there}"
            raise InvalidInput(f"lane_id: {detail}", field="lane_id")
    command = DeliverSignal(
        execution_id=checked,
        waitpoint_id=check_name(request.waitpoint_id, field="waitpoint_id"),
        presented=None,
        signal_id=ids.new_secret_id(),
        signal_name=name,
        signal_category="approval",
        source_type="operator"
        if request.source_type is None
        else _source_type(request.source_type),
        source_identity=check_name(request.actor, field="actor"),
        correlation_id="",
        payload=None if request.comment is None else _payload(request.comment, JSON, "comment"),
        payload_encoding=JSON,
        created_at=None,
        idempotency_key=f"approval:{name}:{suffix}",
        dedup_ttl_ms=_ttl(request.signal_dedup_ttl_ms, "signal_dedup_ttl_ms"),
        resume_delay_ms=0,
    )
    return await _deliver(machine, command)


async def _deliver(machine: Machine, command: DeliverSignal) -> SignalAccepted | SignalDuplicate:
    (reply,) = await _deliver_all(machine, (command,))
    if isinstance(reply, FlowFabricError):
        raise reply
    return reply


async def _deliver_all(
    machine: Machine, commands: Sequence[DeliverSignal]
) -> list[SignalAccepted | SignalDuplicate | FlowFabricError]:
    """Deliver; payloads with a declared type are checked in between, while no transaction is open:
    a stranger's payload must not block a store."""
    replies = await machine.batches.run(commands)
    compared: dict[int, DeliverSignal] = {}
    for at, reply in enumerate(replies):
        if isinstance(reply, TypeDeclared):
            command, declared = commands[at], reply.payload_type
            if problem := await problem_of(command.payload, declared):
                replies[at] = problem.to_error()
            else:
                compared[at] = replace(command, fits=declared)
    again = await machine.batches.run(list(compared.values()))
    for at, reply in zip(compared, again, strict=True):
        replies[at] = reply
    return cast("list[SignalAccepted | SignalDuplicate | FlowFabricError]", replies)


async def problem_of(payload: bytes | None, declared: str) -> Refused | None:
    """Check a payload against its type; a long one beside the event loop."""
    if len(payload or b"") <= COMPARED_INLINE_BYTES:
        return payload_problem(payload, declared)
    return await asyncio.to_thread(payload_problem, payload, declared)


# --- checks --------------------------------------------------------------------------------------


def delivery(machine: Machine, signal: object, *, is_trusted: bool = False) -> DeliverSignal:
    """A checked command; every problem names its field."""
    if not isinstance(signal, api.Signal):
        raise InvalidInput("signal: expected a Signal", field="signal")
    token = None if is_trusted and signal.token is None else check_token(signal.token)
    key = None if signal.idempotency_key == "" else signal.idempotency_key
    if key is not None:
        key = check_text(key, field="idempotency_key", max_bytes=limits.IDEMPOTENCY_KEY_BYTES)
    encoding = check_name(signal.payload_encoding, field="payload_encoding")
    created_at = signal.created_at
    if created_at is not None:
        created_at = check_instant(created_at, field="created_at")
    source_type, source_identity = _source(signal, token)
    return DeliverSignal(
        execution_id=machine.check_id(signal.execution_id),
        waitpoint_id=check_name(signal.waitpoint_id, field="waitpoint_id"),
        presented=token,
        signal_id=ids.new_secret_id()
        if signal.signal_id is None
        else check_name(signal.signal_id, field="signal_id"),
        signal_name=_name(signal.signal_name),
        signal_category=_label(signal.signal_category, "signal_category"),
        source_type=source_type,
        source_identity=source_identity,
        correlation_id=_label(signal.correlation_id, "correlation_id"),
        payload=None if signal.payload is None else _payload(signal.payload, encoding),
        payload_encoding=encoding,
        created_at=created_at,
        idempotency_key=key,
        dedup_ttl_ms=_ttl(signal.dedup_ttl_ms),
        resume_delay_ms=check_integer(
            signal.resume_delay_ms,
            field="resume_delay_ms",
            least=0,
            most=limits.DURATION_MS_MAX,
        ),
    )


def check_token(value: object) -> str:
    """The text of a token."""
    token = value.reveal() if isinstance(value, Token) else value
    if not isinstance(token, str) or not 0 < len(token) <= limits.NAME_BYTES:
        raise InvalidInput("token: expected the waitpoint's token", field="token")
    return token


def _name(value: object) -> str:
    name = check_name(value, field="signal_name")
    if name.startswith(RESERVED_PREFIX):
        raise InvalidInput(
            f"signal_name: names beginning with {RESERVED_PREFIX} are reserved",
            field="signal_name",
        )
    return name


def _label(value: object, field: str) -> str:
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES, empty=True)


def _source(signal: api.Signal, token: str | None) -> tuple[str, str]:
    """In whose name: a personal token speaks for its recipient and for no other."""
    kind = _source_type(signal.source_type)
    identity = _label(signal.source_identity, "source_identity")
    recipient = None if token is None else recipient_of(token)
    if recipient is None:
        return kind, identity
    if identity not in ("", recipient):
        detail = "source_identity: this link is personal; leave out the source"
        raise InvalidInput(detail, field="source_identity")
    return PERSON_SOURCE, recipient


def _source_type(value: object) -> str:
    """The holder of a token may not act as an operator or as the engine itself."""
    kind = _label(value, "source_type")
    if kind in OWN_SOURCES:
        raise InvalidInput(f"source_type: {kind} is FlowFabric's own", field="source_type")
    return kind


def _payload(value: object, encoding: str, field: str = "payload") -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidInput(f"{field}: expected bytes, got {type(value).__name__}", field=field)
    data = bytes(value)
    if len(data) > limits.SIGNAL_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"{field}: {len(data)} bytes is over the limit {limits.SIGNAL_PAYLOAD_BYTES}",
            field=field,
            limit=limits.SIGNAL_PAYLOAD_BYTES,
        )
    check_nesting(data, encoding, field=field, error=InvalidPayload)
    return data


def _ttl(value: object, field: str = "dedup_ttl_ms") -> int:
    return check_integer(value, field=field, least=0, most=limits.DURATION_MS_MAX)
