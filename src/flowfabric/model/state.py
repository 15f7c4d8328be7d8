"""The state vector: six independent dimensions and one derived label.

Only legal vectors exist. Each one is built here, once, and looked up from then on, so a transition
cannot invent a combination and a corrupted row is recognised when it is read.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from itertools import product
from typing import Final

from flowfabric.errors import Corruption, InvalidBlockingReason
from flowfabric.model.record import Record


class LifecyclePhase(StrEnum):
    """The phase of an execution's life."""

    RUNNABLE = "runnable"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    TERMINAL = "terminal"


class OwnershipState(StrEnum):
    """The state of its lease."""

    UNOWNED = "unowned"
    LEASED = "leased"
    LEASE_EXPIRED_RECLAIMABLE = "lease_expired_reclaimable"
    LEASE_REVOKED = "lease_revoked"


class EligibilityState(StrEnum):
    """Whether a worker may claim it."""

    ELIGIBLE_NOW = "eligible_now"
    NOT_ELIGIBLE_UNTIL_TIME = "not_eligible_until_time"
    BLOCKED_BY_DEPENDENCIES = "blocked_by_dependencies"
    BLOCKED_BY_BUDGET = "blocked_by_budget"
    BLOCKED_BY_QUOTA = "blocked_by_quota"
    BLOCKED_BY_ROUTE = "blocked_by_route"
    BLOCKED_BY_LANE_STATE = "blocked_by_lane_state"
    BLOCKED_BY_OPERATOR = "blocked_by_operator"
    BLOCKED_BY_TURN = "blocked_by_turn"
    NOT_APPLICABLE = "not_applicable"


class BlockingReason(StrEnum):
    """The reason it waits."""

    NONE = "none"
    WAITING_FOR_WORKER = "waiting_for_worker"
    WAITING_FOR_RETRY_BACKOFF = "waiting_for_retry_backoff"
    WAITING_FOR_RESUME_DELAY = "waiting_for_resume_delay"
    WAITING_FOR_DELAY = "waiting_for_delay"
    WAITING_FOR_SIGNAL = "waiting_for_signal"
    WAITING_FOR_APPROVAL = "waiting_for_approval"
    WAITING_FOR_CALLBACK = "waiting_for_callback"
    WAITING_FOR_TOOL_RESULT = "waiting_for_tool_result"
    WAITING_FOR_CHILDREN = "waiting_for_children"
    WAITING_FOR_BUDGET = "waiting_for_budget"
    WAITING_FOR_QUOTA = "waiting_for_quota"
    WAITING_FOR_CAPABLE_WORKER = "waiting_for_capable_worker"
    PAUSED_BY_OPERATOR = "paused_by_operator"
    PAUSED_BY_POLICY = "paused_by_policy"
    PAUSED_BY_FLOW_CANCEL = "paused_by_flow_cancel"
    WAITING_FOR_TURN = "waiting_for_turn"


class TerminalOutcome(StrEnum):
    """How it ended."""

    NONE = "none"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"


class AttemptState(StrEnum):
    """The state of its current or next attempt."""

    NONE = "none"
    PENDING_FIRST_ATTEMPT = "pending_first_attempt"
    RUNNING_ATTEMPT = "running_attempt"
    ATTEMPT_INTERRUPTED = "attempt_interrupted"
    PENDING_RETRY_ATTEMPT = "pending_retry_attempt"
    PENDING_REPLAY_ATTEMPT = "pending_replay_attempt"
    ATTEMPT_TERMINAL = "attempt_terminal"


class PublicState(StrEnum):
    """The one word shown to people."""

    WAITING = "waiting"
    DELAYED = "delayed"
    RATE_LIMITED = "rate_limited"
    WAITING_CHILDREN = "waiting_children"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    SKIPPED = "skipped"

    @property
    def is_terminal(self) -> bool:
        """Whether it is terminal."""
        return self in TERMINAL_STATES


PUBLIC_OF_OUTCOME: Final = {
    TerminalOutcome.SUCCESS: PublicState.COMPLETED,
    TerminalOutcome.FAILED: PublicState.FAILED,
    TerminalOutcome.CANCELLED: PublicState.CANCELLED,
    TerminalOutcome.EXPIRED: PublicState.EXPIRED,
    TerminalOutcome.SKIPPED: PublicState.SKIPPED,
}
TERMINAL_STATES: Final = frozenset(PUBLIC_OF_OUTCOME.values())

