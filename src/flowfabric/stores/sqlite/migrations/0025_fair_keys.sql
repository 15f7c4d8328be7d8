-- Fair keys. Weights of keys on a lane, as JSON; NULL: all alike.
ALTER TABLE ff_lane_registry ADD COLUMN fair_weights TEXT;

-- Unfinished executions with a fair key: their tags, by which the next ones get theirs.
CREATE TABLE ff_fair (
    execution_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    lane_id TEXT NOT NULL,
    priority INTEGER NOT NULL,
    phase TEXT NOT NULL CHECK (phase IN ('ready', 'running', 'away')),
    tag INTEGER NOT NULL,
    fair_key TEXT NOT NULL,
    finish INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_fair_tag ON ff_fair (namespace, lane_id, priority, phase, tag, execution_id);
CREATE INDEX ff_fair_key ON ff_fair (namespace, lane_id, priority, fair_key, finish, execution_id);
