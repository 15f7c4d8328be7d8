-- Executions wait for the ends of others, and in several of their branches at once.

ALTER TABLE ff_exec_core ADD COLUMN is_watched INTEGER CHECK (is_watched >= 0);
ALTER TABLE ff_waitpoint ADD COLUMN is_lasting INTEGER NOT NULL DEFAULT 0;

CREATE TABLE ff_watch (
    execution_id TEXT COLLATE "C" NOT NULL, -- whose end is waited for
    watcher_id TEXT COLLATE "C" NOT NULL, -- the epoch of the end, where the watchers have yet to be told
    waitpoint_id TEXT COLLATE "C" NOT NULL, -- where the watcher is told
    needs_all INTEGER NOT NULL,
    due_at BIGINT,
    PRIMARY KEY (execution_id, watcher_id)
);
CREATE INDEX ff_watch_watcher ON ff_watch (watcher_id, waitpoint_id);
CREATE INDEX ff_watch_due ON ff_watch (due_at) WHERE due_at IS NOT NULL;
