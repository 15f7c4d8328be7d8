"""Answers that go on: server-sent events of what happens."""
