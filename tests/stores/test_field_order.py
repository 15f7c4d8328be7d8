"""The order of the fields of every stored record: a store may keep one as an array.

New fields come last. An array of an older release lacks them, and their defaults take their place.
"""

from __future__ import annotations

import pytest

from flowfabric.model.attempt import Attempt
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record
from flowfabric.stores.logs import LOGS
from flowfabric.stores.tables import TABLES

RECORDS: list[type[Record]] = [
    *(Execution, Attempt, Body),
    *(each.record for each in (*TABLES, *LOGS)),
]
STORED = {record.__name__: record for record in RECORDS}
ORDER = {
    "Execution": """
        execution_id route state priority created_at eligible_at last_transition_at
        last_mutation_at flow_id blocking_detail lease_epoch lease_id worker_id
        worker_instance_id lease_acquired_at lease_expires_at lease_renewed_at reclaim_at
        attempt_index attempt_id attempt_type attempt_started_at attempt_due_at attempt_spent_ms
        next_attempt_type total_attempt_count retry_count replay_count reclaim_count deadline_at
        started_at completed_at purge_at failure_reason failure_category cancellation_reason
        cancelled_by progress_pct progress_message progress_updated_at aging_ms blocked_on
        blocked_until suspension_id signal_count signal_bytes side_holds open_group grant policy
        tags bounds journal_index chapter_index forked_from is_watched ties line_place undos
    """,
    "Attempt": """
        execution_id attempt_index attempt_id attempt_type outcome lease_epoch worker_id
        worker_instance_id started_at ended_at failure_reason failure_category result
        result_encoding
    """,
    "Body": """
        execution_id payload payload_encoding creator_identity idempotency_key trace
    """,
    "IdempotencyRecord": """
        namespace idempotency_key execution_id fingerprint expires_at batch_index
    """,
    "Worker": """
        namespace worker_instance_id worker_id lanes capabilities kinds last_heartbeat_at
        liveness_ttl_ms registered_at host version concurrency busy draining
    """,
    "ClaimRow": """
        worker_instance_id claim_id digest leases repeats due_at
    """,
    "Lane": """
        lane_id lane_state registered_at changed_at reason weight aging_ms bounds tenant_weights
        fair_weights
    """,
    "BudgetRow": """
        budget_id policy created_at updated_at generation breach_count soft_breach_count
        last_breach_at last_breach_dim reset_count last_reset_at next_reset_at pending due_at
        revision namespace
    """,
    "UsageRow": """
        budget_id dimension used held updated_at
    """,
    "DeadRow": """
        execution_id namespace execution_kind category ended_at open_at fingerprint
    """,
    "RetryRow": """
        execution_id created_at retry_id
    """,
    "OperationRow": """
        operation_id action state namespace filter arguments actor matched outcomes place_at
        place_id put_off created_at finished_at due_at
    """,
    "LedgerRow": """
        budget_id execution_id dimension generation spent kept flow_id
    """,
    "FairRow": """
        execution_id namespace lane_id priority phase tag fair_key finish
    """,
    "TotalRow": """
        scope namespace scope_id budget_id dimension spent
    """,
    "DedupRow": """
        budget_id operation execution_id dedup_key outcome due_at
    """,
    "HoldRow": """
        execution_id budget_id hold_id lease_epoch amounts due_at
    """,
    "AskRow": """
        budget_id dimension limit_kind number state asked_at asked_by execution_kind generation
        limit_then used_then least wanted spenders open_since answered_at answered_by comment
        raise_by is_once due_at
    """,
    "AskerRow": """
        budget_id dimension limit_kind waitpoint_id execution_id amount asked_at
    """,
    "AllowanceRow": """
        execution_id budget_id dimension limit_kind generation amount
    """,
    "ScopeRow": """
        scope_type scope_id budget_id
    """,
    "AttachmentRow": """
        budget_id execution_id
    """,
    "QuotaPolicy": """
        quota_policy_id requests_per_window_seconds max_requests_per_window
        active_concurrency_cap jitter_ms created_at updated_at revision namespace
    """,
    "GateRow": """
        quota_policy_id dimension active in_window wave_at wave_size seen_at due_at
    """,
    "AdmissionRow": """
        quota_policy_id dimension execution_id state admitted_at counted_at due_at
    """,
    "SuspensionRow": """
        execution_id suspension_id attempt_index reason_code requested_by condition
        resume_delay_ms created_at timeout_at timeout_behavior continuation_metadata_pointer
        progress last_signal_at closed_at close_reason cause actor
    """,
    "WaitpointRow": """
        waitpoint_id execution_id attempt_index suspension_id waitpoint_key state token_kid
        created_at activated_at closed_at close_reason expires_at payload_type signal_count
        matched_signal_count last_signal_at due_at is_lasting
    """,
    "LineRow": """
        namespace serial_key head_id head_number last_number waiting held_at due_at
    """,
    "UniqueRow": "namespace execution_kind unique_key execution_id opened_at items",
    "PlaceRow": "namespace serial_key number execution_id",
    "WatchRow": "execution_id watcher_id waitpoint_id needs_all due_at",
    "SignalRow": """
        waitpoint_id sequence execution_id signal_id signal_name signal_category source_type
        source_identity correlation_id payload payload_encoding created_at accepted_at effect
    """,
    "SignalKeyRow": """
        waitpoint_id idempotency_key signal_id effect due_at
    """,
    "SuspendKeyRow": """
        execution_id idempotency_key attempt_index lease_epoch digest suspension_id due_at
        lease_id attempt_id is_met
    """,
    "AnswerRow": """
        execution_id lease_epoch lease_id attempt_id answer due_at
    """,
    "SecretRow": """
        kid secret_hex created_at is_current due_at is_automatic
    """,
    "FlowRow": """
        flow_id namespace flow_kind public_flow_state created_at last_mutation_at graph_revision
        node_count edge_count completed_count failed_count cancelled_count expired_count
        skipped_count unneeded_count child_count retention_ms finished_at cancelled_at
        cancel_reason cancellation_policy due_at tags hooks
    """,
    "MemberRow": """
        flow_id execution_id node_name rank parent_id open_children policy staged total passing
        succeeded failed skipped group_state generation satisfied_at
    """,
    "EdgeRow": """
        flow_id edge_id upstream_execution_id downstream_execution_id dependency_kind edge_state
        created_at data_passing_ref input_name applied_at resolved_at resolved_generation
        is_sole
    """,
    "TaskRow": """
        flow_id kind execution_id reason tries due_at
    """,
    "LogMark": """
        log trimmed_id trimmed_at
    """,
    "AccessTokenRow": """
        token_id digest name scopes namespaces speaks_for created_at created_by expires_at
        last_used_at revoked_at revoked_by
    """,
    "GroupRow": """
        group_id kinds filter places redeliver_ms last_delivery dropped created_at moved_at
    """,
    "DeliveryRow": """
        group_id number consumer starts ends page_size handed_out tries redeliver_at subjects
    """,
    "RunLogRow": """
        execution_id attempt_index line_count byte_count dropped_count client_seq
    """,
    "LineChunk": """
        execution_id attempt_index last_line lines
    """,
    "StreamRow": """
        execution_id attempt_index created_at last_ms last_seq client_seq total_bytes
        durable_count durable_trimmed summary_count summary_trimmed best_effort_count
        best_effort_trimmed rate_uhz best_effort_at
    """,
    "SummaryRow": """
        execution_id attempt_index document version patch_kind first_applied_at last_updated_at
    """,
    "FrameRow": """
        execution_id attempt_index mode ms seq number kind frame_type payload encoding source
        appended_at correlation_id client_seq summary_version due_at
    """,
    "EntryRow": """
        execution_id journal_index chapter_index position asked key kind state tries began_at
        took_ms recorded_at attempt_index lease_epoch is_secret value digest error code next_key
        refers_to arguments
    """,
    "RunningRow": """
        execution_id key since told_at lease_epoch
    """,
    "PublishedRow": """
        execution_id value published_at attempt_index
    """,
    "ScheduleRow": """
        namespace schedule_id source version definition start kind created_at changed_at
        done_until next_at next_tick paused_at paused_by pause_reason runs failures last_tick
        last_run_id queued_tick last_backfill_id origin digest digest_before flaps
        undeclared_at
    """,
    "TickRow": """
        namespace schedule_id tick fate decided_at expires_at number run_id merged_into error
    """,
    "MailboxRow": """
        execution_id mailbox payload_type sent received unread_bytes waitpoint_id
    """,
    "MessageRow": """
        execution_id mailbox number message_id sent_at sender wants_reply payload received_at
        reply replied_at due_at
    """,
    "MessageKeyRow": """
        execution_id mailbox idempotency_key number message_id due_at
    """,
    "RollUpRow": """
        name places counted_at complete_until probe_number probe_at usage_after
        lost_until
    """,
    "SeenUsage": """
        budget_id dimension total
    """,
    "MinuteRow": """
        minute_at namespace lane_id execution_kind created started resumed succeeded
        failed cancelled expired skipped retried recovered pickup run expires_at
    """,
    "SpendRow": """
        minute_at budget_id dimension spent given_back expires_at
    """,
    "SessionRow": """
        digest way subject token_id roles created_at used_at idle_ms ends_at due_at
    """,
    "AuditRow": """
        occurred_at audit_id actor address action subject reason request_id namespace code times
        details expires_at
    """,
    "FailureEntry": """
        execution_id attempt_index namespace lane_id execution_kind fingerprint category message
        counted occurred_at exception frame line version
    """,
    "FailureGroupRow": """
        namespace fingerprint category message exception frame line execution_kinds versions
        failed retried first_seen_at last_seen_at expires_at known_until known_by known_reason
    """,
    "FailureHourRow": """
        namespace fingerprint hour_at failed retried expires_at
    """,
    "WorkCount": """
        namespace lane_id execution_kind counted count occurred_at
    """,
    "LeaseEvent": """
        execution_id event_type reason lease_epoch attempt_index worker_id worker_instance_id
        namespace tags occurred_at lane_id execution_kind
    """,
    "CompletionEvent": """
        execution_id outcome attempt_index flow_id namespace tags occurred_at lane_id
        execution_kind
    """,
    "OperatorEvent": """
        subject event_type details namespace tags occurred_at actor
    """,
    "BudgetEvent": """
        budget_id event_type details namespace occurred_at
    """,
    "SignalEvent": """
        execution_id waitpoint_id signal_id signal_name source_type source_identity effect
        namespace tags occurred_at
    """,
    "FlowEvent": """
        flow_id event_type namespace tags occurred_at
    """,
    "WorkerEvent": """
        namespace worker_instance_id event_type reason occurred_at
    """,
}


def test_the_order_of_every_stored_record_is_held() -> None:
    assert STORED.keys() == ORDER.keys()


@pytest.mark.parametrize("name", ORDER)
def test_fields_are_added_at_the_end(name: str) -> None:
    held = tuple(ORDER[name].split())
    assert STORED[name].__struct_fields__[: len(held)] == held


@pytest.mark.parametrize("name", ORDER)
def test_added_fields_have_defaults(name: str) -> None:
    added = len(STORED[name].__struct_fields__) - len(ORDER[name].split())
    assert len(STORED[name].__struct_defaults__) >= added
