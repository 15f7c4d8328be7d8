-- Executions, their history and events, routes, lanes and workers.
-- Instants are UTC milliseconds. The words are the public enum words and no others.

CREATE TABLE ff_partition_config (
    singleton SMALLINT PRIMARY KEY CHECK (singleton = 1),
    num_flow_partitions INTEGER NOT NULL CHECK (num_flow_partitions > 0),
    catalog_version BIGINT NOT NULL DEFAULT 0 -- moves with every new route and lane change
);

CREATE TABLE ff_lane_registry (
    lane_id TEXT COLLATE "C" PRIMARY KEY,
    lane_state TEXT NOT NULL CHECK (lane_state IN ('active', 'paused', 'draining', 'disabled')),
    registered_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    reason TEXT NOT NULL DEFAULT ''
);

-- What claims are matched against: few rows, so matching costs nothing per waiting execution.
CREATE TABLE ff_route (
    route_id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    lane_id TEXT COLLATE "C" NOT NULL,
    execution_kind TEXT NOT NULL,
    required_capabilities TEXT NOT NULL, -- sorted, comma-joined
    UNIQUE (namespace, lane_id, execution_kind, required_capabilities)
);

-- The hot row: narrow, rewritten by every transition. The live attempt and its lease are part of it.
CREATE TABLE ff_exec_core (
    execution_id UUID PRIMARY KEY, -- the UUID; with partition_key it makes the wire form
    partition_key INTEGER NOT NULL CHECK (partition_key >= 0),
    route_id INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
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
    eligible_at BIGINT NOT NULL,
    last_transition_at BIGINT NOT NULL,
    last_mutation_at BIGINT NOT NULL,
    flow_id TEXT,
    blocking_detail TEXT NOT NULL,
    lease_epoch BIGINT NOT NULL,
    lease_id TEXT,
    worker_id TEXT,
    worker_instance_id TEXT COLLATE "C",
    lease_acquired_at BIGINT,
    lease_expires_at BIGINT,
    lease_renewed_at BIGINT,
    lease_lost_at BIGINT,
    attempt_index INTEGER,
    attempt_id TEXT,
    attempt_type TEXT,
    attempt_started_at BIGINT,
    attempt_due_at BIGINT,
    attempt_spent_ms BIGINT NOT NULL,
    next_attempt_type TEXT NOT NULL
        CHECK (next_attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    total_attempt_count INTEGER NOT NULL,
    retry_count INTEGER NOT NULL,
    replay_count INTEGER NOT NULL,
    reclaim_count INTEGER NOT NULL,
    deadline_at BIGINT,
    started_at BIGINT,
    completed_at BIGINT,
    purge_at BIGINT,
    failure_reason TEXT,
    failure_category TEXT,
    cancellation_reason TEXT,
    cancelled_by TEXT,
    progress_pct INTEGER CHECK (progress_pct BETWEEN 0 AND 100),
    progress_message TEXT,
    progress_updated_at BIGINT,
    grant_kind TEXT CHECK (grant_kind IN ('claim', 'reclaim')),
    grant_id TEXT,
    grant_worker_id TEXT,
    grant_worker_instance_id TEXT,
    grant_expires_at BIGINT,
    CHECK ((lifecycle_phase = 'terminal') = (terminal_outcome <> 'none')),
    CHECK ((lifecycle_phase = 'runnable') = (eligibility_state <> 'not_applicable')),
    CHECK ((lifecycle_phase = 'active') = (ownership_state <> 'unowned')),
    CHECK ((ownership_state = 'leased') = (attempt_state = 'running_attempt'))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

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
    execution_id UUID PRIMARY KEY,
    route_id INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    payload BYTEA NOT NULL,
    payload_encoding TEXT,
    creator_identity TEXT NOT NULL,
    idempotency_key TEXT,
    policy TEXT, -- nothing: the default policy
    tags TEXT
);

CREATE INDEX ff_exec_body_created ON ff_exec_body (created_at, execution_id);
CREATE INDEX ff_exec_body_route ON ff_exec_body (route_id, created_at, execution_id);

CREATE TABLE ff_exec_tag (
    execution_id UUID NOT NULL,
    tag_key TEXT COLLATE "C" NOT NULL,
    tag_value TEXT NOT NULL,
    PRIMARY KEY (execution_id, tag_key)
);

CREATE INDEX ff_exec_tag_value ON ff_exec_tag (tag_key, tag_value, execution_id);

CREATE TABLE ff_idempotency (
    namespace TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    fingerprint BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, idempotency_key)
);

