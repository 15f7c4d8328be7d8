-- Flows: executions that depend on each other.

INSERT INTO ff_state VALUES
    (54, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_first_attempt', 'waiting'),
    (55, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_retry_attempt', 'waiting'),
    (56, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'pending_replay_attempt', 'waiting'),
    (57, 'runnable', 'unowned', 'blocked_by_operator', 'paused_by_flow_cancel', 'none', 'attempt_interrupted', 'waiting');

ALTER TABLE ff_exec_core ADD COLUMN open_group INTEGER NOT NULL DEFAULT 0;

-- The row of a flow is the lock of its graph.
CREATE TABLE ff_flow_core (
    flow_id TEXT COLLATE "C" PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    flow_kind TEXT NOT NULL,
    public_flow_state TEXT COLLATE "C" NOT NULL
        CHECK (public_flow_state IN ('open', 'completed', 'failed', 'cancelled')),
    created_at BIGINT NOT NULL,
    last_mutation_at BIGINT NOT NULL,
    graph_revision BIGINT NOT NULL,
    node_count BIGINT NOT NULL,
    edge_count BIGINT NOT NULL,
    completed_count BIGINT NOT NULL CHECK (completed_count >= 0),
    failed_count BIGINT NOT NULL CHECK (failed_count >= 0),
    cancelled_count BIGINT NOT NULL CHECK (cancelled_count >= 0),
    expired_count BIGINT NOT NULL CHECK (expired_count >= 0),
    skipped_count BIGINT NOT NULL CHECK (skipped_count >= 0),
    unneeded_count BIGINT NOT NULL CHECK (unneeded_count BETWEEN 0 AND cancelled_count),
    child_count BIGINT NOT NULL,
    retention_ms BIGINT,
    finished_at BIGINT,
    cancelled_at BIGINT,
    cancel_reason TEXT,
    cancellation_policy TEXT
        CHECK (cancellation_policy IN ('cancel_all', 'cancel_pending', 'cancel_flow_only')),
    due_at BIGINT, -- when it is purged as a whole
    tags TEXT NOT NULL, -- JSON
    CHECK (
        completed_count + failed_count + cancelled_count + expired_count + skipped_count
        <= node_count
    )
) WITH (fillfactor = 80);

CREATE INDEX ff_flow_core_due ON ff_flow_core (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX ff_flow_core_namespace ON ff_flow_core (namespace, flow_id);
CREATE INDEX ff_flow_core_state ON ff_flow_core (public_flow_state, flow_id);
CREATE INDEX ff_flow_core_both ON ff_flow_core (namespace, public_flow_state, flow_id);

-- One row per member, with the group of its inbound edges.
CREATE TABLE ff_flow_member (
    flow_id TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    node_name TEXT COLLATE "C" NOT NULL,
    rank BIGINT NOT NULL, -- every edge leads from a lower to a higher one
    parent_id TEXT COLLATE "C", -- who spawned it, wire form
    open_children BIGINT NOT NULL CHECK (open_children >= 0),
    policy TEXT, -- JSON; none: all_of
    staged BIGINT NOT NULL CHECK (staged >= 0),
    total BIGINT NOT NULL,
    passing BIGINT NOT NULL, -- edges that hand a result on
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    group_state TEXT NOT NULL CHECK (group_state IN ('pending', 'satisfied', 'impossible')),
    generation BIGINT NOT NULL,
    satisfied_at BIGINT,
    PRIMARY KEY (flow_id, execution_id),
    CHECK (succeeded + failed + skipped <= total)
) WITH (fillfactor = 45);

CREATE INDEX ff_flow_member_parent ON ff_flow_member (parent_id) WHERE parent_id IS NOT NULL;

CREATE TABLE ff_edge (
    flow_id TEXT COLLATE "C" NOT NULL,
    edge_id TEXT COLLATE "C" NOT NULL,
    upstream_execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    downstream_execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    dependency_kind TEXT NOT NULL,
    edge_state TEXT COLLATE "C" NOT NULL
        CHECK (edge_state IN ('pending', 'applied', 'satisfied', 'impossible')),
    created_at BIGINT NOT NULL,
    data_passing_ref TEXT,
    input_name TEXT,
    applied_at BIGINT,
    resolved_at BIGINT,
    resolved_generation BIGINT,
    is_sole BIGINT NOT NULL CHECK (is_sole IN (0, 1)), -- its downstream waits for nothing else
    PRIMARY KEY (flow_id, edge_id)
) WITH (fillfactor = 45);

-- By what never changes: a resolved edge is a write to its row alone. They end
-- with the edge's own id, so that a page of a wide fan-out can be read in order;
-- an execution has one flow.
CREATE INDEX ff_edge_upstream ON ff_edge (upstream_execution_id, edge_id);
CREATE INDEX ff_edge_downstream ON ff_edge (downstream_execution_id, edge_id);

-- What a transaction left to be done; it is gone when it has been.
CREATE TABLE ff_flow_task (
    flow_id TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    reason TEXT NOT NULL,
    tries BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (flow_id, kind, execution_id)
);

CREATE INDEX ff_flow_task_due ON ff_flow_task (due_at);

CREATE TABLE ff_flow_event (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    flow_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    tags TEXT,
    occurred_at BIGINT NOT NULL,
    xact_id XID8 NOT NULL DEFAULT pg_current_xact_id()
);
