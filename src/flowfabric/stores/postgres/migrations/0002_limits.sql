-- Budgets, quotas and what executions are bounded by; the order among the ready as one number.

ALTER TABLE ff_lane_registry ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE ff_lane_registry ADD COLUMN aging_ms BIGINT NOT NULL DEFAULT 0;
-- JSON; nothing: no defaults
ALTER TABLE ff_lane_registry ADD COLUMN bounds TEXT;

-- JSON; nothing: not bounded
ALTER TABLE ff_exec_body ADD COLUMN bounds TEXT;

ALTER TABLE ff_exec_core ADD COLUMN aging_ms BIGINT NOT NULL DEFAULT 0;
-- smallest first
ALTER TABLE ff_exec_core ADD COLUMN ready_rank BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN blocked_on TEXT COLLATE "C";
ALTER TABLE ff_exec_core ADD COLUMN blocked_until BIGINT;
ALTER TABLE ff_exec_core ADD COLUMN side_holds INTEGER NOT NULL DEFAULT 0;
UPDATE ff_exec_core SET ready_rank = created_at - priority * 1000000000000000;

DROP INDEX ff_exec_ready;
CREATE INDEX ff_exec_ready ON ff_exec_core (route_id, ready_rank, execution_id)
    WHERE state_id < 10;
-- Who is set free when a budget or a quota has room again.
CREATE INDEX ff_exec_blocked ON ff_exec_core (blocked_on, ready_rank, execution_id)
    WHERE blocked_on IS NOT NULL;

-- The row is the mutex of its budget. Without a policy it only collects usage.
CREATE TABLE ff_budget_policy (
    budget_id TEXT COLLATE "C" PRIMARY KEY,
    policy TEXT, -- JSON
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    generation BIGINT NOT NULL,
    breach_count BIGINT NOT NULL,
    soft_breach_count BIGINT NOT NULL,
    last_breach_at BIGINT,
    last_breach_dim TEXT,
    reset_count BIGINT NOT NULL,
    last_reset_at BIGINT,
    next_reset_at BIGINT,
    pending TEXT NOT NULL CHECK (pending IN ('', 'unblock', 'cancel')),
    due_at BIGINT
);

CREATE INDEX ff_budget_policy_due ON ff_budget_policy (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_budget_usage (
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    used BIGINT NOT NULL CHECK (used >= 0),
    held BIGINT NOT NULL CHECK (held >= 0),
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (budget_id, dimension)
);

CREATE TABLE ff_budget_usage_by_exec (
    budget_id TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    dimension TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL,
    spent BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (budget_id, execution_id, dimension)
);

CREATE INDEX ff_budget_usage_by_exec_execution ON ff_budget_usage_by_exec (execution_id);

CREATE TABLE ff_budget_usage_dedup (
    budget_id TEXT COLLATE "C" NOT NULL,
    operation TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- of a spend; empty for reports
    dedup_key TEXT COLLATE "C" NOT NULL,
    outcome TEXT NOT NULL, -- JSON
    due_at BIGINT NOT NULL, -- forgotten then
    PRIMARY KEY (budget_id, operation, execution_id, dedup_key)
);

CREATE INDEX ff_budget_usage_dedup_due ON ff_budget_usage_dedup (due_at);

-- Amounts that running attempts have reserved.
CREATE TABLE ff_budget_hold (
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    budget_id TEXT COLLATE "C" NOT NULL,
    hold_id TEXT COLLATE "C" NOT NULL,
    lease_epoch BIGINT NOT NULL,
    amounts TEXT NOT NULL, -- JSON
    due_at BIGINT NOT NULL, -- given back then
    PRIMARY KEY (execution_id, budget_id, hold_id)
);

CREATE INDEX ff_budget_hold_due ON ff_budget_hold (due_at);

-- Budgets that apply to whatever is created on a lane or in a namespace.
CREATE TABLE ff_budget_scope (
    scope_type TEXT COLLATE "C" NOT NULL,
    scope_id TEXT COLLATE "C" NOT NULL,
    budget_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (scope_type, scope_id, budget_id)
);

-- Executions that have not ended, by the budgets they spend from.
CREATE TABLE ff_budget_attachment (
    budget_id TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    PRIMARY KEY (budget_id, execution_id)
);

CREATE TABLE ff_quota_policy (
    quota_policy_id TEXT COLLATE "C" PRIMARY KEY,
    requests_per_window_seconds BIGINT NOT NULL CHECK (requests_per_window_seconds > 0),
    max_requests_per_window BIGINT NOT NULL CHECK (max_requests_per_window >= 0),
    active_concurrency_cap BIGINT NOT NULL CHECK (active_concurrency_cap >= 0),
    jitter_ms BIGINT NOT NULL CHECK (jitter_ms >= 0),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- The counters of one policy and key; the row is the mutex of its admissions.
CREATE TABLE ff_quota_gate (
    quota_policy_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    active BIGINT NOT NULL CHECK (active >= 0),
    in_window BIGINT NOT NULL CHECK (in_window >= 0),
    wave_at BIGINT NOT NULL,
    wave_size BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    due_at BIGINT,
    PRIMARY KEY (quota_policy_id, dimension)
);

CREATE INDEX ff_quota_gate_due ON ff_quota_gate (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_quota_admitted (
    quota_policy_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    state TEXT NOT NULL CHECK (state IN ('reserved', 'running', 'released')),
    admitted_at BIGINT NOT NULL,
    counted_at BIGINT, -- its time in the window; nothing once the window has passed
    due_at BIGINT, -- when a reservation lapses
    PRIMARY KEY (quota_policy_id, dimension, execution_id)
);

CREATE INDEX ff_quota_admitted_window ON ff_quota_admitted
    (quota_policy_id, dimension, counted_at, execution_id) WHERE counted_at IS NOT NULL;
CREATE INDEX ff_quota_admitted_execution ON ff_quota_admitted (execution_id);
CREATE INDEX ff_quota_admitted_due ON ff_quota_admitted (due_at) WHERE due_at IS NOT NULL;
