"""Suspension: an execution waits outside any worker until its condition is met.

An episode is one suspension from beginning to end. It is kept as history.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from flowfabric.model.columns import Counter, Instant, Text
from flowfabric.model.record import Record
from flowfabric.model.results import WaitLine
from flowfabric.model.state import BlockingReason
from flowfabric.model.words import TimeoutBehavior

# --- conditions --------------------------------------------------------------------------------


class CountKind(StrEnum):
    """The unit that a count counts: each one once."""

    DISTINCT_WAITPOINTS = "distinct_waitpoints"
    DISTINCT_SIGNALS = "distinct_signals"
    DISTINCT_SOURCES = "distinct_sources"


class Single(Record, frozen=True, tag="single", tag_field="kind"):
    """A signal on one waitpoint; no name means any."""

    waitpoint_key: str
    signal_name: str | None = None


class AllOf(Record, frozen=True, tag="all_of", tag_field="kind"):
    """Every member."""

    members: tuple[ResumeCondition, ...]


class AnyOf(Record, frozen=True, tag="any_of", tag_field="kind"):
    """One member is enough."""

    members: tuple[ResumeCondition, ...]


class Count(Record, frozen=True, tag="count", tag_field="kind"):
    """n distinct waitpoints, signals or sources over some waitpoints."""

    n: int
    count_kind: CountKind
    waitpoints: tuple[str, ...]
    signal_name: str | None = None


class OperatorOnly(Record, frozen=True, tag="operator_only", tag_field="kind"):
    """No signal ends it; only an operator does."""


class TimeoutOnly(Record, frozen=True, tag="timeout_only", tag_field="kind"):
    """No signal ends it; only its timeout does."""


ResumeCondition = Single | AllOf | AnyOf | Count | OperatorOnly | TimeoutOnly


# --- words -------------------------------------------------------------------------------------


class ReasonCode(StrEnum):
    """The reason an execution gives for suspending."""

    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    WAITING_FOR_TOOL_RESULT = "waiting_for_tool_result"
    WAITING_FOR_OPERATOR_REVIEW = "waiting_for_operator_review"
    PAUSED_BY_POLICY = "paused_by_policy"
    PAUSED_BY_BUDGET = "paused_by_budget"
    STEP_BOUNDARY = "step_boundary"
    MANUAL_PAUSE = "manual_pause"

    @property
    def blocking_reason(self) -> BlockingReason:
        """The public reason."""
        return _BLOCKING.get(self, BlockingReason.WAITING_FOR_SIGNAL)


_BLOCKING = {
    ReasonCode.WAITING_FOR_APPROVAL: BlockingReason.WAITING_FOR_APPROVAL,
    ReasonCode.WAITING_FOR_CALLBACK: BlockingReason.WAITING_FOR_CALLBACK,
    ReasonCode.WAITING_FOR_TOOL_RESULT: BlockingReason.WAITING_FOR_TOOL_RESULT,
    ReasonCode.WAITING_FOR_OPERATOR_REVIEW: BlockingReason.PAUSED_BY_OPERATOR,
    ReasonCode.MANUAL_PAUSE: BlockingReason.PAUSED_BY_OPERATOR,
    ReasonCode.PAUSED_BY_POLICY: BlockingReason.PAUSED_BY_POLICY,
    ReasonCode.PAUSED_BY_BUDGET: BlockingReason.WAITING_FOR_BUDGET,
}


class RequestedBy(StrEnum):
    """The origin of the suspension."""

    WORKER = "worker"
    OPERATOR = "operator"
    POLICY = "policy"
    SYSTEM_TIMEOUT_POLICY = "system_timeout_policy"


class ResumeCause(StrEnum):
    """The cause of an episode's end."""

    SIGNAL = "signal"
    OPERATOR = "operator"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class WaitpointState(StrEnum):
    """pending → active → closed, or pending → closed; never back."""

    PENDING = "pending"
    ACTIVE = "active"
    CLOSED = "closed"


