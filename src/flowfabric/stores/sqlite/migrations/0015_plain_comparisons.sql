-- The same rows, told by comparisons. SQLite fills a table of its own with a list of more than two
-- numbers, and in the condition of an index it does so for every row that is written.
DROP INDEX ff_exec_state;
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id <> 1 AND state_id <> 60 AND state_id <> 80 AND state_id <> 81;
