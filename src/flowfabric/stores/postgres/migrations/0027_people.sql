-- Sessions of browsers, found by the hash of their cookie.
CREATE TABLE ff_session (
    digest TEXT COLLATE "C" PRIMARY KEY, -- SHA-256 of the cookie, in hex
    way TEXT COLLATE "C" NOT NULL CHECK (way IN ('token', 'link', 'oidc', 'proxy')),
    subject TEXT NOT NULL, -- the name of the person, or of the token
    token_id TEXT COLLATE "C", -- the access token that the session was begun with
    roles TEXT NOT NULL, -- JSON: the groups of the person that the configuration names
    created_at BIGINT NOT NULL,
    used_at BIGINT NOT NULL,
    idle_ms BIGINT NOT NULL,
    ends_at BIGINT NOT NULL,
    due_at BIGINT NOT NULL -- when it is over without another use
);
CREATE INDEX ff_session_due ON ff_session (due_at);

-- The audit trail: a row for each act of a person or program, written with what it tells of, and
-- for refused calls. A row is never changed.
CREATE TABLE ff_audit (
    occurred_at BIGINT NOT NULL,
    audit_id TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    address TEXT NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    subject TEXT COLLATE "C" NOT NULL,
    reason TEXT NOT NULL,
    request_id TEXT NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    code TEXT NOT NULL, -- of the refusal; empty: it was done
    times INTEGER NOT NULL, -- how many alike were gathered in it
    details TEXT, -- JSON
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (occurred_at, audit_id)
);
CREATE INDEX ff_audit_actor ON ff_audit (actor, occurred_at, audit_id);
CREATE INDEX ff_audit_action ON ff_audit (action, occurred_at, audit_id);
CREATE INDEX ff_audit_subject ON ff_audit (subject, occurred_at, audit_id);
CREATE INDEX ff_audit_namespace ON ff_audit (namespace, occurred_at, audit_id);
CREATE INDEX ff_audit_expiry ON ff_audit (expires_at);
