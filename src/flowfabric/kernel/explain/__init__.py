"""Why something waits, in words."""
