-- What executions have spent: reports join the ledger, and flows and kinds have totals.

-- reported by workers, or spent before a reset: it cannot be given back
ALTER TABLE ff_budget_usage_by_exec ADD COLUMN kept BIGINT NOT NULL DEFAULT 0 CHECK (kept >= 0);
-- the flow in whose total a line is counted
ALTER TABLE ff_budget_usage_by_exec ADD COLUMN flow_id TEXT COLLATE "C";

CREATE TABLE ff_spend_total (
    scope TEXT COLLATE "C" NOT NULL CHECK (scope IN ('flow', 'kind')),
    namespace TEXT COLLATE "C" NOT NULL,
    scope_id TEXT COLLATE "C" NOT NULL, -- the flow or the kind
    budget_id TEXT COLLATE "C" NOT NULL,
    dimension TEXT COLLATE "C" NOT NULL,
    spent BIGINT NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (scope, namespace, scope_id, budget_id, dimension)
);

UPDATE ff_budget_usage_by_exec AS l SET flow_id = (
    SELECT c.flow_id FROM ff_exec_core AS c
    WHERE c.execution_id = right(l.execution_id, 36)::uuid AND c.purge_at IS NULL
);
INSERT INTO ff_spend_total
SELECT 'kind', r.namespace, r.execution_kind, l.budget_id, l.dimension,
    least(sum(l.spent), 9223372036854775807)::bigint
FROM ff_budget_usage_by_exec AS l
JOIN ff_exec_core AS c ON c.execution_id = right(l.execution_id, 36)::uuid
JOIN ff_route AS r ON r.route_id = c.route_id
GROUP BY r.namespace, r.execution_kind, l.budget_id, l.dimension;
INSERT INTO ff_spend_total
SELECT 'flow', r.namespace, l.flow_id, l.budget_id, l.dimension,
    least(sum(l.spent), 9223372036854775807)::bigint
FROM ff_budget_usage_by_exec AS l
JOIN ff_exec_core AS c ON c.execution_id = right(l.execution_id, 36)::uuid
JOIN ff_route AS r ON r.route_id = c.route_id
WHERE l.flow_id IS NOT NULL
GROUP BY r.namespace, l.flow_id, l.budget_id, l.dimension;
