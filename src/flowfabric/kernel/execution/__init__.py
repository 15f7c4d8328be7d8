"""The rules for one execution."""
