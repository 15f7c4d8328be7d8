"""Journals: what handlers have done, written by the owner of a lease and read by its next run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.refusals import BY_HANDLE, JOURNALED
from flowfabric.errors import IdempotencyConflict, NotFound
from flowfabric.model.handle import Handle
from flowfabric.model.journal import Checkpointed, JournalPage, NewEntry


@operation("checkpoint", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *JOURNALED))
class Checkpoint(Request[Checkpointed], frozen=True, kw_only=True):
    """Add entries to the journal of the execution, in one transaction.

    Positions count on from those that are there. A repeated call finds its entries and
    answers as the first. `next_key`: what the handler asked for next; people see it as what
    runs.
    """

    handle: Handle
    entries: Sequence[NewEntry]
    next_key: str | None = None


@operation(
    "checkpoint_in",
    Kind.WRITE,
    Scope.WORKER,
    positional=("handle", "connection"),
    is_local=True,
    errors=(*BY_HANDLE, *JOURNALED, IdempotencyConflict),
)
class CheckpointIn(Request[Checkpointed], frozen=True, kw_only=True):
    """Add entries to the journal inside the caller's own open Postgres transaction.

    The execution is held from here to the end of the transaction, and the fence is checked:
    rows of the caller and entries are durable together, or neither. The connection is one of
    those that `create_executions_in` takes. Entries that are there are refused with
    `IdempotencyConflict`: they were committed before, with the rows that belong to them.
    """

    handle: Handle
    connection: Any
    entries: Sequence[NewEntry]


@operation(
    "shares_database",
    Kind.READ,
    Scope.WORKER,
    positional=("connection",),
    is_local=True,
)
class SharesDatabase(Request[bool], frozen=True, kw_only=True):
    """Whether a connection with an open transaction leads to the tables of this engine.

    Then `checkpoint_in` can be used with it.
    """

    connection: Any


@operation("load_journal", Kind.READ, Scope.WORKER, errors=BY_HANDLE)
class LoadJournal(Request[JournalPage], frozen=True, kw_only=True):
    """The entries by which the owner of a lease goes on, after a position; with all values."""

    handle: Handle
    after: int | None = None


@operation("read_journal", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadJournal(Request[JournalPage], frozen=True, kw_only=True):
    """Entries of an execution after a position, by default of its present journal and chapter.

    `values`: with what steps returned, except for secrets.
    """

    execution_id: str
    journal_index: int | None = None
    chapter_index: int | None = None
    after: int | None = None
    limit: int = limits.PAGE_DEFAULT
    values: bool = False
