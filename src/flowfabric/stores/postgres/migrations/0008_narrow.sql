-- Less to write for each execution.

-- Every execution waits for its first attempt (1) and runs (60). In one index with the other states,
-- each of these two grew in the middle, where pages are split into halves and logged as such, and
-- every entry held its state. Each by itself grows at its end.
DROP INDEX ff_exec_state;
CREATE INDEX ff_exec_waiting ON ff_exec_core (created_at, execution_id) WHERE state_id = 1;
CREATE INDEX ff_exec_running ON ff_exec_core (created_at, execution_id) WHERE state_id = 60;
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id NOT IN (1, 60, 80, 81);

-- Columns that nearly always hold the same are empty then (stores/postgres/usual.py). A number that
-- each version of the row repeats costs its bytes in the table and in the log every time.
ALTER TABLE ff_exec_core
    ALTER COLUMN attempt_spent_ms DROP NOT NULL, ALTER COLUMN attempt_spent_ms DROP DEFAULT,
    ALTER COLUMN retry_count DROP NOT NULL, ALTER COLUMN retry_count DROP DEFAULT,
    ALTER COLUMN replay_count DROP NOT NULL, ALTER COLUMN replay_count DROP DEFAULT,
    ALTER COLUMN reclaim_count DROP NOT NULL, ALTER COLUMN reclaim_count DROP DEFAULT,
    ALTER COLUMN aging_ms DROP NOT NULL, ALTER COLUMN aging_ms DROP DEFAULT,
    ALTER COLUMN side_holds DROP NOT NULL, ALTER COLUMN side_holds DROP DEFAULT,
    ALTER COLUMN signal_count DROP NOT NULL, ALTER COLUMN signal_count DROP DEFAULT,
    ALTER COLUMN signal_bytes DROP NOT NULL, ALTER COLUMN signal_bytes DROP DEFAULT,
    ALTER COLUMN open_group DROP NOT NULL, ALTER COLUMN open_group DROP DEFAULT,
    ALTER COLUMN next_attempt_type DROP NOT NULL, ALTER COLUMN next_attempt_type DROP DEFAULT,
    ALTER COLUMN blocking_detail DROP NOT NULL,
    ALTER COLUMN eligible_at DROP NOT NULL,
    ALTER COLUMN last_mutation_at DROP NOT NULL;

CREATE OR REPLACE VIEW ff_execution AS
SELECT
    '{fp:' || c.partition_key || '}:' || c.execution_id::text AS id,
    r.namespace, r.lane_id, r.execution_kind, r.required_capabilities,
    s.public_state, s.blocking_reason, coalesce(c.blocking_detail, '') AS blocking_detail, c.priority,
    c.worker_id, c.worker_instance_id, c.lease_expires_at,
    c.attempt_index, c.total_attempt_count, coalesce(c.retry_count, 0) AS retry_count, c.created_at,
    coalesce(c.eligible_at, c.created_at) AS eligible_at,
    c.started_at, c.completed_at, c.failure_reason, b.tags, b.idempotency_key
FROM ff_exec_core AS c
JOIN ff_route AS r ON r.route_id = c.route_id
JOIN ff_state AS s ON s.state_id = c.state_id
JOIN ff_exec_body AS b ON b.execution_id = c.execution_id;
