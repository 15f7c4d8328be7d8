-- Logs of runs: what handlers log, by attempt. Whether more may come is told by the attempt.

CREATE TABLE ff_run_log (
    execution_id TEXT NOT NULL, -- wire form
    attempt_index INTEGER NOT NULL,
    line_count INTEGER NOT NULL, -- the number of the last line
    byte_count INTEGER NOT NULL,
    dropped_count INTEGER NOT NULL, -- lines for which there was no room
    client_seq INTEGER NOT NULL, -- the last number a writer gave to a line
    PRIMARY KEY (execution_id, attempt_index)
) STRICT;

-- Several lines in a row; the key has the number of the last one.
CREATE TABLE ff_run_log_chunk (
    execution_id TEXT NOT NULL,
    attempt_index INTEGER NOT NULL,
    last_line INTEGER NOT NULL,
    lines TEXT NOT NULL, -- JSON
    PRIMARY KEY (execution_id, attempt_index, last_line)
) STRICT;