_PUBLIC_OF_ELIGIBILITY: Final = {
    EligibilityState.ELIGIBLE_NOW: PublicState.WAITING,
    EligibilityState.NOT_ELIGIBLE_UNTIL_TIME: PublicState.DELAYED,
    EligibilityState.BLOCKED_BY_DEPENDENCIES: PublicState.WAITING_CHILDREN,
    EligibilityState.BLOCKED_BY_BUDGET: PublicState.RATE_LIMITED,
    EligibilityState.BLOCKED_BY_QUOTA: PublicState.RATE_LIMITED,
    EligibilityState.BLOCKED_BY_ROUTE: PublicState.WAITING,
    EligibilityState.BLOCKED_BY_LANE_STATE: PublicState.WAITING,
    EligibilityState.BLOCKED_BY_OPERATOR: PublicState.WAITING,
    EligibilityState.BLOCKED_BY_TURN: PublicState.WAITING,
}

# A runnable execution that may not be claimed: the reason determines the eligibility.
ELIGIBILITY_OF_BLOCK: Final = {
    BlockingReason.WAITING_FOR_CHILDREN: EligibilityState.BLOCKED_BY_DEPENDENCIES,
    BlockingReason.WAITING_FOR_BUDGET: EligibilityState.BLOCKED_BY_BUDGET,
    BlockingReason.WAITING_FOR_QUOTA: EligibilityState.BLOCKED_BY_QUOTA,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER: EligibilityState.BLOCKED_BY_ROUTE,
    BlockingReason.PAUSED_BY_OPERATOR: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY: EligibilityState.BLOCKED_BY_LANE_STATE,
    BlockingReason.PAUSED_BY_FLOW_CANCEL: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.WAITING_FOR_TURN: EligibilityState.BLOCKED_BY_TURN,
}
# Reasons that `block_execution_for_admission` accepts; these belong to flows and to lines.
ADMISSION_BLOCK_REASONS: Final = frozenset(ELIGIBILITY_OF_BLOCK) - {
    BlockingReason.WAITING_FOR_CHILDREN,
    BlockingReason.PAUSED_BY_FLOW_CANCEL,
    BlockingReason.WAITING_FOR_TURN,
}
DELAY_REASONS: Final = (
    BlockingReason.WAITING_FOR_DELAY,
    BlockingReason.WAITING_FOR_RETRY_BACKOFF,
    BlockingReason.WAITING_FOR_RESUME_DELAY,
)
SUSPENSION_REASONS: Final = (
    BlockingReason.WAITING_FOR_SIGNAL,
    BlockingReason.WAITING_FOR_APPROVAL,
    BlockingReason.WAITING_FOR_CALLBACK,
    BlockingReason.WAITING_FOR_TOOL_RESULT,
    BlockingReason.WAITING_FOR_BUDGET,
    BlockingReason.PAUSED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY,
)
# The attempt states of work that waits for a claim.
PENDING_ATTEMPTS: Final = (
    AttemptState.PENDING_FIRST_ATTEMPT,
    AttemptState.PENDING_RETRY_ATTEMPT,
    AttemptState.PENDING_REPLAY_ATTEMPT,
    AttemptState.ATTEMPT_INTERRUPTED,
)


class StateVector(Record, frozen=True, cache_hash=True):
    """One legal combination. Get one from `waiting`, `delayed`, `blocked`, … never build one.

    Each row that is written looks up its number, so a vector keeps its hash.
    """

    lifecycle_phase: LifecyclePhase
    ownership_state: OwnershipState
    eligibility_state: EligibilityState
    blocking_reason: BlockingReason
    terminal_outcome: TerminalOutcome
    attempt_state: AttemptState

    def __post_init__(self) -> None:
        if problem := _illegal(self):
            raise Corruption(f"state vector: {problem}", field="state")

    @property
    def public_state(self) -> PublicState:
        """The derived label."""
        return derive_public_state(self)

    @property
    def is_terminal(self) -> bool:
        """Whether only a replay can follow."""
        return self.lifecycle_phase is LifecyclePhase.TERMINAL


@cache  # of a few dozen vectors
def derive_public_state(vector: StateVector) -> PublicState:
    """The only derivation of `public_state`."""
    match vector.lifecycle_phase:
        case LifecyclePhase.TERMINAL:
            return PUBLIC_OF_OUTCOME[vector.terminal_outcome]
        case LifecyclePhase.SUSPENDED:
            return PublicState.SUSPENDED
        case LifecyclePhase.ACTIVE:
            return PublicState.ACTIVE
        case LifecyclePhase.RUNNABLE:
            return _PUBLIC_OF_ELIGIBILITY[vector.eligibility_state]


