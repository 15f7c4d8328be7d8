-- Suspensions, waitpoints, signals and the keys that sign waitpoint tokens.

ALTER TABLE ff_exec_core ADD COLUMN suspension_id TEXT;
ALTER TABLE ff_exec_core ADD COLUMN signal_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN signal_bytes INTEGER NOT NULL DEFAULT 0;

-- Every episode of an execution; it is kept when it has ended.
CREATE TABLE ff_suspension (
    execution_id TEXT NOT NULL, -- wire form
    suspension_id TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    reason_code TEXT NOT NULL,
    requested_by TEXT NOT NULL,
    condition TEXT NOT NULL, -- JSON
    resume_delay_ms INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    timeout_at INTEGER,
    timeout_behavior TEXT NOT NULL,
    continuation_metadata_pointer TEXT,
    progress TEXT NOT NULL, -- JSON: the signals that count
    last_signal_at INTEGER,
    closed_at INTEGER,
    close_reason TEXT,
    cause TEXT,
    actor TEXT,
    PRIMARY KEY (execution_id, suspension_id)
) STRICT;

-- An address for signals. Nothing of its token is stored.
CREATE TABLE ff_waitpoint (
    waitpoint_id TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    attempt_index INTEGER NOT NULL,
    suspension_id TEXT,
    waitpoint_key TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'active', 'closed')),
    token_kid TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    activated_at INTEGER,
    closed_at INTEGER,
    close_reason TEXT,
    expires_at INTEGER,
    payload_type TEXT, -- a JSON schema
    signal_count INTEGER NOT NULL,
    matched_signal_count INTEGER NOT NULL,
    last_signal_at INTEGER,
    due_at INTEGER -- when a pending one lapses
) STRICT;

CREATE INDEX ff_waitpoint_execution ON ff_waitpoint (execution_id, closed_at);
CREATE INDEX ff_waitpoint_due ON ff_waitpoint (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_signal (
    waitpoint_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    execution_id TEXT NOT NULL, -- wire form
    signal_id TEXT NOT NULL,
    signal_name TEXT NOT NULL,
    signal_category TEXT NOT NULL,
    source_type TEXT NOT NULL,
    source_identity TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    payload BLOB,
    payload_encoding TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    accepted_at INTEGER NOT NULL,
    effect TEXT NOT NULL,
    PRIMARY KEY (waitpoint_id, sequence)
) STRICT;

CREATE INDEX ff_signal_execution ON ff_signal (execution_id);

CREATE TABLE ff_signal_dedup (
    waitpoint_id TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    signal_id TEXT NOT NULL,
    effect TEXT NOT NULL,
    due_at INTEGER NOT NULL, -- forgotten then
    PRIMARY KEY (waitpoint_id, idempotency_key)
) STRICT;

CREATE INDEX ff_signal_dedup_due ON ff_signal_dedup (due_at);

CREATE TABLE ff_suspend_dedup (
    execution_id TEXT NOT NULL, -- wire form
    idempotency_key TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    lease_epoch INTEGER NOT NULL,
    digest TEXT NOT NULL,
    suspension_id TEXT NOT NULL,
    due_at INTEGER NOT NULL, -- forgotten then
    PRIMARY KEY (execution_id, idempotency_key)
) STRICT;

CREATE INDEX ff_suspend_dedup_due ON ff_suspend_dedup (due_at);

CREATE TABLE ff_waitpoint_hmac (
    kid TEXT PRIMARY KEY,
    secret_hex TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    is_current INTEGER NOT NULL CHECK (is_current IN (0, 1)),
    due_at INTEGER -- when a retired one stops to verify
) STRICT;

CREATE UNIQUE INDEX ff_waitpoint_hmac_current ON ff_waitpoint_hmac (is_current)
    WHERE is_current = 1;
CREATE INDEX ff_waitpoint_hmac_due ON ff_waitpoint_hmac (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_signal_event (
    event_id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL, -- wire form
    waitpoint_id TEXT NOT NULL,
    signal_id TEXT NOT NULL,
    signal_name TEXT NOT NULL,
    source_type TEXT NOT NULL,
    source_identity TEXT NOT NULL,
    effect TEXT NOT NULL,
    namespace TEXT NOT NULL,
    tags TEXT,
    occurred_at INTEGER NOT NULL
) STRICT;
