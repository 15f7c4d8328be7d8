-- Events are read in the order of the transactions that wrote them, and only up to the oldest one that
-- still runs: numbers are drawn before the commit, so a smaller one may appear later.
ALTER TABLE ff_worker_registry_event ADD COLUMN xact_id XID8 NOT NULL DEFAULT pg_current_xact_id();
ALTER TABLE ff_lease_event DROP CONSTRAINT ff_lease_event_pkey, ADD PRIMARY KEY (xact_id, event_id);
ALTER TABLE ff_completion_event DROP CONSTRAINT ff_completion_event_pkey, ADD PRIMARY KEY (xact_id, event_id);
ALTER TABLE ff_operator_event DROP CONSTRAINT ff_operator_event_pkey, ADD PRIMARY KEY (xact_id, event_id);
ALTER TABLE ff_signal_event DROP CONSTRAINT ff_signal_event_pkey, ADD PRIMARY KEY (xact_id, event_id);
ALTER TABLE ff_flow_event DROP CONSTRAINT ff_flow_event_pkey, ADD PRIMARY KEY (xact_id, event_id);
ALTER TABLE ff_worker_registry_event DROP CONSTRAINT ff_worker_registry_event_pkey, ADD PRIMARY KEY (xact_id, event_id);

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
    trimmed_xact BIGINT NOT NULL,
    trimmed_id BIGINT NOT NULL,
    trimmed_at BIGINT NOT NULL
);
