-- Several processes share one feed: how far a group was handed out, and what is not acknowledged.
CREATE TABLE ff_consumer_group (
    group_id TEXT PRIMARY KEY,
    kinds TEXT NOT NULL,
    filter TEXT NOT NULL,
    places TEXT NOT NULL, -- everything up to here was handed out
    redeliver_ms INTEGER NOT NULL,
    last_delivery INTEGER NOT NULL,
    dropped INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    moved_at INTEGER NOT NULL
) STRICT;
CREATE TABLE ff_group_delivery (
    group_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    starts TEXT NOT NULL, -- a stretch of the feed
    ends TEXT NOT NULL,
    page_size INTEGER NOT NULL,
    handed_out INTEGER NOT NULL,
    tries INTEGER NOT NULL, -- since its first event is the one it is
    redeliver_at INTEGER NOT NULL,
    subjects TEXT NOT NULL, -- hashes of what its events are about
    PRIMARY KEY (group_id, number)
) STRICT, WITHOUT ROWID;
