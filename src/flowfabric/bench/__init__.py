"""Measures this machine: what the engine does per second, beside what the database could."""
