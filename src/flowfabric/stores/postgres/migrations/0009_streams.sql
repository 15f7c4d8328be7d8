-- Streams: what attempts show while they run. Whether a stream is closed is told by its attempt.

CREATE TABLE ff_stream_meta (
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    attempt_index BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    last_ms BIGINT NOT NULL, -- the id of the last frame: <last_ms>-<last_seq>
    last_seq BIGINT NOT NULL,
    client_seq BIGINT NOT NULL, -- the last number a writer gave to a frame
    total_bytes BIGINT NOT NULL,
    durable_count BIGINT NOT NULL, -- in its life
    durable_trimmed BIGINT NOT NULL, -- frames up to this number are gone
    summary_count BIGINT NOT NULL,
    summary_trimmed BIGINT NOT NULL,
    best_effort_count BIGINT NOT NULL,
    best_effort_trimmed BIGINT NOT NULL,
    rate_uhz BIGINT NOT NULL, -- of best-effort frames
    best_effort_at BIGINT,
    PRIMARY KEY (execution_id, attempt_index)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02); -- each append writes it again

CREATE TABLE ff_stream_summary (
    execution_id TEXT COLLATE "C" NOT NULL,
    attempt_index BIGINT NOT NULL,
    document BYTEA NOT NULL, -- JSON
    version BIGINT NOT NULL,
    patch_kind TEXT NOT NULL,
    first_applied_at BIGINT NOT NULL,
    last_updated_at BIGINT NOT NULL,
    PRIMARY KEY (execution_id, attempt_index)
);

-- By mode: frames are read and trimmed mode by mode.
CREATE TABLE ff_stream_frame (
    execution_id TEXT COLLATE "C" NOT NULL,
    attempt_index BIGINT NOT NULL,
    mode TEXT COLLATE "C" NOT NULL,
    ms BIGINT NOT NULL,
    seq BIGINT NOT NULL,
    number BIGINT NOT NULL, -- among the frames of its mode
    kind TEXT NOT NULL,
    frame_type TEXT NOT NULL,
    payload BYTEA NOT NULL,
    encoding TEXT NOT NULL,
    source TEXT NOT NULL,
    appended_at BIGINT NOT NULL,
    correlation_id TEXT,
    client_seq BIGINT,
    summary_version BIGINT,
    due_at BIGINT, -- expires then
    PRIMARY KEY (execution_id, attempt_index, mode, ms, seq)
);

CREATE INDEX ff_stream_frame_due ON ff_stream_frame (due_at) WHERE due_at IS NOT NULL;
