-- Retries with another input, by the execution that has ended.
CREATE TABLE ff_retry (
    execution_id TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    retry_id TEXT COLLATE "C" NOT NULL, -- the new one
    PRIMARY KEY (execution_id, created_at, retry_id)
);