def _illegal(vector: StateVector) -> str | None:
    """Why a combination is illegal, or None."""
    phase, eligibility = vector.lifecycle_phase, vector.eligibility_state
    if (phase is LifecyclePhase.TERMINAL) != (vector.terminal_outcome is not TerminalOutcome.NONE):
        return "an outcome exactly when terminal"
    if (phase is LifecyclePhase.RUNNABLE) == (eligibility is EligibilityState.NOT_APPLICABLE):
        return "an eligibility exactly when runnable"
    if (phase is LifecyclePhase.ACTIVE) == (vector.ownership_state is OwnershipState.UNOWNED):
        return "an owner exactly when active"
    match phase:
        case LifecyclePhase.RUNNABLE:
            return _illegal_runnable(vector)
        case LifecyclePhase.ACTIVE:
            return _illegal_active(vector)
        case LifecyclePhase.SUSPENDED:
            return _illegal_suspended(vector)
        case LifecyclePhase.TERMINAL:
            return _illegal_terminal(vector)


def _illegal_suspended(vector: StateVector) -> str | None:
    if vector.blocking_reason not in SUSPENSION_REASONS:
        return "a suspended execution waits for something"
    if vector.attempt_state is not AttemptState.ATTEMPT_INTERRUPTED:
        return "suspension interrupts an attempt"
    return None


def _illegal_terminal(vector: StateVector) -> str | None:
    if vector.blocking_reason is not BlockingReason.NONE:
        return "a finished execution waits for nothing"
    if vector.attempt_state not in (AttemptState.ATTEMPT_TERMINAL, AttemptState.NONE):
        return "a finished execution has no attempt to come"
    return None


def _illegal_runnable(vector: StateVector) -> str | None:
    if vector.attempt_state not in PENDING_ATTEMPTS:
        return "a runnable execution has an attempt to come"
    match vector.eligibility_state:
        case EligibilityState.ELIGIBLE_NOW:
            fits = vector.blocking_reason is BlockingReason.WAITING_FOR_WORKER
        case EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
            fits = vector.blocking_reason in DELAY_REASONS
        case blocked:
            fits = ELIGIBILITY_OF_BLOCK.get(vector.blocking_reason) is blocked
    return None if fits else "the blocking reason explains the eligibility"


def _illegal_active(vector: StateVector) -> str | None:
    leased = vector.ownership_state is OwnershipState.LEASED
    if leased != (vector.attempt_state is AttemptState.RUNNING_ATTEMPT):
        return "an attempt runs exactly when leased"
    if not leased and vector.attempt_state is not AttemptState.ATTEMPT_INTERRUPTED:
        return "a lost lease interrupts the attempt"
    expected = BlockingReason.NONE if leased else BlockingReason.WAITING_FOR_WORKER
    return None if vector.blocking_reason is expected else "the blocking reason fits the ownership"


def _runnable(
    eligibility: EligibilityState, reason: BlockingReason, attempt: AttemptState
) -> StateVector:
    return StateVector(
        LifecyclePhase.RUNNABLE,
        OwnershipState.UNOWNED,
        eligibility,
        reason,
        TerminalOutcome.NONE,
        attempt,
    )


def _active(ownership: OwnershipState) -> StateVector:
    leased = ownership is OwnershipState.LEASED
    return StateVector(
        LifecyclePhase.ACTIVE,
        ownership,
        EligibilityState.NOT_APPLICABLE,
        BlockingReason.NONE if leased else BlockingReason.WAITING_FOR_WORKER,
        TerminalOutcome.NONE,
        AttemptState.RUNNING_ATTEMPT if leased else AttemptState.ATTEMPT_INTERRUPTED,
    )


def _ended(outcome: TerminalOutcome, attempt: AttemptState) -> StateVector:
    return StateVector(
        LifecyclePhase.TERMINAL,
        OwnershipState.UNOWNED,
        EligibilityState.NOT_APPLICABLE,
        BlockingReason.NONE,
        outcome,
        attempt,
    )


LEASED: Final = _active(OwnershipState.LEASED)
LEASE_EXPIRED: Final = _active(OwnershipState.LEASE_EXPIRED_RECLAIMABLE)
LEASE_REVOKED: Final = _active(OwnershipState.LEASE_REVOKED)

