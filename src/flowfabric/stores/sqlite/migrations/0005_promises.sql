-- What the engine promised and the tables so far did not hold.

-- Repeated calls: what the owner of a lease was answered when it let go.
CREATE TABLE ff_lease_answer (
    execution_id TEXT NOT NULL, -- wire form
    lease_epoch INTEGER NOT NULL,
    lease_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    answer TEXT NOT NULL, -- JSON
    due_at INTEGER NOT NULL, -- forgotten then
    PRIMARY KEY (execution_id, lease_epoch)
) STRICT;

CREATE INDEX ff_lease_answer_due ON ff_lease_answer (due_at);

-- Repeated suspends: under which lease a key was used, and whether early signals met the condition.
ALTER TABLE ff_suspend_dedup ADD COLUMN lease_id TEXT;
ALTER TABLE ff_suspend_dedup ADD COLUMN attempt_id TEXT;
ALTER TABLE ff_suspend_dedup ADD COLUMN is_met INTEGER NOT NULL DEFAULT 0;

-- The store's clock: which time it was at which reading of the machine's boot clock.
CREATE TABLE ff_clock (
    boot_id TEXT PRIMARY KEY, -- which start of the machine
    boot_ms INTEGER NOT NULL CHECK (boot_ms BETWEEN 0 AND 253402300799999),
    time_ms INTEGER NOT NULL CHECK (time_ms BETWEEN 0 AND 253402300799999),
    gain_ms INTEGER NOT NULL CHECK (gain_ms BETWEEN -253402300799999 AND 253402300799999),
    reached_ms INTEGER NOT NULL CHECK (reached_ms BETWEEN 0 AND 253402300799999),
    wish_ms INTEGER CHECK (wish_ms BETWEEN -253402300799999 AND 253402300799999),
    wished_at INTEGER CHECK (wished_at BETWEEN 0 AND 253402300799999),
    refused_at INTEGER CHECK (refused_at BETWEEN 0 AND 253402300799999),
    CHECK ((wish_ms IS NULL) = (wished_at IS NULL))
) STRICT;
-- Signing keys: whether the first start made it by itself, so that a configured one may replace it.
ALTER TABLE ff_waitpoint_hmac ADD COLUMN is_automatic INTEGER NOT NULL DEFAULT 0;
-- Retention of quotas: gates from before are looked at once, and go if nothing is counted there.
UPDATE ff_quota_gate SET due_at = seen_at WHERE due_at IS NULL;
