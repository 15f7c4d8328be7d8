-- Access tokens: what programs show to a server.
CREATE TABLE ff_access_token (
    token_id TEXT COLLATE "C" PRIMARY KEY,
    digest BYTEA NOT NULL, -- SHA-256 of the secret
    name TEXT NOT NULL,
    scopes TEXT NOT NULL, -- JSON
    namespaces TEXT, -- JSON; NULL: all of them
    speaks_for INTEGER NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at BIGINT,
    revoked_by TEXT NOT NULL
);
