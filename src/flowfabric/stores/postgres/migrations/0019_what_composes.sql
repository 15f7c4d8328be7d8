-- What composes: each section is one capability.

-- Ties of an execution to others outside of its flow, as JSON; NULL without any.
ALTER TABLE ff_exec_body ADD COLUMN ties TEXT;

-- Order: executions of one serial key run one at a time.

INSERT INTO ff_state VALUES
    (22, 'runnable', 'unowned', 'blocked_by_turn', 'waiting_for_turn', 'none', 'pending_first_attempt', 'waiting'),
    (23, 'runnable', 'unowned', 'blocked_by_turn', 'waiting_for_turn', 'none', 'pending_retry_attempt', 'waiting'),
    (24, 'runnable', 'unowned', 'blocked_by_turn', 'waiting_for_turn', 'none', 'pending_replay_attempt', 'waiting'),
    (25, 'runnable', 'unowned', 'blocked_by_turn', 'waiting_for_turn', 'none', 'attempt_interrupted', 'waiting');

-- its number in the line of its key, while others are ahead
ALTER TABLE ff_exec_core ADD COLUMN line_place BIGINT CHECK (line_place >= 0);

CREATE TABLE ff_serial (
    namespace TEXT COLLATE "C" NOT NULL,
    serial_key TEXT COLLATE "C" NOT NULL,
    head_id TEXT COLLATE "C" NOT NULL, -- has the turn, or failed and holds up the others
    head_number BIGINT NOT NULL,
    last_number BIGINT NOT NULL,
    waiting INTEGER NOT NULL, -- behind the head
    held_at BIGINT,
    due_at BIGINT, -- when the loop tells the head that it has the turn
    PRIMARY KEY (namespace, serial_key)
);
CREATE INDEX ff_serial_due ON ff_serial (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_serial_line (
    namespace TEXT COLLATE "C" NOT NULL,
    serial_key TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, serial_key, number)
);
-- What runs publish about themselves: the last value of each execution.
CREATE TABLE ff_published (
    execution_id TEXT COLLATE "C" PRIMARY KEY,
    value BYTEA NOT NULL, -- JSON
    published_at BIGINT NOT NULL,
    attempt_index INTEGER NOT NULL
);

-- Schedules, and what became of each of their ticks.
CREATE TABLE ff_schedule (
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    definition TEXT COLLATE "C" NOT NULL, -- JSON
    start BYTEA NOT NULL, -- MessagePack: the request for an execution or a flow
    kind TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL,
    done_until BIGINT NOT NULL, -- every tick up to here has its fate
    next_at BIGINT,
    next_tick BIGINT,
    paused_at BIGINT,
    paused_by TEXT COLLATE "C" NOT NULL,
    pause_reason TEXT COLLATE "C" NOT NULL,
    runs BIGINT NOT NULL,
    failures INTEGER NOT NULL,
    last_tick BIGINT,
    last_run_id TEXT COLLATE "C",
    queued_tick BIGINT,
    last_backfill_id TEXT COLLATE "C",
    origin TEXT COLLATE "C", -- of a declared one: the program that declares it
    digest TEXT COLLATE "C" NOT NULL,
    digest_before TEXT COLLATE "C" NOT NULL,
    flaps INTEGER NOT NULL,
    undeclared_at BIGINT,
    PRIMARY KEY (namespace, schedule_id)
);
CREATE INDEX ff_schedule_expiry ON ff_schedule (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX ff_schedule_origin ON ff_schedule (namespace, origin) WHERE origin IS NOT NULL;

-- The key makes one run per tick.
CREATE TABLE ff_schedule_tick (
    namespace TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    tick BIGINT NOT NULL,
    fate TEXT COLLATE "C" NOT NULL,
    decided_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    number BIGINT,
    run_id TEXT COLLATE "C",
    merged_into BIGINT,
    error TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, schedule_id, tick)
);
CREATE INDEX ff_schedule_tick_expiry ON ff_schedule_tick (expires_at);
-- Bulk operations: one change to every execution that a filter selects.
CREATE TABLE ff_operation (
    operation_id TEXT COLLATE "C" PRIMARY KEY,
    action TEXT NOT NULL,
    state TEXT NOT NULL,
    namespace TEXT, -- NULL: of all tenants
    filter TEXT NOT NULL,
    arguments TEXT NOT NULL,
    actor TEXT NOT NULL,
    matched BIGINT NOT NULL,
    outcomes TEXT NOT NULL, -- how many of each
    place_at BIGINT, -- the last execution that it has met, newest first
    place_id TEXT,
    put_off TEXT NOT NULL, -- met, but locked elsewhere
    created_at BIGINT NOT NULL,
    finished_at BIGINT,
    due_at BIGINT
);
CREATE INDEX ff_operation_due ON ff_operation (due_at) WHERE due_at IS NOT NULL;

