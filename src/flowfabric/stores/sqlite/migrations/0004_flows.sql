-- Flows: executions that depend on each other.

INSERT INTO ff_state VALUES
    (54, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_first_attempt', 'waiting'),
    (55, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_retry_attempt', 'waiting'),
    (56, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_replay_attempt', 'waiting'),
    (57, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'attempt_interrupted', 'waiting');

ALTER TABLE ff_exec_core ADD COLUMN open_group INTEGER NOT NULL DEFAULT 0;

-- The row of a flow is the lock of its graph.
CREATE TABLE ff_flow_core (
    flow_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    flow_kind TEXT NOT NULL,
    public_flow_state TEXT NOT NULL
        CHECK (public_flow_state IN ('open', 'completed', 'failed', 'cancelled')),
    created_at INTEGER NOT NULL,
    last_mutation_at INTEGER NOT NULL,
    graph_revision INTEGER NOT NULL,
    node_count INTEGER NOT NULL,
    edge_count INTEGER NOT NULL,
    completed_count INTEGER NOT NULL CHECK (completed_count >= 0),
    failed_count INTEGER NOT NULL CHECK (failed_count >= 0),
    cancelled_count INTEGER NOT NULL CHECK (cancelled_count >= 0),
    expired_count INTEGER NOT NULL CHECK (expired_count >= 0),
    skipped_count INTEGER NOT NULL CHECK (skipped_count >= 0),
    unneeded_count INTEGER NOT NULL CHECK (unneeded_count BETWEEN 0 AND cancelled_count),
    child_count INTEGER NOT NULL,
    retention_ms INTEGER,
    finished_at INTEGER,
    cancelled_at INTEGER,
    cancel_reason TEXT,
    cancellation_policy TEXT
        CHECK (cancellation_policy IN ('cancel_all', 'cancel_pending', 'cancel_flow_only')),
    due_at INTEGER, -- when it is purged as a whole
    tags TEXT NOT NULL, -- JSON
    CHECK (
        completed_count + failed_count + cancelled_count + expired_count + skipped_count
        <= node_count
    )
) STRICT;

CREATE INDEX ff_flow_core_due ON ff_flow_core (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ff_flow_core_namespace ON ff_flow_core (namespace, flow_id);
CREATE INDEX ff_flow_core_state ON ff_flow_core (public_flow_state, flow_id);
CREATE INDEX ff_flow_core_both ON ff_flow_core (namespace, public_flow_state, flow_id);

-- One row per member, with the group of its inbound edges.
CREATE TABLE ff_flow_member (
    flow_id TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    node_name TEXT NOT NULL,
    rank INTEGER NOT NULL, -- every edge leads from a lower to a higher one
    parent_id TEXT, -- who spawned it, wire form
    open_children INTEGER NOT NULL CHECK (open_children >= 0),
    policy TEXT, -- JSON; none: all_of
    staged INTEGER NOT NULL CHECK (staged >= 0),
    total INTEGER NOT NULL,
    passing INTEGER NOT NULL, -- edges that hand a result on
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    group_state TEXT NOT NULL CHECK (group_state IN ('pending', 'satisfied', 'impossible')),
    generation INTEGER NOT NULL,
    satisfied_at INTEGER,
    PRIMARY KEY (flow_id, execution_id),
    CHECK (succeeded + failed + skipped <= total)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_flow_member_parent ON ff_flow_member (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE ff_edge (
    flow_id TEXT NOT NULL,
    edge_id TEXT NOT NULL,
    upstream_execution_id TEXT NOT NULL, -- wire form
    downstream_execution_id TEXT NOT NULL, -- wire form
    dependency_kind TEXT NOT NULL,
    edge_state TEXT NOT NULL
        CHECK (edge_state IN ('pending', 'applied', 'satisfied', 'impossible')),
    created_at INTEGER NOT NULL,
    data_passing_ref TEXT,
    input_name TEXT,
    applied_at INTEGER,
    resolved_at INTEGER,
    resolved_generation INTEGER,
    is_sole INTEGER NOT NULL CHECK (is_sole IN (0, 1)), -- its downstream waits for nothing else
    PRIMARY KEY (flow_id, edge_id)
) STRICT;

-- By what never changes: a resolved edge is a write to its row alone. They end
-- with the edge's own id, so that a page of a wide fan-out can be read in order;
-- an execution has one flow. Behind long keys a row is found faster by its number.
CREATE INDEX ff_edge_upstream ON ff_edge (upstream_execution_id, edge_id);
CREATE INDEX ff_edge_downstream ON ff_edge (downstream_execution_id, edge_id);

-- What a transaction left to be done; it is gone when it has been.
CREATE TABLE ff_flow_task (
    flow_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    reason TEXT NOT NULL,
    tries INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (flow_id, kind, execution_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_flow_task_due ON ff_flow_task (due_at);

CREATE TABLE ff_flow_event (
    event_id INTEGER PRIMARY KEY,
    flow_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;
