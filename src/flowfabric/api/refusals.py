"""Errors that several operations have in common, so that each request names its own only once."""

from __future__ import annotations

from typing import Final

from flowfabric.errors import (
    AlreadySuspended,
    BudgetScopeMismatch,
    CycleDetected,
    DependencyAlreadyExists,
    DependencyGroupDecided,
    ExecutionNotActive,
    ExecutionNotInFlow,
    FenceRequired,
    FlowAlreadyTerminal,
    HandleFromOtherBackend,
    IdempotencyConflict,
    InvalidCapabilities,
    InvalidPayload,
    InvalidTagKey,
    InvalidToken,
    InvalidWaitpointKey,
    JournalFull,
    KeyringEmpty,
    LaneClosed,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    PartialFence,
    PatchDepthExceeded,
    PayloadTooLarge,
    PendingWaitpointExpired,
    RetentionLimitExceeded,
    SelfReferencingEdge,
    SignalLimitExceeded,
    StaleLease,
    StaleSummaryVersion,
    SuspendConflict,
    TargetNotSignalable,
    UniqueConflict,
    WaitpointAlreadyExists,
    WaitpointClosed,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
)

# Only the live owner of an execution may do this.
OWNED: Final = (NotFound, ExecutionNotActive, StaleLease, LeaseExpired, LeaseRevoked)
BY_HANDLE: Final = (*OWNED, HandleFromOtherBackend)
BY_FENCE: Final = (*OWNED, FenceRequired, PartialFence)

# Frames for the stream of an attempt, among them changes of its summary.
FRAMED: Final = (RetentionLimitExceeded, PatchDepthExceeded, StaleSummaryVersion)

# Lines for the log of an attempt.
LOGGED: Final = (RetentionLimitExceeded,)

# Entries for the journal of an execution.
JOURNALED: Final = (JournalFull, PayloadTooLarge)

# New work, with its route, its tags, its payload and its limits; which may also be NotFound.
NEW_WORK: Final = (
    BudgetScopeMismatch,
    IdempotencyConflict,
    InvalidCapabilities,
    InvalidTagKey,
    LaneClosed,
    PayloadTooLarge,
    UniqueConflict,
)

# A graph that may still grow.
OPEN_FLOW: Final = (NotFound, FlowAlreadyTerminal)
NEW_EDGE: Final = (
    *OPEN_FLOW,
    ExecutionNotInFlow,
    SelfReferencingEdge,
    CycleDetected,
    DependencyAlreadyExists,
    DependencyGroupDecided,
)

# The beginning of a wait, and what ends it.
WAITING: Final = (
    AlreadySuspended,
    SuspendConflict,
    KeyringEmpty,
    InvalidWaitpointKey,
    WaitpointAlreadyExists,
    WaitpointNotPending,
    WaitpointOfOtherAttempt,
    PendingWaitpointExpired,
)
SIGNALLED: Final = (
    InvalidToken,
    InvalidPayload,
    PayloadTooLarge,
    SignalLimitExceeded,
    TargetNotSignalable,
    WaitpointClosed,
)