class SignalEffect(StrEnum):
    """The effect of a delivered signal."""

    RESUMED = "resume_condition_satisfied"
    APPENDED = "appended_to_waitpoint"
    DUPLICATE = "appended_to_waitpoint_duplicate"
    MATCHER_FAILED = "signal_ignored_matcher_failed"
    NOT_IN_CONDITION = "signal_ignored_not_in_condition"
    BUFFERED = "buffered_for_pending_waitpoint"


# --- rows --------------------------------------------------------------------------------------


class Contribution(Record, frozen=True):
    """The part of a signal that conditions read."""

    waitpoint_key: str
    signal_id: str
    signal_name: str
    source_type: str = ""
    source_identity: str = ""


class SuspensionRow(Record, frozen=True):
    """One episode; open until it has an end."""

    execution_id: str
    suspension_id: str
    attempt_index: int
    reason_code: ReasonCode
    requested_by: RequestedBy
    condition: ResumeCondition
    resume_delay_ms: int
    created_at: Instant
    timeout_at: Instant | None
    timeout_behavior: TimeoutBehavior
    continuation_metadata_pointer: str | None
    progress: tuple[Contribution, ...] = ()  # the signals that count, in order of arrival
    last_signal_at: Instant | None = None
    closed_at: Instant | None = None
    close_reason: str | None = None
    cause: ResumeCause | None = None
    actor: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.closed_at is None

    @property
    def is_held_by_policy(self) -> bool:
        """Whether a worker held it, because the code did not fit the journal, and said why."""
        return (
            self.reason_code is ReasonCode.PAUSED_BY_POLICY
            and self.continuation_metadata_pointer is not None
            and isinstance(self.condition, OperatorOnly)
        )


class SuspensionInfo(SuspensionRow, frozen=True):
    """An episode as it is shown."""

    waited_for: str = ""  # its condition in words


class WaitpointRow(Record, frozen=True):
    """One address for signals, bound to one episode for good."""

    waitpoint_id: str
    execution_id: str
    attempt_index: int
    suspension_id: str | None  # None while pending
    waitpoint_key: str
    state: WaitpointState
    token_kid: str
    created_at: Instant
    activated_at: Instant | None
    closed_at: Instant | None
    close_reason: str | None
    expires_at: Instant | None
    payload_type: Annotated[str | None, Text.JSON]  # a JSON schema for signals; None: any payload
    signal_count: int = 0
    matched_signal_count: int = 0
    last_signal_at: Instant | None = None
    due_at: Instant | None = None  # when a pending one expires
    is_lasting: Counter = 0  # 1: recorded in the journal, so that it outlives its attempt


class SignalRow(Record, frozen=True):
    """One accepted signal, in the order of its waitpoint."""

    waitpoint_id: str
    sequence: int
    execution_id: str
    signal_id: str
    signal_name: str
    signal_category: str
    source_type: str
    source_identity: str
    correlation_id: str
    payload: bytes | None
    payload_encoding: str
    created_at: Instant
    accepted_at: Instant
    effect: SignalEffect


class SignalKeyRow(Record, frozen=True):
    """An idempotency key of a waitpoint, with the reply to its first delivery."""

    waitpoint_id: str
    idempotency_key: str
    signal_id: str
    effect: SignalEffect
    due_at: Instant  # when the row expires


class SuspendKeyRow(Record, frozen=True):
    """An idempotency key of a suspend call, and the episode it made."""

    execution_id: str
    idempotency_key: str
    attempt_index: int
    lease_epoch: int
    digest: str
    suspension_id: str
    due_at: Instant
    lease_id: str | None = None  # None: written before this column existed
    attempt_id: str | None = None
    is_met: int = 0  # 1: early signals met the condition, and the lease stayed

    def __repr__(self) -> str:
        return f"SuspendKeyRow({self.execution_id}, {self.idempotency_key!r})"


