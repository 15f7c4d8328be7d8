"""Rules of journals: what a checkpoint may add, and what a run of a handler finds."""
