-- Less to write for each execution.

-- Every execution waits for its first attempt (1) and runs (60). In one index with the other states,
-- each of these two grew in the middle, where pages are split into halves and logged as such, and
-- every entry held its state. Each by itself grows at its end.
DROP INDEX ff_exec_state;
CREATE INDEX ff_exec_waiting ON ff_exec_core (created_at, execution_id) WHERE state_id = 1;
CREATE INDEX ff_exec_running ON ff_exec_core (created_at, execution_id) WHERE state_id = 60;
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id NOT IN (1, 60, 80, 81);
