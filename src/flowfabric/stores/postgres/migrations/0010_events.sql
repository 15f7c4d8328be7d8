-- One sequence numbers the events of all logs. A number is drawn while what its event is about is locked, so
-- events about one thing have numbers in their order; a transaction says in an advisory lock which number was the
-- last before it draws its own, and readers wait for those.
CREATE SEQUENCE ff_event_id;
-- Roles that write events were granted their tables before this was here. A number alone tells nothing.
GRANT USAGE, SELECT ON SEQUENCE ff_event_id TO PUBLIC;
SELECT setval('ff_event_id', greatest(1
    , (SELECT max(event_id) FROM ff_lease_event)
    , (SELECT max(event_id) FROM ff_completion_event)
    , (SELECT max(event_id) FROM ff_operator_event)
    , (SELECT max(event_id) FROM ff_signal_event)
    , (SELECT max(event_id) FROM ff_flow_event)
    , (SELECT max(event_id) FROM ff_worker_registry_event)
));
ALTER TABLE ff_lease_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id'),
    DROP COLUMN xact_id;
ALTER TABLE ff_completion_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id'),
    DROP COLUMN xact_id;
ALTER TABLE ff_operator_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id'),
    DROP COLUMN xact_id;
ALTER TABLE ff_signal_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id'),
    DROP COLUMN xact_id;
ALTER TABLE ff_flow_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id'),
    DROP COLUMN xact_id;
ALTER TABLE ff_worker_registry_event
    ALTER COLUMN event_id DROP IDENTITY,
    ALTER COLUMN event_id SET DEFAULT nextval('ff_event_id');

-- What a feed is filtered by, without a look at executions that may be gone.
ALTER TABLE ff_lease_event ADD COLUMN lane_id TEXT, ADD COLUMN execution_kind TEXT;
ALTER TABLE ff_completion_event ADD COLUMN lane_id TEXT, ADD COLUMN execution_kind TEXT;

-- The timeline of one execution or flow. Leases that were simply taken are told by the attempts, so
-- plain work enters no row here.
CREATE INDEX ff_lease_event_execution ON ff_lease_event (execution_id) WHERE event_type <> 'acquired';
CREATE INDEX ff_operator_event_subject ON ff_operator_event (subject);
CREATE INDEX ff_signal_event_execution ON ff_signal_event (execution_id);
CREATE INDEX ff_flow_event_flow ON ff_flow_event (flow_id);

-- How far each log was trimmed: a reader behind it has lost events.
CREATE TABLE ff_log_mark (
    log TEXT COLLATE "C" PRIMARY KEY,
    trimmed_id BIGINT NOT NULL,
    trimmed_at BIGINT NOT NULL
);
