"""The rules for lanes and workers."""
