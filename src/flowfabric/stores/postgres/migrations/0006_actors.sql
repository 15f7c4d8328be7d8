-- In whose name an operator acted.
ALTER TABLE ff_operator_event ADD COLUMN actor TEXT NOT NULL DEFAULT '';
