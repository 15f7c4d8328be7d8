-- Several processes share one feed: how far a group was handed out, and what is not acknowledged.
CREATE TABLE ff_consumer_group (
    group_id TEXT COLLATE "C" PRIMARY KEY,
    kinds TEXT NOT NULL,
    filter TEXT NOT NULL,
    places TEXT NOT NULL, -- everything up to here was handed out
    redeliver_ms BIGINT NOT NULL,
    last_delivery BIGINT NOT NULL,
    dropped BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    moved_at BIGINT NOT NULL
);
CREATE TABLE ff_group_delivery (
    group_id TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    consumer TEXT NOT NULL,
    starts TEXT NOT NULL, -- a stretch of the feed
    ends TEXT NOT NULL,
    page_size BIGINT NOT NULL,
    handed_out BIGINT NOT NULL,
    tries BIGINT NOT NULL, -- since its first event is the one it is
    redeliver_at BIGINT NOT NULL,
    subjects TEXT NOT NULL, -- hashes of what its events are about
    PRIMARY KEY (group_id, number)
);
