"""The work of one transaction."""
