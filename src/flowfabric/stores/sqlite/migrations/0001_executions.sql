-- Executions, their history and events, routes, lanes and workers.
-- Instants are UTC milliseconds. The words are the public enum words and no others.

CREATE TABLE ff_partition_config (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    num_flow_partitions INTEGER NOT NULL CHECK (num_flow_partitions > 0),
    catalog_version INTEGER NOT NULL DEFAULT 0 -- moves with every new route and lane change
) STRICT;

CREATE TABLE ff_lane_registry (
    lane_id TEXT PRIMARY KEY,
    lane_state TEXT NOT NULL CHECK (lane_state IN ('active', 'paused', 'draining', 'disabled')),
    registered_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    reason TEXT NOT NULL DEFAULT ''
) STRICT;

-- What claims are matched against: few rows, so matching costs nothing per waiting execution.
CREATE TABLE ff_route (
    route_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    required_capabilities TEXT NOT NULL, -- sorted, comma-joined
    UNIQUE (namespace, lane_id, execution_kind, required_capabilities)
) STRICT;

-- Every legal state vector, once. Rows refer to it by number: nothing illegal can be stored, and the
-- hot row stays narrow.
CREATE TABLE ff_state (
    state_id INTEGER PRIMARY KEY,
    lifecycle_phase TEXT NOT NULL,
    ownership_state TEXT NOT NULL,
    eligibility_state TEXT NOT NULL,
    blocking_reason TEXT NOT NULL,
    terminal_outcome TEXT NOT NULL,
    attempt_state TEXT NOT NULL,
    public_state TEXT NOT NULL
) STRICT;

