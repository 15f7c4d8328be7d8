-- CROSS JOIN pins the order: statistics taken from a nearly empty file must not change a plan.
-- name: catalog_version
SELECT catalog_version FROM ff_partition_config
-- name: insert_route
INSERT INTO ff_route (namespace, lane_id, execution_kind, required_capabilities)
VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
-- name: insert_lane
INSERT INTO ff_lane_registry (lane_id, lane_state, registered_at, changed_at, reason)
VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
-- name: ready
SELECT [[record]], [[body_parts]] FROM ff_exec_core AS c INDEXED BY ff_exec_ready
CROSS JOIN ff_exec_body AS b ON b.execution_id = c.execution_id
WHERE c.route_id = ?1 AND [[claimable]]
ORDER BY c.ready_rank, c.execution_id LIMIT ?3
-- name: next_due
SELECT (SELECT min(due_at) FROM ff_exec_core INDEXED BY ff_exec_due WHERE due_at IS NOT NULL),
    (SELECT min(purge_at) FROM ff_exec_core INDEXED BY ff_exec_purge WHERE purge_at IS NOT NULL)
-- name: update_step
UPDATE ff_exec_core SET [[step_marks]] WHERE execution_id IN (SELECT value FROM json_each(?))
-- name: update_freed
UPDATE ff_exec_core SET [[freed_marks]] WHERE execution_id IN (SELECT value FROM json_each(?))
-- name: results
SELECT [[attempt_of_a]] FROM json_each(?) AS wanted
CROSS JOIN ff_exec_core AS c ON c.execution_id = wanted.value
CROSS JOIN ff_attempt AS a
    ON a.execution_id = c.execution_id AND a.attempt_index = c.attempt_index
WHERE a.outcome = 'ended_success'
-- name: result_sizes
SELECT a.execution_id, length(a.result) FROM json_each(?) AS wanted
CROSS JOIN ff_exec_core AS c ON c.execution_id = wanted.value
CROSS JOIN ff_attempt AS a
    ON a.execution_id = c.execution_id AND a.attempt_index = c.attempt_index
WHERE a.outcome = 'ended_success' AND a.result IS NOT NULL
-- name: count_members
SELECT c.state_id, count(*) FROM ff_flow_member AS m
CROSS JOIN ff_exec_core AS c ON c.execution_id = substr(m.execution_id, -36)
WHERE m.flow_id = ? GROUP BY c.state_id
-- name: clock
SELECT boot_ms, time_ms, gain_ms, reached_ms, wish_ms, wished_at, refused_at
FROM ff_clock WHERE boot_id = ?
-- name: draw_clock
INSERT INTO ff_clock (boot_id, boot_ms, time_ms, gain_ms, reached_ms)
SELECT ?1, ?2, v.time_ms, 0, v.time_ms
FROM (SELECT max(?3, coalesce((SELECT max(reached_ms) FROM ff_clock), 0)) AS time_ms) AS v
WHERE true ON CONFLICT DO NOTHING
-- name: forget_clocks
DELETE FROM ff_clock
WHERE boot_id NOT IN (SELECT boot_id FROM ff_clock ORDER BY reached_ms DESC LIMIT 4)
-- name: change_clock
UPDATE ff_clock SET boot_ms = ?1, time_ms = ?2, gain_ms = ?3, reached_ms = ?4, wish_ms = ?5,
    wished_at = ?6, refused_at = ?7
WHERE boot_id = ?8 AND boot_ms = ?9 AND time_ms = ?10 AND gain_ms = ?11 AND reached_ms = ?12
    AND wish_ms IS ?13 AND wished_at IS ?14 AND refused_at IS ?15
