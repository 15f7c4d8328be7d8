-- Sessions of browsers, found by the hash of their cookie.
CREATE TABLE ff_session (
    digest TEXT PRIMARY KEY, -- SHA-256 of the cookie, in hex
    way TEXT NOT NULL CHECK (way IN ('token', 'link', 'oidc', 'proxy')),
    subject TEXT NOT NULL, -- the name of the person, or of the token
    token_id TEXT, -- the access token that the session was begun with
    roles TEXT NOT NULL, -- JSON: the groups of the person that the configuration names
    created_at INTEGER NOT NULL,
    used_at INTEGER NOT NULL,
    idle_ms INTEGER NOT NULL,
    ends_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL -- when it is over without another use
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_session_due ON ff_session (due_at);

-- The audit trail: a row for each act of a person or program, written with what it tells of, and
-- for refused calls. A row is never changed.
CREATE TABLE ff_audit (
    occurred_at INTEGER NOT NULL,
    audit_id TEXT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT NOT NULL,
    reason TEXT NOT NULL,
    request_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    code TEXT NOT NULL, -- of the refusal; empty: it was done
    times INTEGER NOT NULL, -- how many alike were gathered in it
    details TEXT, -- JSON
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (occurred_at, audit_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ff_audit_actor ON ff_audit (actor, occurred_at, audit_id);
CREATE INDEX ff_audit_action ON ff_audit (action, occurred_at, audit_id);
CREATE INDEX ff_audit_subject ON ff_audit (subject, occurred_at, audit_id);
CREATE INDEX ff_audit_namespace ON ff_audit (namespace, occurred_at, audit_id);
CREATE INDEX ff_audit_expiry ON ff_audit (expires_at);
