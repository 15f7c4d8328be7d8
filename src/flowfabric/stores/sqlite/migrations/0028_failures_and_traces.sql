-- Failures: what each was, groups of those that are alike, and their hours.
ALTER TABLE ff_dead_letter ADD COLUMN fingerprint TEXT;
CREATE INDEX ff_dead_letter_fingerprint ON ff_dead_letter (namespace, fingerprint, open_at, execution_id)
    WHERE open_at IS NOT NULL;
CREATE TABLE ff_failure (
    event_id INTEGER PRIMARY KEY,
    execution_id TEXT NOT NULL,
    attempt_index INTEGER,
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    category TEXT NOT NULL,
    message TEXT NOT NULL,
    counted TEXT NOT NULL,
    occurred_at INTEGER NOT NULL,
    exception TEXT,
    frame TEXT,
    line INTEGER,
    version TEXT
) STRICT;
CREATE INDEX ff_failure_execution ON ff_failure (execution_id);
CREATE TABLE ff_failure_group (
    namespace TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    category TEXT NOT NULL,
    message TEXT NOT NULL, -- of the latest
    exception TEXT,
    frame TEXT,
    line INTEGER,
    execution_kinds TEXT NOT NULL, -- JSON
    versions TEXT NOT NULL, -- JSON
    failed INTEGER NOT NULL,
    retried INTEGER NOT NULL,
    first_seen_at INTEGER NOT NULL,
    last_seen_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    known_until INTEGER,
    known_by TEXT NOT NULL,
    known_reason TEXT NOT NULL,
    PRIMARY KEY (namespace, fingerprint)
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_failure_group_seen ON ff_failure_group (namespace, last_seen_at, fingerprint);
CREATE INDEX ff_failure_group_expiry ON ff_failure_group (expires_at);
CREATE TABLE ff_failure_hour (
    namespace TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    hour_at INTEGER NOT NULL,
    failed TEXT NOT NULL, -- JSON: by minute
    retried TEXT NOT NULL, -- likewise
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, fingerprint, hour_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_failure_hour_expiry ON ff_failure_hour (expires_at);

-- The trace of the submit: traceparent, and tracestate in a line of its own.
ALTER TABLE ff_exec_body ADD COLUMN trace TEXT;
