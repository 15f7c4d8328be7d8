"""Journals: what handlers have done, written by the owner of a lease and read by its next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.api.executions import NewExecution
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.refusals import BY_HANDLE, FRAMED, JOURNALED
from flowfabric.errors import (
    BudgetScopeMismatch,
    ChildrenNotEnded,
    IdempotencyConflict,
    InvalidCapabilities,
    LaneClosed,
    NotFound,
    PayloadTooLarge,
    UndosNotRun,
)
from flowfabric.model.handle import Handle
from flowfabric.model.journal import (
    Checkpointed,
    Continued,
    Forked,
    JournalPage,
    NewEntry,
    Published,
)
from flowfabric.model.log_lines import LogBatch
from flowfabric.model.results import Undone
from flowfabric.model.stream import NewFrame


@operation("checkpoint", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *JOURNALED))
class Checkpoint(Request[Checkpointed], frozen=True, kw_only=True):
    """Add entries to the journal of the execution, in one transaction.

    Positions count on from those that are there. A repeated call finds its entries and
    answers as the first. `next_key`: what the handler asked for next; people see it as what
    runs. A last entry of the kind `state` is no row: its value is what the run publishes from
    now on, wherever entries are taken; it takes no position.
    """

    handle: Handle
    entries: Sequence[NewEntry]
    next_key: str | None = None


@operation(
    "continue_execution",
    Kind.WRITE,
    Scope.WORKER,
    errors=(*BY_HANDLE, *FRAMED, *JOURNALED, ChildrenNotEnded, UndosNotRun),
)
class ContinueExecution(Request[Continued], frozen=True, kw_only=True):
    """End the chapter of the journal: the handler is called anew with other arguments.

    The lease is let go and the execution waits for a worker as a new one does, under the
    same id. Its journal begins the next chapter, whose first entry has `arguments` (JSON);
    of the chapters that have ended the last one is kept. `version`: of the code. `frames`,
    `logs` and `entries`: as in `complete`; they belong to the chapter that ends.
    """

    handle: Handle
    arguments: bytes
    version: str | None = None
    frames: Sequence[NewFrame] = ()
    logs: LogBatch | None = None
    entries: Sequence[NewEntry] = ()


@operation(
    "register_undo",
    Kind.WRITE,
    Scope.WORKER,
    positional=("handle", "undos", "entries"),
    errors=(*BY_HANDLE, *JOURNALED, BudgetScopeMismatch, InvalidCapabilities),
)
class RegisterUndo(Request[Checkpointed], frozen=True, kw_only=True):
    """Have calls made if the execution ends otherwise than by success, however that comes.

    They are kept in its journal: `entries` has an entry of kind `undo` for each, in order.
    The end creates them in its transaction as a flow, last registered first, once for each
    life; each waits for the end of the one before, or for its success where the execution
    was created with `undo_stops`. At most 100 are registered at once.
    """

    handle: Handle
    undos: Sequence[NewExecution]
    entries: Sequence[NewEntry]


@operation(
    "run_undo",
    Kind.WRITE,
    Scope.WORKER,
    positional=("handle", "entries"),
    errors=(*BY_HANDLE, *JOURNALED),
)
class RunUndo(Request[Undone], frozen=True, kw_only=True):
    """Create now what is registered to be undone, as an end would; nothing is left for the end.

    The last of `entries` is of kind `undone` and gets the ids of the calls. No attempt and no
    life that follows goes on by this journal, which tells of effects that were undone.
    """

    handle: Handle
    entries: Sequence[NewEntry]


@operation(
    "fork_execution",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, LaneClosed, PayloadTooLarge),
)
class ForkExecution(UnsafeRequest[Forked], frozen=True, kw_only=True):
    """A new execution of the same kind that goes on from a copy of a journal.

    It begins with all entries of the present chapter before the first one with the key
    `before`; how waits ended comes with them. `results`: other results of steps and values
    among them, by their keys. `arguments`: other arguments of the handler, by their names.
    All are JSON. The execution itself may be in any state and stays as it is.
    """

    execution_id: str
    before: str
    results: Mapping[str, bytes] = {}
    arguments: Mapping[str, bytes] = {}


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

    `values`: with what steps returned, except for secrets, and how waits ended.
    """

    execution_id: str
    journal_index: int | None = None
    chapter_index: int | None = None
    after: int | None = None
    limit: int = limits.PAGE_DEFAULT
    values: bool = False


@operation("read_published", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadPublished(Request[Published | None], frozen=True, kw_only=True):
    """What a run has published last, whatever its state is; None before it did."""

    execution_id: str
