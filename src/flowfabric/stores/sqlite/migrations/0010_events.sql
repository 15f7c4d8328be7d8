-- What a feed is filtered by, without a look at executions that may be gone.
ALTER TABLE ff_lease_event ADD COLUMN lane_id TEXT;
ALTER TABLE ff_lease_event ADD COLUMN execution_kind TEXT;
ALTER TABLE ff_completion_event ADD COLUMN lane_id TEXT;
ALTER TABLE ff_completion_event ADD COLUMN execution_kind TEXT;

-- The timeline of one execution or flow. Leases that were simply taken are told by the attempts, so
-- plain work enters no row here.
CREATE INDEX ff_lease_event_execution ON ff_lease_event (execution_id) WHERE event_type <> 'acquired';
CREATE INDEX ff_operator_event_subject ON ff_operator_event (subject);
CREATE INDEX ff_signal_event_execution ON ff_signal_event (execution_id);
CREATE INDEX ff_flow_event_flow ON ff_flow_event (flow_id);

-- How far each log was trimmed: a reader behind it has lost events.
CREATE TABLE ff_log_mark (
    log TEXT PRIMARY KEY,
    trimmed_id INTEGER NOT NULL,
    trimmed_at INTEGER NOT NULL
) STRICT;