-- Uniqueness: one live execution per key.

CREATE TABLE ff_unique (
    namespace TEXT COLLATE "C" NOT NULL,
    execution_kind TEXT COLLATE "C" NOT NULL,
    unique_key TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C" NOT NULL,
    opened_at BIGINT NOT NULL,
    items INTEGER NOT NULL, -- of a batch
    PRIMARY KEY (namespace, execution_kind, unique_key)
);
-- where the items of a submit begin in the batch they joined
ALTER TABLE ff_idempotency ADD COLUMN batch_index INTEGER;
-- The positions of the entries by which an execution is undone, as JSON; NULL without any.
ALTER TABLE ff_exec_core ADD COLUMN undos TEXT;
-- Which step runs, as renewals of leases tell: a row for executions whose step outlasted one.
CREATE TABLE ff_running (
    execution_id TEXT COLLATE "C" PRIMARY KEY,
    key TEXT NOT NULL,
    since BIGINT NOT NULL,
    told_at BIGINT NOT NULL,
    lease_epoch BIGINT NOT NULL
);

-- Arguments of steps, as JSON, where they are short and no secret: shown where code gives others.
ALTER TABLE ff_journal ADD COLUMN arguments BYTEA;

-- A budget that asks: questions about limits, the executions that wait for the answers, and what
-- these may reserve beyond a limit.
ALTER TABLE ff_budget_usage ADD COLUMN allowed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ff_budget_usage ADD COLUMN soft_allowed BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ff_budget_hold ADD COLUMN allowed TEXT;

