"""Messages to running executions, and their answers."""
