-- What happens to budgets has a log of its own; the audit trail keeps what operators do.
CREATE TABLE ff_budget_event (
    event_id BIGINT PRIMARY KEY DEFAULT nextval('ff_event_id'),
    budget_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT NOT NULL,
    details TEXT, -- JSON
    namespace TEXT COLLATE "C" NOT NULL,
    occurred_at BIGINT NOT NULL
);
INSERT INTO ff_budget_event (budget_id, event_type, details, namespace, occurred_at)
SELECT subject, substr(event_type, 8), details, namespace, occurred_at FROM ff_operator_event
WHERE event_type IN ('budget_soft_breach', 'budget_hard_breach') ORDER BY event_id;
DELETE FROM ff_operator_event
WHERE event_type IN ('budget_soft_breach', 'budget_hard_breach');
