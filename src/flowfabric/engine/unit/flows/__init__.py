"""Flows inside one transaction."""
