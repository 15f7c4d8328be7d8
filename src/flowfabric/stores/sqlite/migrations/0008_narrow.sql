-- Listings by state: work that waits for its first attempt (1) and work that runs (60), as every
-- execution once does, each in an index of its own that grows at its end.
DROP INDEX ff_exec_state;
CREATE INDEX ff_exec_waiting ON ff_exec_core (created_at, execution_id) WHERE state_id = 1;
CREATE INDEX ff_exec_running ON ff_exec_core (created_at, execution_id) WHERE state_id = 60;
CREATE INDEX ff_exec_state ON ff_exec_core (state_id, created_at, execution_id)
    WHERE state_id NOT IN (1, 60, 80, 81);

-- PostgreSQL leaves columns empty that nearly always hold the same. Here a zero takes no byte of its
-- row, so the columns stay as they are.
