"""Handlers of commands that need more than the record of one execution."""
