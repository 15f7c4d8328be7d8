"""Events: every transition appends its own in the same transaction."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from flowfabric.model.columns import Instant
from flowfabric.model.flow import FlowEvent
from flowfabric.model.record import Record
from flowfabric.model.state import TerminalOutcome


class LeaseEventType(StrEnum):
    """Changes of ownership. Renewals change no owner: they are told only where the policy of an
    execution asks for it.

    A lease that ends with its execution writes none either: the completion event implies it.
    """

    ACQUIRED = "acquired"
    RENEWED = "renewed"
    EXPIRED = "expired"
    RECLAIMED = "reclaimed"
    REVOKED = "revoked"
    RELEASED = "released"


# Reasons in lease events by which statistics tell what they count.
CLAIM_RESUMED: Final = "claim_resumed"  # acquired: the interrupted attempt goes on
CONTINUED: Final = "continued"  # released: the handler began another chapter
RETRY_SCHEDULED: Final = "failed_retry_scheduled"  # released: another attempt follows


class OperatorEventType(StrEnum):
    """Actions of operators: the audit trail."""

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
    BUDGET_CREATED = "budget_created"
    BUDGET_UPDATED = "budget_updated"
    BUDGET_RESET = "budget_reset"
    BUDGET_ASK_ANSWERED = "budget_ask_answered"
    USAGE_REPORTED = "usage_reported"
    QUOTA_CREATED = "quota_created"
    QUOTA_UPDATED = "quota_updated"
    RESUMED = "resumed"
    ESCALATED = "escalated"
    FLOW_CANCEL_REQUESTED = "flow_cancel_requested"
    KEY_SEEDED = "key_seeded"
    KEY_ROTATED = "key_rotated"
    TOKEN_READ = "token_read"  # noqa: S105 - a word
    ACCESS_TOKEN_CREATED = "access_token_created"  # noqa: S105 - a word
    ACCESS_TOKEN_REVOKED = "access_token_revoked"  # noqa: S105
    TAGGED = "tagged"
    REPINNED = "repinned"
    FORKED = "forked"
    RETRIED = "retried"  # with another input, as a new execution
    COUNTERS_REPAIRED = "counters_repaired"
    SIBLINGS_DRAINED = "siblings_drained"
    GROUP_CREATED = "group_created"
    GROUP_CHANGED = "group_changed"
    GROUP_DELETED = "group_deleted"
    DISMISSED = "dismissed"
    RESTORED = "restored"
    SCHEDULE_CREATED = "schedule_created"
    SCHEDULE_CHANGED = "schedule_changed"
    SCHEDULE_PAUSED = "schedule_paused"
    SCHEDULE_RESUMED = "schedule_resumed"
    SCHEDULE_TRIGGERED = "schedule_triggered"
    SCHEDULE_BACKFILLED = "schedule_backfilled"
    SCHEDULE_DELETED = "schedule_deleted"
    SCHEDULE_UNDECLARED = "schedule_undeclared"
    LINE_RELEASED = "line_released"
    FAILURES_MARKED = "failures_marked"
    OPERATION_STARTED = "operation_started"
    OPERATION_STOPPED = "operation_stopped"
    OPERATION_ENDED = "operation_ended"


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
    occurred_at: Instant
    lane_id: str | None = None  # None: written before this was kept
    execution_kind: str | None = None
    # of a lease that was taken: how long the work had been claimable; of an attempt that is to be
    # followed by another: its running time
    took_ms: int | None = None


class CompletionEvent(Record, frozen=True):
    """One execution ended; written exactly once per end."""

    execution_id: str
    outcome: TerminalOutcome
    attempt_index: int | None
    flow_id: str | None
    namespace: str
    tags: Mapping[str, str]
    occurred_at: Instant
    lane_id: str | None = None  # None: written before this was kept
    execution_kind: str | None = None
    took_ms: int | None = None  # the running time of the attempt that ended with it


class OperatorEvent(Record, frozen=True):
    """One operator action; `subject` names an execution, a lane, a budget, a quota, a flow, a
    schedule, a signing key, an access token, a group of failures or a bulk operation."""

    subject: str
    event_type: OperatorEventType
    details: Mapping[str, Any]
    namespace: str
    tags: Mapping[str, str]
    occurred_at: Instant
    actor: str = ""  # empty: the engine itself, or a caller that gave none


class BudgetEventType(StrEnum):
    """What happens to a budget. What operators do to it is in the audit trail, too."""

    SOFT_BREACH = "soft_breach"  # a report passed a soft limit
    HARD_BREACH = "hard_breach"  # a report was refused; told once a minute
    RESET = "reset"  # by an operator, or because it was due
    RAISED = "raised"  # a hard limit, or lifted
    LOWERED = "lowered"
    ASKED = "asked"  # a spender reached a limit that asks people
    ANSWERED = "answered"


class BudgetEvent(Record, frozen=True):
    """One thing that happened to a budget."""

    budget_id: str
    event_type: BudgetEventType
    details: Mapping[str, Any]
    namespace: str
    occurred_at: Instant


class SignalEvent(Record, frozen=True):
    """One signal was delivered, with its effect."""

    execution_id: str
    waitpoint_id: str
    signal_id: str
    signal_name: str
    source_type: str
    source_identity: str
    effect: str
    namespace: str
    tags: Mapping[str, str]
    occurred_at: Instant


Event = LeaseEvent | CompletionEvent | OperatorEvent | BudgetEvent | SignalEvent | FlowEvent
