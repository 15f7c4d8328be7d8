-- What executions have spent: reports join the ledger, and flows and kinds have totals.

-- reported by workers, or spent before a reset: it cannot be given back
ALTER TABLE ff_budget_usage_by_exec ADD COLUMN kept INTEGER NOT NULL DEFAULT 0 CHECK (kept >= 0);
-- the flow in whose total a line is counted
ALTER TABLE ff_budget_usage_by_exec ADD COLUMN flow_id TEXT;

CREATE TABLE ff_spend_total (
    scope TEXT NOT NULL CHECK (scope IN ('flow', 'kind')),
    namespace TEXT NOT NULL,
    scope_id TEXT NOT NULL, -- the flow or the kind
    budget_id TEXT NOT NULL,
    dimension TEXT NOT NULL,
    spent INTEGER NOT NULL CHECK (spent >= 0),
    PRIMARY KEY (scope, namespace, scope_id, budget_id, dimension)
) STRICT, WITHOUT ROWID;

UPDATE ff_budget_usage_by_exec AS l SET flow_id = (
    SELECT c.flow_id FROM ff_exec_core AS c
    WHERE c.execution_id = substr(l.execution_id, -36) AND c.purge_at IS NULL
);
INSERT INTO ff_spend_total
SELECT 'kind', r.namespace, r.execution_kind, l.budget_id, l.dimension,
    min(sum(l.spent), 9223372036854775807)
FROM ff_budget_usage_by_exec AS l
JOIN ff_exec_core AS c ON c.execution_id = substr(l.execution_id, -36)
JOIN ff_route AS r ON r.route_id = c.route_id
GROUP BY r.namespace, r.execution_kind, l.budget_id, l.dimension;
INSERT INTO ff_spend_total
SELECT 'flow', r.namespace, l.flow_id, l.budget_id, l.dimension,
    min(sum(l.spent), 9223372036854775807)
FROM ff_budget_usage_by_exec AS l
JOIN ff_exec_core AS c ON c.execution_id = substr(l.execution_id, -36)
JOIN ff_route AS r ON r.route_id = c.route_id
WHERE l.flow_id IS NOT NULL
GROUP BY r.namespace, l.flow_id, l.budget_id, l.dimension;
