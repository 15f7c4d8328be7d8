-- What happens to budgets has a log of its own; the audit trail keeps what operators do.
CREATE TABLE ff_budget_event (
    event_id INTEGER PRIMARY KEY,
    budget_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    details TEXT, -- JSON
    namespace TEXT NOT NULL,
    occurred_at INTEGER NOT NULL
) STRICT;
INSERT INTO ff_budget_event (budget_id, event_type, details, namespace, occurred_at)
SELECT subject, substr(event_type, 8), details, namespace, occurred_at FROM ff_operator_event
WHERE event_type IN ('budget_soft_breach', 'budget_hard_breach') ORDER BY event_id;
DELETE FROM ff_operator_event
WHERE event_type IN ('budget_soft_breach', 'budget_hard_breach');
