-- Rows that every transition rewrites leave dead ones behind as fast as the engine works.

-- The hot rows: more pages between two of the naps that autovacuum takes, or it falls behind.
ALTER TABLE ff_exec_core SET (autovacuum_vacuum_cost_limit = 2000);

-- Few rows, written again and again: a share of so few rows would have them vacuumed all the time or,
-- with many of them, far too late. A thousand dead rows are worth a vacuum whatever their share.
ALTER TABLE ff_budget_policy SET (autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE ff_budget_usage SET (autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE ff_quota_gate SET (autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE ff_flow_core SET (autovacuum_vacuum_cost_limit = 2000,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