CREATE INDEX ff_idempotency_expiry ON ff_idempotency (expires_at);

-- One row per ended attempt, never changed: the result of a success stays here after a replay.
CREATE TABLE ff_attempt (
    execution_id UUID NOT NULL,
    attempt_index INTEGER NOT NULL,
    attempt_id TEXT NOT NULL,
    attempt_type TEXT NOT NULL CHECK (attempt_type IN ('initial', 'retry', 'reclaim', 'replay')),
    outcome TEXT NOT NULL CHECK (
        outcome IN ('ended_success', 'ended_failure', 'ended_cancelled', 'interrupted_reclaimed')
    ),
    lease_epoch BIGINT NOT NULL,
    worker_id TEXT,
    worker_instance_id TEXT COLLATE "C",
    started_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    failure_reason TEXT,
    failure_category TEXT,
    result BYTEA,
    result_encoding TEXT,
    PRIMARY KEY (execution_id, attempt_index)
);

CREATE TABLE ff_lease_event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    event_type TEXT NOT NULL
        CHECK (event_type IN ('acquired', 'expired', 'reclaimed', 'revoked', 'released')),
    reason TEXT NOT NULL,
    lease_epoch BIGINT NOT NULL,
    attempt_index INTEGER NOT NULL,
    worker_id TEXT,
    worker_instance_id TEXT COLLATE "C",
    namespace TEXT COLLATE "C" NOT NULL,
    tags TEXT,
    occurred_at BIGINT NOT NULL,
    xact_id XID8 NOT NULL DEFAULT pg_current_xact_id() -- lets subscribers wait for late commits
);

CREATE TABLE ff_completion_event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    outcome TEXT NOT NULL
        CHECK (outcome IN ('success', 'failed', 'cancelled', 'expired', 'skipped')),
    attempt_index INTEGER,
    flow_id TEXT,
    namespace TEXT COLLATE "C" NOT NULL,
    tags TEXT,
    occurred_at BIGINT NOT NULL,
    xact_id XID8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE TABLE ff_operator_event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject TEXT NOT NULL,
    event_type TEXT NOT NULL,
    details TEXT,
    namespace TEXT COLLATE "C" NOT NULL,
    tags TEXT,
    occurred_at BIGINT NOT NULL,
    xact_id XID8 NOT NULL DEFAULT pg_current_xact_id()
);

CREATE TABLE ff_worker_registry (
    namespace TEXT COLLATE "C" NOT NULL,
    worker_instance_id TEXT COLLATE "C" NOT NULL,
    worker_id TEXT NOT NULL,
    lanes TEXT NOT NULL, -- JSON
    capabilities TEXT NOT NULL, -- sorted, comma-joined
    kinds TEXT, -- JSON; nothing: every kind
    last_heartbeat_at BIGINT NOT NULL,
    liveness_ttl_ms BIGINT NOT NULL,
    registered_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (namespace, worker_instance_id)
);

CREATE INDEX ff_worker_registry_expiry ON ff_worker_registry (expires_at);

CREATE TABLE ff_worker_registry_event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    worker_instance_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT NOT NULL CHECK (event_type IN ('registered', 'marked_dead', 'ttl_swept')),
    reason TEXT NOT NULL,
    occurred_at BIGINT NOT NULL
);

-- For people with a SQL shell: everything about an execution in one row.
CREATE VIEW ff_execution AS
SELECT
    '{fp:' || c.partition_key || '}:' || c.execution_id::text AS id,
    r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
    c.public_state, c.blocking_reason, c.blocking_detail, c.priority,
    c.worker_id, c.worker_instance_id, c.lease_expires_at,
    c.attempt_index, c.total_attempt_count, c.retry_count, c.created_at, c.eligible_at,
    c.started_at, c.completed_at, c.failure_reason, b.tags, b.idempotency_key
FROM ff_exec_core AS c
JOIN ff_route AS r ON r.route_id = c.route_id
JOIN ff_exec_body AS b ON b.execution_id = c.execution_id;
