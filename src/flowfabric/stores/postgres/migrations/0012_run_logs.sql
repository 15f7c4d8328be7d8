-- Logs of runs: what handlers log, by attempt. Whether more may come is told by the attempt.

CREATE TABLE ff_run_log (
    execution_id TEXT COLLATE "C" NOT NULL, -- wire form
    attempt_index BIGINT NOT NULL,
    line_count BIGINT NOT NULL, -- the number of the last line
    byte_count BIGINT NOT NULL,
    dropped_count BIGINT NOT NULL, -- lines for which there was no room
    client_seq BIGINT NOT NULL, -- the last number a writer gave to a line
    PRIMARY KEY (execution_id, attempt_index)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02); -- each append writes it again

-- Several lines in a row; the key has the number of the last one.
CREATE TABLE ff_run_log_chunk (
    execution_id TEXT COLLATE "C" NOT NULL,
    attempt_index BIGINT NOT NULL,
    last_line BIGINT NOT NULL,
    lines TEXT NOT NULL, -- JSON
    PRIMARY KEY (execution_id, attempt_index, last_line)
);
