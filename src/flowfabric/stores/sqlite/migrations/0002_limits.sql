-- Budgets, quotas and what executions are bounded by; the order among the ready as one number.

ALTER TABLE ff_lane_registry ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE ff_lane_registry ADD COLUMN aging_ms INTEGER NOT NULL DEFAULT 0;
-- JSON; nothing: no defaults
ALTER TABLE ff_lane_registry ADD COLUMN bounds TEXT;

-- JSON; nothing: not bounded
ALTER TABLE ff_exec_body ADD COLUMN bounds TEXT;

ALTER TABLE ff_exec_core ADD COLUMN aging_ms INTEGER NOT NULL DEFAULT 0;
-- smallest first
ALTER TABLE ff_exec_core ADD COLUMN ready_rank INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN blocked_on TEXT;
ALTER TABLE ff_exec_core ADD COLUMN blocked_until INTEGER;
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
    budget_id TEXT PRIMARY KEY,
    policy TEXT, -- JSON
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    breach_count INTEGER NOT NULL,
    soft_breach_count INTEGER NOT NULL,
    last_breach_at INTEGER,
    last_breach_dim TEXT,
    reset_count INTEGER NOT NULL,
    last_reset_at INTEGER,
    next_reset_at INTEGER,
    pending TEXT NOT NULL CHECK (pending IN ('', 'unblock', 'cancel')),
    due_at INTEGER
) STRICT;

CREATE INDEX ff_budget_policy_due ON ff_budget_policy (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_budget_usage (
    budget_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    used INTEGER NOT NULL CHECK (used >= 0),
    held INTEGER NOT NULL CHECK (held >= 0),
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (budget_id, dimension)
) STRICT;

CREATE TABLE ff_budget_usage_by_exec (
    budget_id TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    dimension TEXT NOT NULL,
    generation INTEGER NOT NULL,
    spent INTEGER NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (budget_id, execution_id, dimension)
) STRICT;

CREATE INDEX ff_budget_usage_by_exec_execution ON ff_budget_usage_by_exec (execution_id);

CREATE TABLE ff_budget_usage_dedup (
    budget_id TEXT NOT NULL,
    operation TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- of a spend; empty for reports
    dedup_key TEXT NOT NULL,
    outcome TEXT NOT NULL, -- JSON
    due_at INTEGER NOT NULL, -- forgotten then
    PRIMARY KEY (budget_id, operation, execution_id, dedup_key)
) STRICT;

CREATE INDEX ff_budget_usage_dedup_due ON ff_budget_usage_dedup (due_at);

-- Amounts that running attempts have reserved.
CREATE TABLE ff_budget_hold (
    execution_id TEXT NOT NULL, -- wire form
    budget_id TEXT NOT NULL,
    hold_id TEXT NOT NULL,
    lease_epoch INTEGER NOT NULL,
    amounts TEXT NOT NULL, -- JSON
    due_at INTEGER NOT NULL, -- given back then
    PRIMARY KEY (execution_id, budget_id, hold_id)
) STRICT;

CREATE INDEX ff_budget_hold_due ON ff_budget_hold (due_at);

-- Budgets that apply to whatever is created on a lane or in a namespace.
CREATE TABLE ff_budget_scope (
    scope_type TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    budget_id TEXT NOT NULL,
    PRIMARY KEY (scope_type, scope_id, budget_id)
) STRICT;

-- Executions that have not ended, by the budgets they spend from.
CREATE TABLE ff_budget_attachment (
    budget_id TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    PRIMARY KEY (budget_id, execution_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE ff_quota_policy (
    quota_policy_id TEXT PRIMARY KEY,
    requests_per_window_seconds INTEGER NOT NULL CHECK (requests_per_window_seconds > 0),
    max_requests_per_window INTEGER NOT NULL CHECK (max_requests_per_window >= 0),
    active_concurrency_cap INTEGER NOT NULL CHECK (active_concurrency_cap >= 0),
    jitter_ms INTEGER NOT NULL CHECK (jitter_ms >= 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- The counters of one policy and key; the row is the mutex of its admissions.
CREATE TABLE ff_quota_gate (
    quota_policy_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    active INTEGER NOT NULL CHECK (active >= 0),
    in_window INTEGER NOT NULL CHECK (in_window >= 0),
    wave_at INTEGER NOT NULL,
    wave_size INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    due_at INTEGER,
    PRIMARY KEY (quota_policy_id, dimension)
) STRICT;

CREATE INDEX ff_quota_gate_due ON ff_quota_gate (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_quota_admitted (
    quota_policy_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    state TEXT NOT NULL CHECK (state IN ('reserved', 'running', 'released')),
    admitted_at INTEGER NOT NULL,
    counted_at INTEGER, -- its time in the window; nothing once the window has passed
    due_at INTEGER, -- when a reservation lapses
    PRIMARY KEY (quota_policy_id, dimension, execution_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX ff_quota_admitted_window ON ff_quota_admitted
    (quota_policy_id, dimension, counted_at, execution_id) WHERE counted_at IS NOT NULL;
CREATE INDEX ff_quota_admitted_execution ON ff_quota_admitted (execution_id);
CREATE INDEX ff_quota_admitted_due ON ff_quota_admitted (due_at) WHERE due_at IS NOT NULL;
