-- The journal of an execution: what its handler has done. Entries are only ever added.

ALTER TABLE ff_exec_core ADD COLUMN journal_index INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_exec_core ADD COLUMN chapter_index INTEGER NOT NULL DEFAULT 0;
-- Children carry the number in their keys: what a replay has spawned must be found again.
UPDATE ff_exec_core SET journal_index = replay_count WHERE replay_count > 0;

CREATE TABLE ff_journal (
    execution_id TEXT NOT NULL, -- wire form
    journal_index INTEGER NOT NULL, -- which journal: a fresh replay begins the next one
    chapter_index INTEGER NOT NULL,
    position INTEGER NOT NULL,
    asked INTEGER NOT NULL, -- which call of its scope
    key TEXT NOT NULL, -- scope/name#n
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    began_at INTEGER NOT NULL,
    took_ms INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    attempt_index INTEGER NOT NULL,
    lease_epoch INTEGER NOT NULL,
    is_secret INTEGER NOT NULL,
    value BLOB,
    digest BLOB, -- of the arguments
    error TEXT, -- JSON
    code TEXT, -- JSON: the format and the version that began the journal, on its first entry
    next_key TEXT, -- what the handler asked for next
    refers_to TEXT, -- of a wait: its suspension
    PRIMARY KEY (execution_id, journal_index, chapter_index, position)
) STRICT, WITHOUT ROWID;
