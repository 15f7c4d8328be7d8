"""Flows: executions that depend on each other, written together and followed together."""
