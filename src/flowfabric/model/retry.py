"""Retries with another input: new executions that know which one they are for."""

from __future__ import annotations

from flowfabric.model.columns import Instant
from flowfabric.model.record import Record


class RetryRow(Record, frozen=True):
    """One retry of an execution. It goes with that one, not with the retry."""

    execution_id: str  # the one that had ended
    created_at: Instant
    retry_id: str  # the new one


class Retried(Record, frozen=True, tag=True):
    """A new execution of the same work has another input. Not `is_new`: its key was used before."""

    execution_id: str
    retried_from: str
    is_new: bool = True
