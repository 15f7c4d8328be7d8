-- No plain joins: each row that belongs to another is looked up by its key, and OFFSET 0 (or the
-- lock) holds the planner to it. It has two ways to go wrong: a generic plan cannot know how small a
-- LIMIT is, and statistics taken while the first large transaction was still open say that the
-- tables are empty, after which a join would compare every row with every other.
-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint, catalog_version FROM ff_partition_config
-- name: insert_routes
INSERT INTO ff_route (namespace, lane_id, execution_kind, required_capabilities)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) ON CONFLICT DO NOTHING
-- name: insert_lanes
INSERT INTO ff_lane_registry (lane_id, lane_state, registered_at, changed_at)
SELECT DISTINCT lane, 'active', $2::bigint, $2::bigint FROM unnest($1::text[]) AS lane
ON CONFLICT DO NOTHING
-- name: load
SELECT [[record]], [[version]], (extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM ff_exec_core AS c [[body_of_c]]
WHERE c.execution_id = ANY($1::uuid[]) ORDER BY c.execution_id FOR UPDATE OF c
-- name: load_free
SELECT [[record]], [[version]], (extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM ff_exec_core AS c [[body_of_c]]
WHERE c.execution_id = ANY($1::uuid[]) ORDER BY c.execution_id FOR UPDATE OF c SKIP LOCKED
-- name: look
SELECT [[record]], c.xmin::text, [[version]], (extract(epoch FROM clock_timestamp()) * 1000)::bigint
FROM ff_exec_core AS c [[body_of_c]]
WHERE c.execution_id = ANY($1::uuid[])
-- name: get_one
SELECT [[record]], [[attempt_of_a]]
FROM ff_exec_core AS c [[body_of_c]]
LEFT JOIN ff_attempt AS a ON a.execution_id = c.execution_id
    AND a.attempt_index = c.attempt_index AND coalesce(octet_length(a.result), 0) <= [[small]]
WHERE c.execution_id = $1
-- Inputs above $4 bytes are not sent along; the size of one is known without reading it.
-- name: ready_one
SELECT [[record]], [[light_parts]] FROM ff_exec_core AS c [[body_of_c]]
WHERE c.route_id = $1 AND [[claimable]]
ORDER BY c.ready_rank, c.execution_id LIMIT $3 FOR UPDATE OF c SKIP LOCKED
-- name: ready_many
SELECT [[record]], [[light_parts]] FROM unnest($1::int[]) AS wanted (route_id)
CROSS JOIN LATERAL (
    SELECT c.* FROM ff_exec_core AS c
    WHERE c.route_id = wanted.route_id AND [[claimable]]
    ORDER BY c.ready_rank, c.execution_id LIMIT $3 FOR UPDATE SKIP LOCKED
) AS c
[[body_of_c]]
ORDER BY c.ready_rank, c.execution_id LIMIT $3
-- name: look_ready
SELECT [[record]], [[body_parts]], c.version FROM unnest($1::int[]) AS wanted (route_id)
CROSS JOIN LATERAL (
    SELECT c.*, c.xmin::text AS version FROM ff_exec_core AS c
    WHERE c.route_id = wanted.route_id AND [[claimable]]
    ORDER BY c.ready_rank, c.execution_id LIMIT $3
) AS c
[[body_of_c]]
LIMIT $3
-- name: next_due
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    (SELECT min(due_at) FROM ff_exec_core WHERE due_at IS NOT NULL),
    (SELECT min(purge_at) FROM ff_exec_core WHERE purge_at IS NOT NULL)
-- name: results
SELECT [[attempt_of_a]] FROM ff_exec_core AS c
CROSS JOIN LATERAL (
    SELECT * FROM ff_attempt AS one
    WHERE one.execution_id = c.execution_id AND one.attempt_index = c.attempt_index
        AND one.outcome = 'ended_success' OFFSET 0
) AS a
WHERE c.execution_id = ANY($1::uuid[])
-- name: result_sizes
SELECT a.execution_id, a.size FROM ff_exec_core AS c
CROSS JOIN LATERAL (
    SELECT one.execution_id, octet_length(one.result) AS size FROM ff_attempt AS one
    WHERE one.execution_id = c.execution_id AND one.attempt_index = c.attempt_index
        AND one.outcome = 'ended_success' AND one.result IS NOT NULL OFFSET 0
) AS a
WHERE c.execution_id = ANY($1::uuid[])
-- name: count_members
SELECT c.state_id, count(*) FROM ff_flow_member AS m
CROSS JOIN LATERAL (
    SELECT one.state_id FROM ff_exec_core AS one
    WHERE one.execution_id = right(m.execution_id, 36)::uuid OFFSET 0
) AS c
WHERE m.flow_id = $1 GROUP BY c.state_id
-- The members of a flow in the order of their ids, at the rank at which they are drawn.
-- name: fold_members
SELECT at / step, is_child, CASE WHEN ?3::boolean THEN route_id END, state_id, count(*), min(at),
    max(at), min(created_at), min(started_at), max(completed_at)
FROM (
    SELECT d.step, CASE WHEN p.rank >= m.rank THEN p.rank + 1 ELSE m.rank END AS at,
        ?3::boolean AND m.parent_id IS NOT NULL AS is_child,
        c.route_id, c.state_id, c.created_at, c.started_at, c.completed_at
    FROM (SELECT 1 + max(rank) / ?2::bigint AS step FROM ff_flow_member WHERE flow_id = ?1) AS d
    CROSS JOIN ff_flow_member AS m
    CROSS JOIN LATERAL (
        SELECT one.route_id, one.state_id, one.created_at, one.started_at, one.completed_at
        FROM ff_exec_core AS one
        WHERE one.execution_id = right(m.execution_id, 36)::uuid OFFSET 0
    ) AS c
    LEFT JOIN LATERAL (
        SELECT one.rank FROM ff_flow_member AS one
        WHERE one.flow_id = m.flow_id AND one.execution_id = m.parent_id OFFSET 0
    ) AS p ON true
    WHERE m.flow_id = ?1
) AS placed
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT ?4
-- name: fold_edges
SELECT u_at / step, u_child, CASE WHEN ?3::boolean THEN u_route END,
    w_at / step, w_child, CASE WHEN ?3::boolean THEN w_route END, count(*)
FROM (
    SELECT d.step,
        CASE WHEN up.rank >= u.rank THEN up.rank + 1 ELSE u.rank END AS u_at,
        ?3::boolean AND u.parent_id IS NOT NULL AS u_child, uc.route_id AS u_route,
        CASE WHEN wp.rank >= w.rank THEN wp.rank + 1 ELSE w.rank END AS w_at,
        ?3::boolean AND w.parent_id IS NOT NULL AS w_child, wc.route_id AS w_route
    FROM (SELECT 1 + max(rank) / ?2::bigint AS step FROM ff_flow_member WHERE flow_id = ?1) AS d
    CROSS JOIN ff_edge AS e
    CROSS JOIN LATERAL (
        SELECT one.rank, one.parent_id FROM ff_flow_member AS one
        WHERE one.flow_id = e.flow_id AND one.execution_id = e.upstream_execution_id OFFSET 0
    ) AS u
    CROSS JOIN LATERAL (
        SELECT one.route_id FROM ff_exec_core AS one
        WHERE one.execution_id = right(e.upstream_execution_id, 36)::uuid OFFSET 0
    ) AS uc
    LEFT JOIN LATERAL (
        SELECT one.rank FROM ff_flow_member AS one
        WHERE one.flow_id = e.flow_id AND one.execution_id = u.parent_id OFFSET 0
    ) AS up ON true
    CROSS JOIN LATERAL (
        SELECT one.rank, one.parent_id FROM ff_flow_member AS one
        WHERE one.flow_id = e.flow_id AND one.execution_id = e.downstream_execution_id OFFSET 0
    ) AS w
    CROSS JOIN LATERAL (
        SELECT one.route_id FROM ff_exec_core AS one
        WHERE one.execution_id = right(e.downstream_execution_id, 36)::uuid OFFSET 0
    ) AS wc
    LEFT JOIN LATERAL (
        SELECT one.rank FROM ff_flow_member AS one
        WHERE one.flow_id = e.flow_id AND one.execution_id = w.parent_id OFFSET 0
    ) AS wp ON true
    WHERE e.flow_id = ?1
) AS placed
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 7 DESC, 1, 2, 3, 4, 5, 6 LIMIT ?4
-- name: find_members
SELECT m.execution_id FROM ff_flow_member AS m
CROSS JOIN LATERAL (
    SELECT one.route_id, one.state_id, coalesce(one.open_group, 0) AS open_group FROM ff_exec_core AS one
    WHERE one.execution_id = right(m.execution_id, 36)::uuid OFFSET 0
) AS c
LEFT JOIN LATERAL (
    SELECT one.rank FROM ff_flow_member AS one
    WHERE one.flow_id = m.flow_id AND one.execution_id = m.parent_id OFFSET 0
) AS p ON true
WHERE m.flow_id = ?1 AND m.execution_id > ?2
    AND CASE WHEN p.rank >= m.rank THEN p.rank + 1 ELSE m.rank END BETWEEN ?3 AND ?4
    AND (?5::integer[] IS NULL OR c.route_id = ANY(?5::integer[]))
    AND c.state_id = ANY(?6::integer[])
    AND c.open_group <= ?7
ORDER BY m.execution_id LIMIT ?8
