-- name: bump_catalog
UPDATE ff_partition_config SET catalog_version = catalog_version + 1
-- name: routes
SELECT route_id, namespace, lane_id, execution_kind, required_capabilities FROM ff_route ORDER BY route_id
-- name: count
SELECT route_id, state_id, count(*) FROM ff_exec_core GROUP BY route_id, state_id
-- name: all_bodies
SELECT c.execution_id, c.partition_key,
    [[body_parts]]
FROM ff_exec_core AS c JOIN ff_exec_body AS b ON b.execution_id = c.execution_id
-- name: all_attempts
SELECT a.execution_id, a.attempt_index, a.attempt_id, a.attempt_type, a.outcome, a.lease_epoch,
    a.worker_id, a.worker_instance_id, a.started_at, a.ended_at, a.failure_reason,
    a.failure_category, a.result, a.result_encoding, c.partition_key
FROM ff_attempt AS a JOIN ff_exec_core AS c ON c.execution_id = a.execution_id
