-- Fair keys. Weights of keys on a lane, as JSON; NULL: all alike.
ALTER TABLE ff_lane_registry ADD COLUMN fair_weights TEXT;

-- Unfinished executions with a fair key: their tags, by which the next ones get theirs.
CREATE TABLE ff_fair (
    execution_id TEXT COLLATE "C" PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    lane_id TEXT COLLATE "C" NOT NULL,
    priority INTEGER NOT NULL,
    phase TEXT COLLATE "C" NOT NULL CHECK (phase IN ('ready', 'running', 'away')),
    tag BIGINT NOT NULL,
    fair_key TEXT COLLATE "C" NOT NULL,
    finish BIGINT NOT NULL
);
CREATE INDEX ff_fair_tag ON ff_fair (namespace, lane_id, priority, phase, tag, execution_id);
CREATE INDEX ff_fair_key ON ff_fair (namespace, lane_id, priority, fair_key, finish, execution_id);