INSERT INTO ff_state VALUES
    (1, 'runnable', 'unowned', 'eligible_now', 'waiting_for_worker', 'none', 'pending_first_attempt', 'waiting'),
    (2, 'runnable', 'unowned', 'eligible_now', 'waiting_for_worker', 'none', 'pending_retry_attempt', 'waiting'),
    (3, 'runnable', 'unowned', 'eligible_now', 'waiting_for_worker', 'none', 'pending_replay_attempt', 'waiting'),
    (4, 'runnable', 'unowned', 'eligible_now', 'waiting_for_worker', 'none', 'attempt_interrupted', 'waiting'),
    (10, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_delay', 'none', 'pending_first_attempt', 'delayed'),
    (11, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_delay', 'none', 'pending_retry_attempt', 'delayed'),
    (12, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_delay', 'none', 'pending_replay_attempt', 'delayed'),
    (13, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_delay', 'none', 'attempt_interrupted', 'delayed'),
    (14, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_retry_backoff', 'none', 'pending_first_attempt', 'delayed'),
    (15, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_retry_backoff', 'none', 'pending_retry_attempt', 'delayed'),
    (16, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_retry_backoff', 'none', 'pending_replay_attempt', 'delayed'),
    (17, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_retry_backoff', 'none', 'attempt_interrupted', 'delayed'),
    (18, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_resume_delay', 'none', 'pending_first_attempt', 'delayed'),
    (19, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_resume_delay', 'none', 'pending_retry_attempt', 'delayed'),
    (20, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_resume_delay', 'none', 'pending_replay_attempt', 'delayed'),
    (21, 'runnable', 'unowned', 'not_eligible_until_time', 'waiting_for_resume_delay', 'none', 'attempt_interrupted', 'delayed'),
    (30, 'runnable', 'unowned', 'blocked_by_dependencies', 'waiting_for_children', 'none', 'pending_first_attempt', 'waiting_children'),
    (31, 'runnable', 'unowned', 'blocked_by_dependencies', 'waiting_for_children', 'none', 'pending_retry_attempt', 'waiting_children'),
    (32, 'runnable', 'unowned', 'blocked_by_dependencies', 'waiting_for_children', 'none', 'pending_replay_attempt', 'waiting_children'),
    (33, 'runnable', 'unowned', 'blocked_by_dependencies', 'waiting_for_children', 'none', 'attempt_interrupted', 'waiting_children'),
    (34, 'runnable', 'unowned', 'blocked_by_budget', 'waiting_for_budget', 'none', 'pending_first_attempt', 'rate_limited'),
    (35, 'runnable', 'unowned', 'blocked_by_budget', 'waiting_for_budget', 'none', 'pending_retry_attempt', 'rate_limited'),
    (36, 'runnable', 'unowned', 'blocked_by_budget', 'waiting_for_budget', 'none', 'pending_replay_attempt', 'rate_limited'),
    (37, 'runnable', 'unowned', 'blocked_by_budget', 'waiting_for_budget', 'none', 'attempt_interrupted', 'rate_limited'),
    (38, 'runnable', 'unowned', 'blocked_by_quota', 'waiting_for_quota', 'none', 'pending_first_attempt', 'rate_limited'),
    (39, 'runnable', 'unowned', 'blocked_by_quota', 'waiting_for_quota', 'none', 'pending_retry_attempt', 'rate_limited'),
    (40, 'runnable', 'unowned', 'blocked_by_quota', 'waiting_for_quota', 'none', 'pending_replay_attempt', 'rate_limited'),
    (41, 'runnable', 'unowned', 'blocked_by_quota', 'waiting_for_quota', 'none', 'attempt_interrupted', 'rate_limited'),
    (42, 'runnable', 'unowned', 'blocked_by_route', 'waiting_for_capable_worker', 'none', 'pending_first_attempt', 'waiting'),
    (43, 'runnable', 'unowned', 'blocked_by_route', 'waiting_for_capable_worker', 'none', 'pending_retry_attempt', 'waiting'),
    (44, 'runnable', 'unowned', 'blocked_by_route', 'waiting_for_capable_worker', 'none', 'pending_replay_attempt', 'waiting'),
    (45, 'runnable', 'unowned', 'blocked_by_route', 'waiting_for_capable_worker', 'none', 'attempt_interrupted', 'waiting'),
    (46, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_operator', 'none', 'pending_first_attempt', 'waiting'),
    (47, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_operator', 'none', 'pending_retry_attempt', 'waiting'),
    (48, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_operator', 'none', 'pending_replay_attempt', 'waiting'),
    (49, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_operator', 'none', 'attempt_interrupted', 'waiting'),
    (50, 'runnable', 'unowned', 'blocked_by_lane_state', 'paused_by_policy', 'none', 'pending_first_attempt', 'waiting'),
    (51, 'runnable', 'unowned', 'blocked_by_lane_state', 'paused_by_policy', 'none', 'pending_retry_attempt', 'waiting'),
    (52, 'runnable', 'unowned', 'blocked_by_lane_state', 'paused_by_policy', 'none', 'pending_replay_attempt', 'waiting'),
    (53, 'runnable', 'unowned', 'blocked_by_lane_state', 'paused_by_policy', 'none', 'attempt_interrupted', 'waiting'),
    (60, 'active', 'leased', 'not_applicable', 'none', 'none', 'running_attempt', 'active'),
    (61, 'active', 'lease_expired_reclaimable', 'not_applicable', 'waiting_for_worker', 'none', 'attempt_interrupted', 'active'),
    (62, 'active', 'lease_revoked', 'not_applicable', 'waiting_for_worker', 'none', 'attempt_interrupted', 'active'),
    (70, 'suspended', 'unowned', 'not_applicable', 'waiting_for_signal', 'none', 'attempt_interrupted', 'suspended'),
    (71, 'suspended', 'unowned', 'not_applicable', 'waiting_for_approval', 'none', 'attempt_interrupted', 'suspended'),
    (72, 'suspended', 'unowned', 'not_applicable', 'waiting_for_callback', 'none', 'attempt_interrupted', 'suspended'),
    (73, 'suspended', 'unowned', 'not_applicable', 'waiting_for_tool_result', 'none', 'attempt_interrupted', 'suspended'),
    (74, 'suspended', 'unowned', 'not_applicable', 'waiting_for_budget', 'none', 'attempt_interrupted', 'suspended'),
    (75, 'suspended', 'unowned', 'not_applicable', 'paused_by_operator', 'none', 'attempt_interrupted', 'suspended'),
    (76, 'suspended', 'unowned', 'not_applicable', 'paused_by_policy', 'none', 'attempt_interrupted', 'suspended'),
    (80, 'terminal', 'unowned', 'not_applicable', 'none', 'success', 'attempt_terminal', 'completed'),
    (81, 'terminal', 'unowned', 'not_applicable', 'none', 'success', 'none', 'completed'),
    (82, 'terminal', 'unowned', 'not_applicable', 'none', 'failed', 'attempt_terminal', 'failed'),
    (83, 'terminal', 'unowned', 'not_applicable', 'none', 'failed', 'none', 'failed'),
    (84, 'terminal', 'unowned', 'not_applicable', 'none', 'cancelled', 'attempt_terminal', 'cancelled'),
    (85, 'terminal', 'unowned', 'not_applicable', 'none', 'cancelled', 'none', 'cancelled'),
    (86, 'terminal', 'unowned', 'not_applicable', 'none', 'expired', 'attempt_terminal', 'expired'),
    (87, 'terminal', 'unowned', 'not_applicable', 'none', 'expired', 'none', 'expired'),
    (88, 'terminal', 'unowned', 'not_applicable', 'none', 'skipped', 'attempt_terminal', 'skipped'),
    (89, 'terminal', 'unowned', 'not_applicable', 'none', 'skipped', 'none', 'skipped');

-- The hot row: narrow, rewritten by every transition. The live attempt and its lease are part of it.
CREATE TABLE ff_exec_core (
    execution_id TEXT PRIMARY KEY, -- the UUID; with partition_key it makes the wire form
    partition_key INTEGER NOT NULL,
    route_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state_id INTEGER NOT NULL CHECK (state_id BETWEEN 1 AND 89), -- see ff_state
    due_at INTEGER, -- the earliest instant at which it must be looked at by itself
    priority INTEGER NOT NULL,
    eligible_at INTEGER NOT NULL,
    last_transition_at INTEGER NOT NULL,
    last_mutation_at INTEGER NOT NULL,
    flow_id TEXT,
    blocking_detail TEXT NOT NULL,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_id TEXT,
    worker_id TEXT,
    worker_instance_id TEXT,
    lease_acquired_at INTEGER,
    lease_expires_at INTEGER,
    lease_renewed_at INTEGER,
    reclaim_at INTEGER,
    attempt_index INTEGER,
    attempt_id TEXT,
    attempt_type TEXT,
    attempt_started_at INTEGER,
    attempt_due_at INTEGER,
    attempt_spent_ms INTEGER NOT NULL DEFAULT 0,
    next_attempt_type TEXT NOT NULL DEFAULT 'initial',
    total_attempt_count INTEGER NOT NULL DEFAULT 0,
    retry_count INTEGER NOT NULL DEFAULT 0,
    replay_count INTEGER NOT NULL DEFAULT 0,
    reclaim_count INTEGER NOT NULL DEFAULT 0,
    deadline_at INTEGER,
    started_at INTEGER,
    completed_at INTEGER,
    purge_at INTEGER,
    failure_reason TEXT,
    failure_category TEXT,
    cancellation_reason TEXT,
    cancelled_by TEXT,
    progress_pct INTEGER,
    progress_message TEXT,
    progress_updated_at INTEGER,
    grant_kind TEXT,
    grant_id TEXT,
    grant_worker_id TEXT,
    grant_worker_instance_id TEXT,
    grant_expires_at INTEGER
) STRICT;

-- Numbers below 10 wait for a worker.
CREATE INDEX ff_exec_ready ON ff_exec_core (route_id, priority DESC, created_at, execution_id)
    WHERE state_id < 10;
CREATE INDEX ff_exec_due ON ff_exec_core (due_at, execution_id) WHERE due_at IS NOT NULL;
CREATE INDEX ff_exec_purge ON ff_exec_core (purge_at, execution_id) WHERE purge_at IS NOT NULL;
-- Listings by state; the successful ones (80 and 81), nearly all there are, are found by creation.
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id NOT IN (80, 81);

-- Written once at creation.
CREATE TABLE ff_exec_body (
    execution_id TEXT PRIMARY KEY,
    route_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    payload BLOB NOT NULL,
    payload_encoding TEXT,
    creator_identity TEXT NOT NULL,
    idempotency_key TEXT,
    policy TEXT, -- nothing: the default policy
    tags TEXT
) STRICT;

CREATE INDEX ff_exec_body_created ON ff_exec_body (created_at, execution_id);
CREATE INDEX ff_exec_body_route ON ff_exec_body (route_id, created_at, execution_id);

CREATE TABLE ff_exec_tag (
    execution_id TEXT NOT NULL,
    tag_key TEXT NOT NULL,
    tag_value TEXT NOT NULL,
    PRIMARY KEY (execution_id, tag_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_exec_tag_value ON ff_exec_tag (tag_key, tag_value, execution_id);

CREATE TABLE ff_idempotency (
    namespace TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    fingerprint BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, idempotency_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_idempotency_expiry ON ff_idempotency (expires_at);

-- One row per ended attempt, never changed: the result of a success stays here after a replay.
CREATE TABLE ff_attempt (
    execution_id TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    attempt_id TEXT NOT NULL,
    attempt_type TEXT NOT NULL,
    outcome TEXT NOT NULL,
    lease_epoch INTEGER NOT NULL,
    worker_id TEXT,
    worker_instance_id TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    failure_reason TEXT,
    failure_category TEXT,
    result BLOB,
    result_encoding TEXT,
    PRIMARY KEY (execution_id, attempt_index)
) STRICT;

CREATE TABLE ff_lease_event (
    event_id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    event_type TEXT NOT NULL,
    reason TEXT NOT NULL,
    lease_epoch INTEGER NOT NULL,
    attempt_index INTEGER NOT NULL,
    worker_id TEXT,
    worker_instance_id TEXT,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ff_completion_event (
    event_id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    outcome TEXT NOT NULL,
    attempt_index INTEGER,
    flow_id TEXT,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ff_operator_event (
    event_id INTEGER PRIMARY KEY,
    subject TEXT NOT NULL,
    event_type TEXT NOT NULL,
    details TEXT,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ff_worker_registry (
    namespace TEXT NOT NULL,
    worker_instance_id TEXT NOT NULL,
    worker_id TEXT NOT NULL,
    lanes TEXT NOT NULL, -- JSON
    capabilities TEXT NOT NULL, -- sorted, comma-joined
    kinds TEXT, -- JSON; nothing: every kind
    last_heartbeat_at INTEGER NOT NULL,
    liveness_ttl_ms INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, worker_instance_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_worker_registry_expiry ON ff_worker_registry (expires_at);

CREATE TABLE ff_worker_registry_event (
    event_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    worker_instance_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    reason TEXT NOT NULL,
    occurred_at INTEGER NOT NULL
) STRICT;

-- For people with a SQL shell: everything about an execution in one row.
CREATE VIEW ff_execution AS
SELECT
    '{fp:' || c.partition_key || '}:' || c.execution_id AS id,
    r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
    s.public_state, s.blocking_reason, c.blocking_detail, c.priority,
    c.worker_id, c.worker_instance_id, c.lease_expires_at,
    c.attempt_index, c.total_attempt_count, c.retry_count, c.created_at, c.eligible_at,
    c.started_at, c.completed_at, c.failure_reason, b.tags, b.idempotency_key
FROM ff_exec_core AS c
JOIN ff_route AS r ON r.route_id = c.route_id
JOIN ff_state AS s ON s.state_id = c.state_id
JOIN ff_exec_body AS b ON b.execution_id = c.execution_id;