CREATE TABLE ff_budget_ask (
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    limit_kind TEXT COLLATE "C" NOT NULL CHECK (limit_kind IN ('hard', 'soft')),
    number INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'approved', 'rejected', 'over')),
    asked_at BIGINT NOT NULL,
    asked_by TEXT NOT NULL,
    execution_kind TEXT NOT NULL,
    generation BIGINT NOT NULL,
    limit_then BIGINT NOT NULL,
    used_then BIGINT NOT NULL,
    least BIGINT NOT NULL,
    wanted BIGINT NOT NULL,
    spenders INTEGER NOT NULL,
    open_since BIGINT, -- while it has no answer
    answered_at BIGINT,
    answered_by TEXT NOT NULL,
    comment TEXT NOT NULL,
    raise_by BIGINT NOT NULL,
    is_once INTEGER NOT NULL CHECK (is_once IN (0, 1)),
    due_at BIGINT, -- when spenders are to be told, or to be looked at
    PRIMARY KEY (budget_id, dimension, limit_kind)
);
CREATE INDEX ff_budget_ask_open ON ff_budget_ask (open_since) WHERE open_since IS NOT NULL;
CREATE INDEX ff_budget_ask_due ON ff_budget_ask (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE ff_budget_asker (
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    limit_kind TEXT COLLATE "C" NOT NULL CHECK (limit_kind IN ('hard', 'soft')),
    waitpoint_id TEXT COLLATE "C" NOT NULL, -- where it is told
    execution_id TEXT COLLATE "C" NOT NULL,
    amount BIGINT NOT NULL,
    asked_at BIGINT NOT NULL,
    PRIMARY KEY (budget_id, dimension, limit_kind, waitpoint_id)
);
CREATE INDEX ff_budget_asker_execution ON ff_budget_asker (execution_id);

CREATE TABLE ff_budget_allowance (
    execution_id TEXT COLLATE "C" NOT NULL,
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    limit_kind TEXT COLLATE "C" NOT NULL CHECK (limit_kind IN ('hard', 'soft')),
    generation BIGINT NOT NULL,
    amount BIGINT NOT NULL,
    PRIMARY KEY (execution_id, budget_id, dimension, limit_kind)
);

-- Mailboxes of executions, open from their creation to their end, and their messages.
CREATE TABLE ff_mailbox (
    execution_id TEXT COLLATE "C" NOT NULL,
    mailbox TEXT COLLATE "C" NOT NULL,
    payload_type TEXT, -- JSON schema
    sent BIGINT NOT NULL, -- the number of the next message
    received BIGINT NOT NULL, -- the number of the next unread one
    unread_bytes BIGINT NOT NULL,
    waitpoint_id TEXT COLLATE "C", -- where a receiver wants to be told
    PRIMARY KEY (execution_id, mailbox)
);
CREATE TABLE ff_message (
    execution_id TEXT COLLATE "C" NOT NULL,
    mailbox TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    sent_at BIGINT NOT NULL,
    sender TEXT COLLATE "C" NOT NULL,
    wants_reply INTEGER NOT NULL,
    payload BYTEA, -- JSON; none once it was received
    received_at BIGINT,
    reply BYTEA, -- JSON
    replied_at BIGINT,
    due_at BIGINT, -- when one that is answered goes
    PRIMARY KEY (execution_id, mailbox, number)
);
CREATE INDEX ff_message_due ON ff_message (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE ff_message_dedup (
    execution_id TEXT COLLATE "C" NOT NULL,
    mailbox TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    due_at BIGINT NOT NULL,
    PRIMARY KEY (execution_id, mailbox, idempotency_key)
);
CREATE INDEX ff_message_dedup_due ON ff_message_dedup (due_at);

-- Dead letters: executions that failed or expired, until they are replayed.
CREATE TABLE ff_dead_letter (
    execution_id TEXT COLLATE "C" PRIMARY KEY,
    namespace TEXT COLLATE "C" NOT NULL,
    execution_kind TEXT COLLATE "C" NOT NULL,
    category TEXT COLLATE "C" NOT NULL,
    ended_at BIGINT NOT NULL,
    open_at BIGINT -- NULL: dismissed
);
CREATE INDEX ff_dead_letter_open ON ff_dead_letter (namespace, open_at, execution_id) WHERE open_at IS NOT NULL;
CREATE INDEX ff_dead_letter_kind ON ff_dead_letter (namespace, execution_kind, open_at, execution_id)
    WHERE open_at IS NOT NULL;
CREATE INDEX ff_dead_letter_category ON ff_dead_letter (namespace, category, open_at, execution_id)
    WHERE open_at IS NOT NULL;
INSERT INTO ff_dead_letter
SELECT '{fp:' || c.partition_key || '}:' || c.execution_id, r.namespace, r.execution_kind,
    coalesce(c.failure_category, CASE WHEN c.state_id IN (82, 83) THEN 'failed' ELSE 'expired' END),
    coalesce(c.completed_at, 0), coalesce(c.completed_at, 0)
FROM ff_exec_core AS c JOIN ff_route AS r ON r.route_id = c.route_id
WHERE c.state_id IN (82, 83, 86, 87);

-- Hooks of a flow, as JSON; NULL without any.
ALTER TABLE ff_flow_core ADD COLUMN hooks TEXT;
