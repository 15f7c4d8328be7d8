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

-- The hot row: narrow, rewritten by every transition. The live attempt and its lease are part of it.
CREATE TABLE ff_exec_core (
    execution_id TEXT PRIMARY KEY, -- the UUID; with partition_key it makes the wire form
    partition_key INTEGER NOT NULL CHECK (partition_key >= 0),
    route_id INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    lifecycle_phase TEXT NOT NULL
        CHECK (lifecycle_phase IN ('runnable', 'active', 'suspended', 'terminal')),
    ownership_state TEXT NOT NULL CHECK (
        ownership_state IN ('unowned', 'leased', 'lease_expired_reclaimable', 'lease_revoked')
    ),
    eligibility_state TEXT NOT NULL,
    blocking_reason TEXT NOT NULL,
    terminal_outcome TEXT NOT NULL
        CHECK (terminal_outcome IN ('none', 'success', 'failed', 'cancelled', 'expired', 'skipped')),
    attempt_state TEXT NOT NULL,
    public_state TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9000),
    eligible_at INTEGER NOT NULL,
    last_transition_at INTEGER NOT NULL,
    last_mutation_at INTEGER NOT NULL,
    flow_id TEXT,
    blocking_detail TEXT NOT NULL,
    lease_epoch INTEGER NOT NULL,
    lease_id TEXT,
    worker_id TEXT,
    worker_instance_id TEXT,
    lease_acquired_at INTEGER,
    lease_expires_at INTEGER,
    lease_renewed_at INTEGER,
    lease_lost_at INTEGER,
    attempt_index INTEGER,
    attempt_id TEXT,
    attempt_type TEXT,
    attempt_started_at INTEGER,
    attempt_due_at INTEGER,
    attempt_spent_ms INTEGER NOT NULL,
    next_attempt_type TEXT NOT NULL
        CHECK (next_attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    total_attempt_count INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    replay_count INTEGER NOT NULL,
    reclaim_count INTEGER NOT NULL,
    deadline_at INTEGER,
    started_at INTEGER,
    completed_at INTEGER,
    purge_at INTEGER,
    failure_reason TEXT,
    failure_category TEXT,
    cancellation_reason TEXT,
    cancelled_by TEXT,
    progress_pct INTEGER CHECK (progress_pct BETWEEN 0 AND 100),
    progress_message TEXT,
    progress_updated_at INTEGER,
    grant_kind TEXT CHECK (grant_kind IN ('claim', 'reclaim')),
    grant_id TEXT,
    grant_worker_id TEXT,
    grant_worker_instance_id TEXT,
    grant_expires_at INTEGER,
    CHECK ((lifecycle_phase = 'terminal') = (terminal_outcome <> 'none')),
    CHECK ((lifecycle_phase = 'runnable') = (eligibility_state <> 'not_applicable')),
    CHECK ((lifecycle_phase = 'active') = (ownership_state <> 'unowned')),
    CHECK ((ownership_state = 'leased') = (attempt_state = 'running_attempt'))
) STRICT;

CREATE INDEX ff_exec_ready ON ff_exec_core (route_id, priority DESC, created_at, execution_id)
    WHERE eligibility_state = 'eligible_now';
CREATE INDEX ff_exec_due_delay ON ff_exec_core (eligible_at, execution_id)
    WHERE eligibility_state = 'not_eligible_until_time';
CREATE INDEX ff_exec_due_lease ON ff_exec_core (lease_expires_at, execution_id)
    WHERE ownership_state = 'leased';
CREATE INDEX ff_exec_due_lost ON ff_exec_core (lease_lost_at, execution_id)
    WHERE lease_lost_at IS NOT NULL;
CREATE INDEX ff_exec_due_attempt ON ff_exec_core (attempt_due_at, execution_id)
    WHERE attempt_due_at IS NOT NULL;
CREATE INDEX ff_exec_due_deadline ON ff_exec_core (deadline_at, execution_id)
    WHERE deadline_at IS NOT NULL AND lifecycle_phase <> 'terminal';
CREATE INDEX ff_exec_due_purge ON ff_exec_core (purge_at, execution_id)
    WHERE purge_at IS NOT NULL;
-- Listings by state; the successful ones, nearly all there are, are found by creation instead.
CREATE INDEX ff_exec_state ON ff_exec_core (public_state, created_at, execution_id)
    WHERE public_state <> 'completed';

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
    attempt_type TEXT NOT NULL CHECK (attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    outcome TEXT NOT NULL CHECK (
        outcome IN ('ended_success', 'ended_failure', 'ended_cancelled', 'interrupted_reclaimed')
    ),
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
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    execution_id TEXT NOT NULL, -- wire form
    event_type TEXT NOT NULL
        CHECK (event_type IN ('acquired', 'expired', 'reclaimed', 'revoked', 'released')),
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
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    execution_id TEXT NOT NULL, -- wire form
    outcome TEXT NOT NULL
        CHECK (outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped')),
    attempt_index INTEGER,
    flow_id TEXT,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;

CREATE TABLE ff_operator_event (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
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
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    worker_instance_id TEXT NOT NULL,
    event_type TEXT NOT NULL CHECK (event_type IN ('registered', 'marked_dead', 'ttl_swept')),
    reason TEXT NOT NULL,
    occurred_at INTEGER NOT NULL
) STRICT;

-- For people with a SQL shell: everything about an execution in one row.
CREATE VIEW ff_execution AS
SELECT
    '{fp:' || c.partition_key || '}:' || c.execution_id AS id,
    r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
    c.public_state, c.blocking_reason, c.blocking_detail, c.priority,
    c.worker_id, c.worker_instance_id, c.lease_expires_at,
    c.attempt_index, c.total_attempt_count, c.retry_count, c.created_at, c.eligible_at,
    c.started_at, c.completed_at, c.failure_reason, b.tags, b.idempotency_key
FROM ff_exec_core AS c
JOIN ff_route AS r ON r.route_id = c.route_id
JOIN ff_exec_body AS b ON b.execution_id = c.execution_id;
