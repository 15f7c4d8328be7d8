"""Callers: what a request proves of its sender, and what that allows."""
