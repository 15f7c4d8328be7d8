-- Workers elsewhere: what they tell of themselves, and claims whose answers may be lost.

-- the version of its client; how many handlers it runs at once, and ran at its last heartbeat
ALTER TABLE ff_worker_registry ADD COLUMN host TEXT;
ALTER TABLE ff_worker_registry ADD COLUMN version TEXT;
ALTER TABLE ff_worker_registry ADD COLUMN concurrency INTEGER;
ALTER TABLE ff_worker_registry ADD COLUMN busy INTEGER;
ALTER TABLE ff_worker_registry ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1));

-- The last claim of a worker that named one by an id, for its repetition.
CREATE TABLE ff_claim (
    worker_instance_id TEXT PRIMARY KEY,
    claim_id TEXT NOT NULL,
    digest TEXT NOT NULL, -- of its parameters
    leases TEXT NOT NULL, -- JSON: by execution the epoch, and the kind of the handle
    repeats INTEGER NOT NULL, -- how often it was answered again
    due_at INTEGER NOT NULL -- when its leases have lapsed
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_claim_due ON ff_claim (due_at);