_WAITING: Final = {
    attempt: _runnable(EligibilityState.ELIGIBLE_NOW, BlockingReason.WAITING_FOR_WORKER, attempt)
    for attempt in PENDING_ATTEMPTS
}
_DELAYED: Final = {
    (reason, attempt): _runnable(EligibilityState.NOT_ELIGIBLE_UNTIL_TIME, reason, attempt)
    for reason, attempt in product(DELAY_REASONS, PENDING_ATTEMPTS)
}
_BLOCKED: Final = {
    (reason, attempt): _runnable(eligibility, reason, attempt)
    for (reason, eligibility), attempt in product(ELIGIBILITY_OF_BLOCK.items(), PENDING_ATTEMPTS)
}
_IN_LINE: Final = [_BLOCKED[BlockingReason.WAITING_FOR_TURN, each] for each in PENDING_ATTEMPTS]
_SUSPENDED: Final = {
    reason: StateVector(
        LifecyclePhase.SUSPENDED,
        OwnershipState.UNOWNED,
        EligibilityState.NOT_APPLICABLE,
        reason,
        TerminalOutcome.NONE,
        AttemptState.ATTEMPT_INTERRUPTED,
    )
    for reason in SUSPENSION_REASONS
}
_TERMINAL: Final = {
    (outcome, attempted): _ended(
        outcome, AttemptState.ATTEMPT_TERMINAL if attempted else AttemptState.NONE
    )
    for outcome, attempted in product(PUBLIC_OF_OUTCOME, (True, False))
}

ALL_VECTORS: Final = (
    LEASED,
    LEASE_EXPIRED,
    LEASE_REVOKED,
    *_WAITING.values(),
    *_DELAYED.values(),
    *_BLOCKED.values(),
    *_SUSPENDED.values(),
    *_TERMINAL.values(),
)


def waiting(attempt: AttemptState) -> StateVector:
    """Ready for a worker."""
    return _WAITING[attempt]


def delayed(reason: BlockingReason, attempt: AttemptState) -> StateVector:
    """Ready at a later instant."""
    return _DELAYED[reason, attempt]


def blocked(reason: BlockingReason, attempt: AttemptState) -> StateVector:
    """Not claimable until the reason is gone."""
    try:
        return _BLOCKED[reason, attempt]
    except KeyError:
        raise InvalidBlockingReason(f"reason: {reason}", field="reason") from None


def suspended(reason: BlockingReason) -> StateVector:
    """Suspended on waitpoints."""
    return _SUSPENDED[reason]


def terminal(outcome: TerminalOutcome, *, attempted: bool) -> StateVector:
    """Finished; `attempted` says whether any attempt ever existed."""
    return _TERMINAL[outcome, attempted]


# How a vector is stored: one small number that names it, so the hot row stays narrow and nothing
# illegal can be written. The words stand once in the table ff_state, which a test compares with
# this numbering. Numbers are for ever; groups are contiguous so that indexes can select ranges.
_WAITING_FROM: Final = 1
_DELAYED_FROM: Final = 10
_TURN_FROM: Final = 22  # the numbers of blocks were used up
_BLOCKED_FROM: Final = 30
_ACTIVE_FROM: Final = 60
_SUSPENDED_FROM: Final = 70
_TERMINAL_FROM: Final = 80

VECTOR_OF_ID: Final = {
    first + offset: vector
    for first, group in (
        (_WAITING_FROM, _WAITING.values()),
        (_DELAYED_FROM, _DELAYED.values()),
        (_TURN_FROM, _IN_LINE),
        (_BLOCKED_FROM, [each for each in _BLOCKED.values() if each not in _IN_LINE]),
        (_ACTIVE_FROM, (LEASED, LEASE_EXPIRED, LEASE_REVOKED)),
        (_SUSPENDED_FROM, _SUSPENDED.values()),
        (_TERMINAL_FROM, _TERMINAL.values()),
    )
    for offset, vector in enumerate(group)
}
ID_OF_VECTOR: Final = {vector: number for number, vector in VECTOR_OF_ID.items()}
IDS_OF_PUBLIC_STATE: Final = {
    state.value: tuple(
        number for number, vector in VECTOR_OF_ID.items() if vector.public_state is state
    )
    for state in PublicState
}
PUBLIC_STATE_OF_ID: Final = {
    number: vector.public_state.value for number, vector in VECTOR_OF_ID.items()
}
