-- Limits: how often they were changed, and the namespace they belong to; NULL is all.
ALTER TABLE ff_budget_policy ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_budget_policy ADD COLUMN namespace TEXT;
ALTER TABLE ff_quota_policy ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_quota_policy ADD COLUMN namespace TEXT;
