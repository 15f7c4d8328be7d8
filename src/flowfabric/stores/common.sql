-- Parameters are numbered as SQLite does; for PostgreSQL ?1 becomes $1. [[named]] are executions (c)
-- and their bodies (b) by the ids in ?1.
-- name: bump_catalog
UPDATE ff_partition_config SET catalog_version = catalog_version + 1
-- name: routes
SELECT route_id, namespace, lane_id, execution_kind, required_capabilities FROM ff_route ORDER BY route_id
-- name: count
SELECT route_id, state_id, count(*) FROM ff_exec_core GROUP BY route_id, state_id
-- name: standing
SELECT route_id, state_id, count(*), min(last_transition_at) FROM (
SELECT * FROM (SELECT route_id, state_id, last_transition_at FROM ff_exec_core
WHERE [[waits]] LIMIT ?1) AS waits
UNION ALL SELECT * FROM (SELECT route_id, state_id, last_transition_at FROM ff_exec_core
WHERE [[runs]] LIMIT ?1) AS runs
UNION ALL SELECT * FROM (SELECT route_id, state_id, last_transition_at FROM ff_exec_core
WHERE [[suspended]] LIMIT ?1) AS suspended
UNION ALL SELECT * FROM (SELECT route_id, state_id, last_transition_at FROM ff_exec_core
WHERE [[unroutable]] LIMIT ?1) AS unroutable
) AS c GROUP BY route_id, state_id
-- name: get
SELECT [[record]] FROM [[named]]
-- name: bodies
SELECT c.execution_id, c.partition_key, [[body_parts]] FROM [[named]]
-- name: all_bodies
SELECT c.execution_id, c.partition_key, [[body_parts]]
FROM ff_exec_core AS c JOIN ff_exec_body AS b ON b.execution_id = c.execution_id
-- name: all_attempts
SELECT [[attempt_of_a]], c.partition_key
FROM ff_attempt AS a JOIN ff_exec_core AS c ON c.execution_id = a.execution_id
-- name: update_tags
UPDATE ff_exec_body SET tags = ?2 WHERE execution_id = ?1
-- name: update_bounds
UPDATE ff_exec_body SET bounds = ?2 WHERE execution_id = ?1
-- name: update_core_route
UPDATE ff_exec_core SET route_id = ?2 WHERE execution_id = ?1
-- name: update_body_route
UPDATE ff_exec_body SET route_id = ?2 WHERE execution_id = ?1
-- name: delete_tags
DELETE FROM ff_exec_tag WHERE execution_id = ?1
-- name: attempts
SELECT [[attempt_without_result]] FROM ff_attempt WHERE execution_id = ?1 ORDER BY attempt_index
-- name: result
SELECT [[attempt]] FROM ff_attempt WHERE execution_id = ?1 AND attempt_index = ?2
-- name: ids_between
SELECT partition_key, execution_id FROM ff_exec_core
WHERE execution_id BETWEEN ?1 AND ?2 ORDER BY execution_id DESC LIMIT ?3
-- name: ids_ending
SELECT c.partition_key, c.execution_id FROM (
    SELECT n.execution_id FROM (
        SELECT execution_id FROM ff_exec_core ORDER BY execution_id DESC LIMIT ?2
    ) AS n
    WHERE [[ending]] = ?1 LIMIT ?3
) AS found CROSS JOIN ff_exec_core AS c WHERE c.execution_id = found.execution_id
ORDER BY c.execution_id DESC
-- name: all_records
SELECT [[record]] FROM ff_exec_core AS c JOIN ff_exec_body AS b ON b.execution_id = c.execution_id
-- name: purge_tags
DELETE FROM ff_exec_tag WHERE execution_id [[among_ids]]
-- name: purge_attempts
DELETE FROM ff_attempt WHERE execution_id [[among_ids]]
-- name: purge_body
DELETE FROM ff_exec_body WHERE execution_id [[among_ids]]
-- name: purge_core
DELETE FROM ff_exec_core WHERE execution_id [[among_ids]]
