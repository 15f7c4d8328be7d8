-- Streams: what attempts show while they run. Whether a stream is closed is told by its attempt.

CREATE TABLE ff_stream_meta (
    execution_id TEXT NOT NULL, -- wire form
    attempt_index INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    last_ms INTEGER NOT NULL, -- the id of the last frame: <last_ms>-<last_seq>
    last_seq INTEGER NOT NULL,
    client_seq INTEGER NOT NULL, -- the last number a writer gave to a frame
    total_bytes INTEGER NOT NULL,
    durable_count INTEGER NOT NULL, -- in its life
    durable_trimmed INTEGER NOT NULL, -- frames up to this number are gone
    summary_count INTEGER NOT NULL,
    summary_trimmed INTEGER NOT NULL,
    best_effort_count INTEGER NOT NULL,
    best_effort_trimmed INTEGER NOT NULL,
    rate_uhz INTEGER NOT NULL, -- of best-effort frames
    best_effort_at INTEGER,
    PRIMARY KEY (execution_id, attempt_index)
) STRICT;

CREATE TABLE ff_stream_summary (
    execution_id TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    document BLOB NOT NULL, -- JSON
    version INTEGER NOT NULL,
    patch_kind TEXT NOT NULL,
    first_applied_at INTEGER NOT NULL,
    last_updated_at INTEGER NOT NULL,
    PRIMARY KEY (execution_id, attempt_index)
) STRICT;

-- By mode: frames are read and trimmed mode by mode.
CREATE TABLE ff_stream_frame (
    execution_id TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    mode TEXT NOT NULL,
    ms INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    number INTEGER NOT NULL, -- among the frames of its mode
    kind TEXT NOT NULL,
    frame_type TEXT NOT NULL,
    payload BLOB NOT NULL,
    encoding TEXT NOT NULL,
    source TEXT NOT NULL,
    appended_at INTEGER NOT NULL,
    correlation_id TEXT,
    client_seq INTEGER,
    summary_version INTEGER,
    due_at INTEGER, -- expires then
    PRIMARY KEY (execution_id, attempt_index, mode, ms, seq)
) STRICT;

CREATE INDEX ff_stream_frame_due ON ff_stream_frame (due_at) WHERE due_at IS NOT NULL;
