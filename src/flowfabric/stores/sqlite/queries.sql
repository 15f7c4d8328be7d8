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
-- The members of a flow in the order of their ids, at the rank at which they are drawn.
-- name: fold_members
SELECT at / step, is_child, CASE WHEN ?3 THEN route_id END, state_id, count(*), min(at), max(at),
    min(created_at), min(started_at), max(completed_at)
FROM (
    SELECT d.step, CASE WHEN p.rank >= m.rank THEN p.rank + 1 ELSE m.rank END AS at,
        CASE WHEN ?3 THEN m.parent_id IS NOT NULL ELSE 0 END AS is_child,
        c.route_id, c.state_id, c.created_at, c.started_at, c.completed_at
    FROM (SELECT 1 + max(rank) / ?2 AS step FROM ff_flow_member WHERE flow_id = ?1) AS d
    CROSS JOIN ff_flow_member AS m
    CROSS JOIN ff_exec_core AS c ON c.execution_id = substr(m.execution_id, -36)
    LEFT JOIN ff_flow_member AS p ON p.flow_id = m.flow_id AND p.execution_id = m.parent_id
    WHERE m.flow_id = ?1
) AS placed
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT ?4
-- name: fold_edges
SELECT u_at / step, u_child, CASE WHEN ?3 THEN u_route END,
    w_at / step, w_child, CASE WHEN ?3 THEN w_route END, count(*)
FROM (
    SELECT d.step,
        CASE WHEN up.rank >= u.rank THEN up.rank + 1 ELSE u.rank END AS u_at,
        CASE WHEN ?3 THEN u.parent_id IS NOT NULL ELSE 0 END AS u_child, uc.route_id AS u_route,
        CASE WHEN wp.rank >= w.rank THEN wp.rank + 1 ELSE w.rank END AS w_at,
        CASE WHEN ?3 THEN w.parent_id IS NOT NULL ELSE 0 END AS w_child, wc.route_id AS w_route
    FROM (SELECT 1 + max(rank) / ?2 AS step FROM ff_flow_member WHERE flow_id = ?1) AS d
    CROSS JOIN ff_edge AS e
    CROSS JOIN ff_flow_member AS u
        ON u.flow_id = e.flow_id AND u.execution_id = e.upstream_execution_id
    CROSS JOIN ff_exec_core AS uc ON uc.execution_id = substr(u.execution_id, -36)
    CROSS JOIN ff_flow_member AS w
        ON w.flow_id = e.flow_id AND w.execution_id = e.downstream_execution_id
    CROSS JOIN ff_exec_core AS wc ON wc.execution_id = substr(w.execution_id, -36)
    LEFT JOIN ff_flow_member AS up ON up.flow_id = u.flow_id AND up.execution_id = u.parent_id
    LEFT JOIN ff_flow_member AS wp ON wp.flow_id = w.flow_id AND wp.execution_id = w.parent_id
    WHERE e.flow_id = ?1
) AS placed
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7 DESC, 1, 2, 3, 4, 5, 6 LIMIT ?4
-- name: find_members
SELECT m.execution_id FROM ff_flow_member AS m
CROSS JOIN ff_exec_core AS c ON c.execution_id = substr(m.execution_id, -36)
LEFT JOIN ff_flow_member AS p ON p.flow_id = m.flow_id AND p.execution_id = m.parent_id
WHERE m.flow_id = ?1 AND m.execution_id > ?2
    AND CASE WHEN p.rank >= m.rank THEN p.rank + 1 ELSE m.rank END BETWEEN ?3 AND ?4
    AND (?5 IS NULL OR c.route_id IN (SELECT value FROM json_each(?5)))
    AND c.state_id IN (SELECT value FROM json_each(?6))
    AND c.open_group <= ?7
ORDER BY m.execution_id LIMIT ?8
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
