-- Several processes share one feed: how far a group was handed out, and what is not acknowledged.
CREATE TABLE ff_consumer_group (
    group_id TEXT COLLATE "C" PRIMARY KEY,
    kinds TEXT NOT NULL,
    filter TEXT NOT NULL,
    places TEXT NOT NULL,
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
    starts TEXT NOT NULL,
    ends TEXT NOT NULL,
    page_size BIGINT NOT NULL,
    tries BIGINT NOT NULL,
    redeliver_at BIGINT NOT NULL,
    subjects TEXT NOT NULL,
    PRIMARY KEY (group_id, number)
);
