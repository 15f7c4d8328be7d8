-- Minute statistics: what they count is written down where it happens, and rolled up by the loop.
ALTER TABLE ff_lease_event ADD COLUMN took_ms INTEGER;
ALTER TABLE ff_completion_event ADD COLUMN took_ms INTEGER;
-- What no event tells of, such as how many executions a commit created.
CREATE TABLE ff_work_count (
    event_id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    counted TEXT NOT NULL,
    count INTEGER NOT NULL,
    occurred_at INTEGER NOT NULL
) STRICT;
-- What was used before a reset still counts as spent.
ALTER TABLE ff_budget_usage ADD COLUMN used_before INTEGER NOT NULL DEFAULT 0;

-- How far the logs are counted: the lock of the tables below.
CREATE TABLE ff_statistic_roll_up (
    name TEXT PRIMARY KEY,
    places TEXT NOT NULL,
    counted_at INTEGER NOT NULL,
    complete_until INTEGER NOT NULL,
    probe_number INTEGER NOT NULL,
    probe_at INTEGER NOT NULL,
    usage_after TEXT,
    lost_until INTEGER
) STRICT;
CREATE TABLE ff_statistic_usage (
    budget_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    total INTEGER NOT NULL,
    PRIMARY KEY (budget_id, dimension)
) STRICT, WITHOUT ROWID;
-- What was spent before there were statistics is in no minute.
INSERT INTO ff_statistic_usage SELECT budget_id, dimension, used FROM ff_budget_usage;
CREATE TABLE ff_statistic_minute (
    minute_at INTEGER NOT NULL,
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    created INTEGER NOT NULL,
    started INTEGER NOT NULL,
    resumed INTEGER NOT NULL,
    succeeded INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    recovered INTEGER NOT NULL,
    pickup TEXT, -- histograms; none: nothing in it
    run TEXT,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (minute_at, namespace, lane_id, execution_kind)
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_statistic_minute_expiry ON ff_statistic_minute (expires_at);
CREATE TABLE ff_statistic_spend (
    minute_at INTEGER NOT NULL,
    budget_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    spent INTEGER NOT NULL,
    given_back INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (minute_at, budget_id, dimension)
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_statistic_spend_expiry ON ff_statistic_spend (expires_at);
