-- Forks: executions that go on from a copy of the journal of another one.

-- which one, in wire form
ALTER TABLE ff_exec_core ADD COLUMN forked_from TEXT;
