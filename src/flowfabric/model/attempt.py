"""Attempts. The live one is part of its execution; an ended one is a line of history."""

from __future__ import annotations

from enum import StrEnum

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record


class AttemptType(StrEnum):
    """Why the attempt was started."""

    INITIAL = "initial"
    RETRY = "retry"
    RECLAIM = "reclaim"
    REPLAY = "replay"
    CONTINUED = "continued"  # the handler began another chapter


class AttemptOutcome(StrEnum):
    """How an attempt ended; `started` and `suspended` describe the one that has not."""

    STARTED = "started"
    SUSPENDED = "suspended"
    ENDED_SUCCESS = "ended_success"
    ENDED_FAILURE = "ended_failure"
    ENDED_CANCELLED = "ended_cancelled"
    ENDED_CONTINUED = "ended_continued"
    INTERRUPTED_RECLAIMED = "interrupted_reclaimed"


class FailureClass(StrEnum):
    """What kind of failure it was: it decides, with the policy, whether to try again."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    INFRA_CRASH = "infra_crash"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class Attempt(Record, frozen=True):
    """One ended attempt, written once when it ends. The result of a success is kept here."""

    execution_id: str
    attempt_index: Counter
    attempt_id: str
    attempt_type: AttemptType
    outcome: AttemptOutcome
    lease_epoch: int
    worker_id: str | None
    worker_instance_id: str | None
    started_at: Instant
    ended_at: Instant
    failure_reason: str | None = None
    failure_category: str | None = None
    result: bytes | None = None
    result_encoding: str | None = None
