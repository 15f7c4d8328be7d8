"""What is published: every transition appends its events in its own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from flowfabric.model.record import Record
from flowfabric.model.state import TerminalOutcome


class LeaseEventType(StrEnum):
    """What happened to ownership. Renewals change no owner and write no event."""

    ACQUIRED = "acquired"
    EXPIRED = "expired"
    RECLAIMED = "reclaimed"
    REVOKED = "revoked"
    RELEASED = "released"


class OperatorEventType(StrEnum):
    """What an operator did: the audit trail."""

    PRIORITY_CHANGED = "priority_changed"
    REPLAYED = "replayed"
    CANCELLED = "cancelled"
    LEASE_REVOKED = "lease_revoked"
    HELD = "held"
    RELEASED = "released"
    BLOCKED = "blocked"
    UNBLOCKED = "unblocked"
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"
    LANE_CHANGED = "lane_changed"


class LeaseEvent(Record, frozen=True):
    """One change of ownership."""

    execution_id: str
    event_type: LeaseEventType
    reason: str
    lease_epoch: int
    attempt_index: int
    worker_id: str | None
    worker_instance_id: str | None
    namespace: str
    tags: Mapping[str, str]
    occurred_at: int


class CompletionEvent(Record, frozen=True):
    """One execution ended; written exactly once per end."""

    execution_id: str
    outcome: TerminalOutcome
    attempt_index: int | None
    flow_id: str | None
    namespace: str
    tags: Mapping[str, str]
    occurred_at: int


class OperatorEvent(Record, frozen=True):
    """One operator action; `subject` is an execution id or a lane."""

    subject: str
    event_type: OperatorEventType
    details: Mapping[str, Any]
    namespace: str
    tags: Mapping[str, str]
    occurred_at: int


Event = LeaseEvent | CompletionEvent | OperatorEvent
