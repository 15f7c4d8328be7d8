"""Small tables, declared once: a record's fields are its columns, the first ones its key.

A rule that needs new rows declares a table here and a migration beside it; loading, locking,
writing, purging, dumping and due times then work on every store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from flowfabric.model.access import AccessTokenRow
from flowfabric.model.answer import AnswerRow
from flowfabric.model.ask import AllowanceRow, AskerRow, AskRow
from flowfabric.model.audit import AuditRow
from flowfabric.model.bounds import UNBOUNDED
from flowfabric.model.budget import (
    AttachmentRow,
    BudgetRow,
    DedupRow,
    HoldRow,
    LedgerRow,
    ScopeRow,
    ScopeType,
    TotalRow,
    UsageRow,
)
from flowfabric.model.bulk import OperationRow
from flowfabric.model.dead import DeadRow
from flowfabric.model.execution import IdempotencyRecord
from flowfabric.model.failure import FailureGroupRow, FailureHourRow
from flowfabric.model.fair import FairRow
from flowfabric.model.feed import LogMark
from flowfabric.model.flow import EdgeAhead, EdgeRow, FlowRow, MemberRow, TaskRow
from flowfabric.model.group import DeliveryRow, GroupRow
from flowfabric.model.journal import EntryMark, EntryRow, PublishedRow, RunningRow
from flowfabric.model.line import LineRow, PlaceRow
from flowfabric.model.log_lines import LineChunk, RunLogRow
from flowfabric.model.mailbox import MailboxRow, MessageKeyRow, MessageRow
from flowfabric.model.quota import AdmissionRow, GateRow, QuotaPolicy
from flowfabric.model.record import Record
from flowfabric.model.retry import RetryRow
from flowfabric.model.route import Lane
from flowfabric.model.schedule import ScheduleRow, TickRow
from flowfabric.model.session import SessionRow
from flowfabric.model.statistic import NOTHING, MinuteRow, RollUpRow, SeenUsage, SpendRow
from flowfabric.model.stream import FrameMark, FrameRow, StreamRow, SummaryRow
from flowfabric.model.suspension import (
    SecretRow,
    SignalKeyRow,
    SignalRow,
    SuspendKeyRow,
    SuspensionRow,
    WaitpointRow,
)
from flowfabric.model.unique import UniqueRow
from flowfabric.model.watch import WatchRow
from flowfabric.model.worker import ClaimRow, Worker
from flowfabric.stores.layout import COLUMNWISE_FROM_ROWS as COLUMNWISE_FROM_ROWS
from flowfabric.stores.layout import AnyTable as AnyTable
from flowfabric.stores.layout import Column as Column
from flowfabric.stores.layout import Columns as Columns
from flowfabric.stores.layout import Key as Key
from flowfabric.stores.layout import Layout as Layout
from flowfabric.stores.layout import Part as Part
from flowfabric.stores.layout import Row as Row
from flowfabric.stores.layout import Table as Table
from flowfabric.stores.layout import hints_of as hints_of
from flowfabric.stores.layout import names_of as names_of
from flowfabric.stores.layout import property_column as property_column
from flowfabric.stores.layout import words_of as words_of

BUDGETS: Final = Table("ff_budget_policy", BudgetRow, 1)
USAGE: Final = Table("ff_budget_usage", UsageRow, 2)
LEDGER: Final = Table("ff_budget_usage_by_exec", LedgerRow, 3, of_execution=True)
# The totals of flows and kinds. Those of a flow are deleted with it.
TOTALS: Final = Table("ff_spend_total", TotalRow, 5)
DEDUP: Final = Table("ff_budget_usage_dedup", DedupRow, 4)
HOLDS: Final = Table("ff_budget_hold", HoldRow, 3, of_execution=True, absent={"allowed": {}})
SCOPES: Final = Table("ff_budget_scope", ScopeRow, 3, in_catalog=True)
# Deleted when the execution ends, long before it is purged.
ATTACHMENTS: Final = Table("ff_budget_attachment", AttachmentRow, 2)
# Written under the lock of their budget. Spenders that have ended are noticed by the loop.
ASKS: Final = Table("ff_budget_ask", AskRow, 3)
ASKERS: Final = Table("ff_budget_asker", AskerRow, 4)
ALLOWANCES: Final = Table("ff_budget_allowance", AllowanceRow, 4, of_execution=True)
QUOTAS: Final = Table("ff_quota_policy", QuotaPolicy, 1)
GATES: Final = Table("ff_quota_gate", GateRow, 2)
# A start stays in its window even when its execution is purged, so the gate's trimming removes it.
ADMISSIONS: Final = Table("ff_quota_admitted", AdmissionRow, 3)

SUSPENSIONS: Final = Table("ff_suspension", SuspensionRow, 2, of_execution=True)
WAITPOINTS: Final = Table("ff_waitpoint", WaitpointRow, 1, of_execution=True)
SIGNALS: Final = Table("ff_signal", SignalRow, 2, of_execution=True)
SIGNAL_KEYS: Final = Table("ff_signal_dedup", SignalKeyRow, 2)
SUSPEND_KEYS: Final = Table("ff_suspend_dedup", SuspendKeyRow, 2, of_execution=True)
# Not deleted with the execution they name: an end must reach all that wait for it.
WATCHES: Final = Table("ff_watch", WatchRow, 2)
# The row of a line is the lock of its places.
LINE_ROWS: Final = Table("ff_serial", LineRow, 2)
PLACES: Final = Table("ff_serial_line", PlaceRow, 3)
UNIQUES: Final = Table("ff_unique", UniqueRow, 3)
# Only of executions with a fair key that have not ended.
FAIR: Final = Table("ff_fair", FairRow, 1, of_execution=True)
# Replies to owners at the end of leases, for executions that go on.
ANSWERS: Final = Table("ff_lease_answer", AnswerRow, 2, of_execution=True)
SECRETS: Final = Table("ff_waitpoint_hmac", SecretRow, 1)

ACCESS_TOKENS: Final = Table("ff_access_token", AccessTokenRow, 1)
SESSIONS: Final = Table("ff_session", SessionRow, 1)
# Rows are only ever added.
AUDIT: Final = Table("ff_audit", AuditRow, 2, due="expires_at", absent={"details": {}})

LANES: Final = Table(
    "ff_lane_registry",
    Lane,
    1,
    in_catalog=True,
    absent={"bounds": UNBOUNDED, "tenant_weights": {}, "fair_weights": {}},
)
KEYS: Final = Table("ff_idempotency", IdempotencyRecord, 2, due="expires_at", is_mostly_new=True)
# Workers are searched by the instant at which they count as gone.
WORKERS: Final = Table(
    "ff_worker_registry",
    Worker,
    2,
    due="expires_at",
    derived=("expires_at",),
)
# The last claim of each worker that may have to repeat it.
CLAIMS: Final = Table("ff_claim", ClaimRow, 1)

# The row of a flow is the lock of everything that belongs to it.
FLOWS: Final = Table("ff_flow_core", FlowRow, 1)
MEMBERS: Final = Table("ff_flow_member", MemberRow, 2)
EDGES: Final = Table("ff_edge", EdgeRow, 2)
EDGES_AHEAD: Final = Table("ff_edge", EdgeAhead, 2, whole=EDGES)
FLOW_TASKS: Final = Table("ff_flow_task", TaskRow, 3)

# The row of a bulk operation is the lock of its progress.
OPERATIONS: Final = Table("ff_operation", OperationRow, 1)

# Written under the lock of their execution, from its end to its replay.
DEAD: Final = Table("ff_dead_letter", DeadRow, 1, of_execution=True)

# Retries with another input, by the execution they are for.
RETRIES: Final = Table("ff_retry", RetryRow, 3, of_execution=True)

# How far each log was trimmed.
LOG_MARKS: Final = Table("ff_log_mark", LogMark, 1)
# The row of a group is the lock of its deliveries.
GROUPS: Final = Table("ff_consumer_group", GroupRow, 1)
DELIVERIES: Final = Table("ff_group_delivery", DeliveryRow, 2)
# Written under the lock of their execution. The mode is a part of a frame's key.
STREAMS: Final = Table("ff_stream_meta", StreamRow, 2, of_execution=True)
SUMMARIES: Final = Table("ff_stream_summary", SummaryRow, 2, of_execution=True)
FRAMES: Final = Table("ff_stream_frame", FrameRow, 5, of_execution=True)
FRAME_MARKS: Final = Table("ff_stream_frame", FrameMark, 5, whole=FRAMES)
# Likewise. The number of the last line of a chunk is a part of its key.
RUN_LOGS: Final = Table("ff_run_log", RunLogRow, 2, of_execution=True)
LINES: Final = Table("ff_run_log_chunk", LineChunk, 3, of_execution=True)
# Likewise. Rows are only ever added, and go with their chapter.
JOURNAL: Final = Table("ff_journal", EntryRow, 4, of_execution=True)
# Likewise: what an execution has published last.
PUBLISHED: Final = Table("ff_published", PublishedRow, 1, of_execution=True)
# Likewise: which step of an execution runs, where renewals of its lease told.
RUNNING: Final = Table("ff_running", RunningRow, 1, of_execution=True)
ENTRY_MARKS: Final = Table("ff_journal", EntryMark, 4, whole=JOURNAL)

# Likewise.
MAILBOXES: Final = Table("ff_mailbox", MailboxRow, 2, of_execution=True)
MESSAGES: Final = Table("ff_message", MessageRow, 3, of_execution=True)
MESSAGE_KEYS: Final = Table("ff_message_dedup", MessageKeyRow, 3, of_execution=True)

# The row of a schedule is the lock of its ticks; the key of a tick makes one run of it.
SCHEDULES: Final = Table("ff_schedule", ScheduleRow, 2, due="next_at")
TICKS: Final = Table("ff_schedule_tick", TickRow, 3, due="expires_at")

# The row of the roll-up is the lock of the other three.
ROLL_UP: Final = Table("ff_statistic_roll_up", RollUpRow, 1)
SEEN_USAGE: Final = Table("ff_statistic_usage", SeenUsage, 2)
MINUTES: Final = Table(
    "ff_statistic_minute",
    MinuteRow,
    4,
    due="expires_at",
    absent={"pickup": NOTHING, "run": NOTHING},
)
SPEND_MINUTES: Final = Table("ff_statistic_spend", SpendRow, 3, due="expires_at")
FAILURE_GROUPS: Final = Table("ff_failure_group", FailureGroupRow, 2, due="expires_at")
FAILURE_HOURS: Final = Table("ff_failure_hour", FailureHourRow, 3, due="expires_at")

# Every write to these comes with a new version of their execution.
EPISODE_TABLES: Final[tuple[Table[Any], ...]] = (
    SUSPENSIONS,
    WAITPOINTS,
    SIGNALS,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
)
# The loop works on these when they are due; rows of the next list only expire.
TIMED_TABLES: Final[tuple[Table[Any], ...]] = (
    BUDGETS,
    HOLDS,
    GATES,
    ADMISSIONS,
    WAITPOINTS,
    FLOWS,
    FLOW_TASKS,
    WATCHES,
    SCHEDULES,
    LINE_ROWS,
    OPERATIONS,
    ASKS,
)
SWEPT_TABLES: Final[tuple[Table[Any], ...]] = (
    KEYS,
    CLAIMS,
    DEDUP,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    ANSWERS,
    SECRETS,
    MESSAGES,
    MESSAGE_KEYS,
    FRAMES,
    MINUTES,
    SPEND_MINUTES,
    FAILURE_GROUPS,
    FAILURE_HOURS,
    TICKS,
    SESSIONS,
    AUDIT,
)
TABLES: Final[tuple[Table[Any], ...]] = (
    BUDGETS,
    USAGE,
    LEDGER,
    TOTALS,
    DEDUP,
    HOLDS,
    SCOPES,
    ATTACHMENTS,
    ASKS,
    ASKERS,
    ALLOWANCES,
    QUOTAS,
    GATES,
    ADMISSIONS,
    SUSPENSIONS,
    WAITPOINTS,
    SIGNALS,
    SIGNAL_KEYS,
    SUSPEND_KEYS,
    WATCHES,
    LINE_ROWS,
    PLACES,
    UNIQUES,
    FAIR,
    ANSWERS,
    SECRETS,
    ACCESS_TOKENS,
    SESSIONS,
    AUDIT,
    FLOWS,
    MEMBERS,
    EDGES,
    FLOW_TASKS,
    OPERATIONS,
    DEAD,
    RETRIES,
    LOG_MARKS,
    GROUPS,
    DELIVERIES,
    KEYS,
    LANES,
    WORKERS,
    CLAIMS,
    STREAMS,
    SUMMARIES,
    FRAMES,
    RUN_LOGS,
    LINES,
    JOURNAL,
    PUBLISHED,
    RUNNING,
    MAILBOXES,
    MESSAGES,
    MESSAGE_KEYS,
    ROLL_UP,
    SEEN_USAGE,
    MINUTES,
    SPEND_MINUTES,
    FAILURE_GROUPS,
    FAILURE_HOURS,
    SCHEDULES,
    TICKS,
)
TABLE_OF: Final[dict[type[Record], AnyTable]] = {table.record: table for table in TABLES}


def scopes_of(rows: Iterable[ScopeRow]) -> dict[tuple[ScopeType, str], tuple[str, ...]]:
    """Budgets by the lane or namespace they apply to."""
    found: dict[tuple[ScopeType, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.scope_type, row.scope_id), []).append(row.budget_id)
    return {scope: tuple(sorted(names)) for scope, names in found.items()}


def every_row_sql(table: Table[Any]) -> str:
    """A whole table by key."""
    names, keys = ", ".join(table.fields), ", ".join(table.key_columns)
    return f"SELECT {names} FROM {table.name} ORDER BY {keys}"


def next_row_due(table: Table[Any]) -> str:
    """The earliest due time in a table, as a part of a statement."""
    return f"(SELECT min({table.due}) FROM {table.name} WHERE {table.due} IS NOT NULL)"
