-- What the engine promised and the tables so far did not hold.

-- Repeated calls: what the owner of a lease was answered when it let go.
CREATE TABLE ff_lease_answer (
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    lease_epoch BIGINT NOT NULL,
    lease_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    answer TEXT NOT NULL, -- JSON
    due_at BIGINT NOT NULL, -- forgotten then
    PRIMARY KEY (execution_id, lease_epoch)
);

CREATE INDEX ff_lease_answer_due ON ff_lease_answer (due_at);

-- Repeated suspends: under which lease a key was used, and whether early signals met the condition.
ALTER TABLE ff_suspend_dedup ADD COLUMN lease_id TEXT;
ALTER TABLE ff_suspend_dedup ADD COLUMN attempt_id TEXT;
ALTER TABLE ff_suspend_dedup ADD COLUMN is_met BIGINT NOT NULL DEFAULT 0;

-- Numbers that can never be right are refused when they are written. Rows that hold one already are
-- left as they are (NOT VALID): they are read as corrupt, and doctor names them.
ALTER TABLE ff_exec_core ADD CONSTRAINT ff_exec_core_ranges CHECK (
    priority BETWEEN 0 AND 9000
    AND created_at >= 0
    AND lease_epoch >= 0
    AND attempt_spent_ms >= 0
    AND total_attempt_count >= 0
    AND retry_count >= 0
    AND replay_count >= 0
    AND reclaim_count >= 0
    AND aging_ms >= 0
    AND signal_count >= 0
    AND signal_bytes >= 0
    AND side_holds >= 0
    AND open_group >= 0
) NOT VALID;

-- Signing keys: whether the first start made it by itself, so that a configured one may replace it.
ALTER TABLE ff_waitpoint_hmac ADD COLUMN is_automatic BIGINT NOT NULL DEFAULT 0;
-- Retention of quotas: gates from before are looked at once, and go if nothing is counted there.
UPDATE ff_quota_gate SET due_at = seen_at WHERE due_at IS NULL;
