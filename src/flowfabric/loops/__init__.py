"""The background loops."""
