"""Durable steps: what a handler has done is recorded, and another run of it goes on from there."""
