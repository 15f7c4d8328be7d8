-- The same rows, told by comparisons: a list is dear on SQLite, and a listing repeats the condition
-- of the index literally, on every store.
DROP INDEX ff_exec_state;
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id <> 1 AND state_id <> 60 AND state_id <> 80 AND state_id <> 81;
