-- Minute statistics: what they count is written down where it happens, and rolled up by the loop.
ALTER TABLE ff_lease_event ADD COLUMN took_ms BIGINT;
ALTER TABLE ff_completion_event ADD COLUMN took_ms BIGINT;
-- What no event tells of, such as how many executions a commit created.
CREATE TABLE ff_work_count (
    event_id BIGINT PRIMARY KEY DEFAULT nextval('ff_event_id'),
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    counted TEXT NOT NULL,
    count BIGINT NOT NULL,
    occurred_at BIGINT NOT NULL
);
-- What was used before a reset still counts as spent.
ALTER TABLE ff_budget_usage ADD COLUMN used_before BIGINT NOT NULL DEFAULT 0;

-- How far the logs are counted: the lock of the tables below.
CREATE TABLE ff_statistic_roll_up (
    name TEXT COLLATE "C" PRIMARY KEY,
    places TEXT NOT NULL,
    counted_at BIGINT NOT NULL,
    complete_until BIGINT NOT NULL,
    probe_number BIGINT NOT NULL,
    probe_at BIGINT NOT NULL,
    usage_after TEXT,
    lost_until BIGINT
);
CREATE TABLE ff_statistic_usage (
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    total BIGINT NOT NULL,
    PRIMARY KEY (budget_id, dimension)
);
-- What was spent before there were statistics is in no minute.
INSERT INTO ff_statistic_usage SELECT budget_id, dimension, used FROM ff_budget_usage;
CREATE TABLE ff_statistic_minute (
    minute_at BIGINT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    lane_id TEXT COLLATE "C" NOT NULL,
    execution_kind TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    started BIGINT NOT NULL,
    resumed BIGINT NOT NULL,
    succeeded BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    expired BIGINT NOT NULL,
    skipped BIGINT NOT NULL,
    retried BIGINT NOT NULL,
    recovered BIGINT NOT NULL,
    pickup TEXT, -- histograms; none: nothing in it
    run TEXT,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (minute_at, namespace, lane_id, execution_kind)
);
CREATE INDEX ff_statistic_minute_expiry ON ff_statistic_minute (expires_at);
CREATE TABLE ff_statistic_spend (
    minute_at BIGINT NOT NULL,
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    spent BIGINT NOT NULL,
    given_back BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (minute_at, budget_id, dimension)
);
CREATE INDEX ff_statistic_spend_expiry ON ff_statistic_spend (expires_at);