class SecretRow(Record, frozen=True):
    """A signing key. One is current; a retired one verifies until it expires."""

    kid: str
    secret_hex: Annotated[str, Text.HEX]
    created_at: Instant  # or made current again
    is_current: int
    due_at: Instant | None  # None while current
    is_automatic: int = 0  # 1: made at the first start, because none was configured

    def __repr__(self) -> str:
        return f"SecretRow(kid={self.kid!r}, is_current={self.is_current}, due_at={self.due_at})"


# --- answers -----------------------------------------------------------------------------------


class Token:
    """A bearer credential for one waitpoint; shown in text form only on purpose."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The credential itself. Hand it only to the party that is to signal."""
        return self._text

    def __repr__(self) -> str:
        kid, colon, _ = self._text.partition(":")
        kid = kid if colon else ""  # then none of it is known to be no secret
        return f"Token({kid}{colon}<REDACTED:len={len(self._text)}>)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Token) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


class WaitpointDetails(Record, frozen=True):
    """The address for signals and its token."""

    waitpoint_id: str
    waitpoint_key: str
    token: Token


class ResumeSignal(Record, frozen=True):
    """A signal as a resumed handler sees it."""

    signal_id: str
    signal_name: str
    signal_category: str
    source_type: str
    source_identity: str
    correlation_id: str
    accepted_at: int
    waitpoint_key: str
    payload: bytes | None
    payload_encoding: str


class Suspended(Record, frozen=True, tag=True):
    """The lease is released; the old handle is dead."""

    suspension_id: str
    waitpoints: tuple[WaitpointDetails, ...]


class AlreadyMet(Record, frozen=True, tag=True):
    """Early signals satisfied the condition: the lease stays, the work goes on."""

    suspension_id: str
    waitpoints: tuple[WaitpointDetails, ...]
    signals: tuple[ResumeSignal, ...]


class SignalAccepted(Record, frozen=True, tag=True):
    """Stored; `effect` says what it did."""

    signal_id: str
    effect: SignalEffect


class SignalDuplicate(Record, frozen=True, tag=True):
    """The same key was delivered before; this is its effect then."""

    existing_signal_id: str
    effect: SignalEffect


class Resumed(Record, frozen=True):
    """The execution continues."""

    public_state: str


class WaitpointInfo(Record, frozen=True):
    """A waitpoint as listings show it: no token, only its fingerprint."""

    waitpoint_id: str
    waitpoint_key: str
    state: WaitpointState
    execution_id: str
    required_signal_names: tuple[str, ...]
    created_at: int
    activated_at: int | None
    expires_at: int | None
    token_kid: str
    token_fingerprint: str


class WaitpointShown(Record, frozen=True):
    """A waitpoint as the holder of its token sees it. `source`: in whose name the token signals;
    `decided`: the name of the first signal that it has sent already; `cause`: what ended the wait,
    if it has ended."""

    waitpoint_key: str
    state: WaitpointState
    execution_kind: str
    waits_for: str
    signal_names: tuple[str, ...]  # those that its wait asks for by name
    payload_type: str | None
    timeout_at: int | None
    source: str
    decided: str | None = None
    lines: tuple[WaitLine, ...] = ()
    at_timeout: TimeoutBehavior | None = None
    cause: ResumeCause | None = None
    ended_at: int | None = None


class SuspendedInfo(Record, frozen=True):
    """One suspended execution."""

    execution_id: str
    suspension_id: str
    suspended_at: int
    reason: ReasonCode
    timeout_at: int | None


class ResumeInfo(Record, frozen=True):
    """What ended the wait of a resumed attempt, and the signals that counted until then."""

    cause: ResumeCause
    actor: str
    signals: tuple[ResumeSignal, ...]
    continuation_metadata_pointer: str | None
    ended_at: int = 0


class KeyInfo(Record, frozen=True):
    """A signing key without its secret."""

    kid: str
    is_current: bool
    created_at: int
    expires_at: int | None
