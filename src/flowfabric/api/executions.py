"""What anyone asks of executions: new ones, how they fare, how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.page import Page
from flowfabric.api.refusals import BY_HANDLE, NEW_WORK
from flowfabric.api.words import HeadFailureGiven, OnConflictGiven, PolicyGiven, UniqueWhileGiven
from flowfabric.errors import InvalidCursor, InvalidTagKey, JournalFull, NotFound, WaitTimeout
from flowfabric.model.attempt import Attempt
from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.record import Record
from flowfabric.model.results import (
    AttemptInfo,
    CreateResult,
    ExecutionContext,
    ExecutionSnapshot,
    ExpiredLease,
    Explanation,
    Outcome,
)
from flowfabric.model.state import PublicState
from flowfabric.model.words import HeadFailure, OnConflict

# --- new work ------------------------------------------------------------------------------------


class NewHook(Record, frozen=True, kw_only=True):
    """An execution that is to be created when another one ends, or a flow, in that transaction.

    `argument`: the name under which it is told how that came to the end, as a `RunEnded` or a
    `FlowEnded`; None: it is told nothing. Its lane takes it in also when it is closed by then.
    """

    execution_kind: str
    argument: str | None = "ended"
    lane_id: str = "default"
    priority: int | None = None  # none: the policy's, else 0
    budget_ids: tuple[str, ...] = ()
    quota_policy_id: str | None = None
    concurrency_key: str | None = None
    policy: PolicyGiven | None = None
    mailboxes: Mapping[str, str | None] = {}  # with JSON schemas that their messages must fit


class NewUnique(Record, frozen=True, kw_only=True):
    """A unique key, and what it means to submits while an execution has it."""

    key: str
    while_: UniqueWhileGiven | None = None  # none: until its end; where it gathers, until its start
    on_conflict: OnConflictGiven = OnConflict.EXISTING
    debounce_ms: int | None = None  # it starts so long after the last submit under the key
    debounce_max_ms: int | None = None  # but at the latest so long after the first
    batch_items: int | None = None  # items of submits under the key that go into one execution
    batch_ms: int | None = None  # how long it waits for them


@operation("create_execution", Kind.WRITE, Scope.SUBMIT, errors=(NotFound, *NEW_WORK))
class NewExecution(Request[CreateResult], frozen=True, kw_only=True):
    """Record one execution.

    >>> await engine.create_execution(execution_kind="brief")  # doctest: +SKIP

    A repeated idempotency key answers `Duplicate`; other content is an `IdempotencyConflict`.
    """

    execution_kind: str
    input_payload: bytes = b""
    payload_encoding: str | None = None
    lane_id: str = "default"
    namespace: str | None = None  # none: the engine's
    priority: int | None = None  # none: the policy's, else 0
    creator_identity: str = ""
    idempotency_key: str | None = None
    budget_ids: tuple[str, ...] = ()  # budgets it spends from and must find open
    quota_policy_id: str | None = None  # none: the lane's, if it has one
    concurrency_key: str | None = None  # the quota's limits hold for each key by itself
    serial_key: str | None = None  # those of one key run one at a time, in order of submission
    on_head_failure: HeadFailureGiven = HeadFailure.NEXT  # what its failure means to that order
    unique: NewUnique | None = None  # a key that one live execution of the kind has
    fair_key: str | None = None  # those of one key share the lane with those of other keys
    tags: Mapping[str, str] = {}
    policy: PolicyGiven | None = None
    delay_until: int | None = None  # an instant
    delay_ms: int | None = None  # or so long after it could begin: its submit, or its join
    execution_deadline_at: int | None = None
    colocate_with: str | None = None  # a flow it will be added to: its id fits that flow
    on_success: NewHook | None = None  # what follows when it succeeds
    on_failure: NewHook | None = None  # when it fails or expires
    on_end: NewHook | None = None  # however it ends
    undo_stops: bool = False  # an undo that does not succeed stops those that were to follow it
    mailboxes: Mapping[str, str | None] = {}  # with JSON schemas that their messages must fit
    traceparent: str | None = None  # the W3C trace of the submit; one that is not sound is dropped
    tracestate: str | None = None


@operation(
    "create_executions",
    Kind.WRITE,
    Scope.SUBMIT,
    positional=("requests",),
    errors=(*BY_HANDLE, *NEW_WORK, JournalFull),
)
class CreateExecutions(Request[list[CreateResult]], frozen=True, kw_only=True):
    """Record thousands in one transaction: all of them or, if one is refused, none.

    `handle`: of the execution that submits them, which they are no children of; only its live
    owner may. `entries`: for its journal, in the same transaction. The value of one of kind
    `submit` says how many of the requests, in order, it is about; what became of these is
    recorded. The same entries sent again are answered as the first time, and create nothing.
    """

    requests: Sequence[NewExecution]
    handle: Handle | None = None
    entries: Sequence[NewEntry] = ()


@operation(
    "create_executions_in",
    Kind.WRITE,
    Scope.SUBMIT,
    positional=("connection", "requests"),
    is_local=True,
    errors=(NotFound, *NEW_WORK),
)
class CreateExecutionsIn(Request[list[CreateResult]], frozen=True, kw_only=True):
    """Record executions inside the caller's own open Postgres transaction.

    They exist when, and only if, the caller commits, and waiting workers are told then. The
    connection is one of asyncpg, psycopg 3, SQLAlchemy 2 or Django. A refusal leaves the
    transaction as it was.
    """

    connection: Any
    requests: Sequence[NewExecution]


# --- one execution -------------------------------------------------------------------------------


@operation("describe_execution", Kind.READ, Scope.READ)
class DescribeExecution(Request[ExecutionSnapshot | None], frozen=True, kw_only=True):
    """Everything about one execution but its secrets and payloads."""

    execution_id: str


@operation("read_execution_info", Kind.READ, Scope.READ)
class ReadExecutionInfo(Request[ExecutionSnapshot | None], frozen=True, kw_only=True):
    """The seeds' name for `describe_execution`."""

    execution_id: str


@operation("read_execution_state", Kind.READ, Scope.READ)
class ReadExecutionState(Request[PublicState | None], frozen=True, kw_only=True):
    """The public state."""

    execution_id: str


@operation("read_execution_context", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadExecutionContext(Request[ExecutionContext], frozen=True, kw_only=True):
    """The input and its labels."""

    execution_id: str


@operation("read_current_attempt_index", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadCurrentAttemptIndex(Request[int], frozen=True, kw_only=True):
    """The index of the attempt that holds or last held the lease; 0 before the first."""

    execution_id: str


@operation("read_total_attempt_count", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadTotalAttemptCount(Request[int], frozen=True, kw_only=True):
    """How many attempts were ever started: the index the next one gets."""

    execution_id: str


@operation("get_execution_tag", Kind.READ, Scope.READ, errors=(InvalidTagKey,))
class GetExecutionTag(Request[str | None], frozen=True, kw_only=True):
    """One tag, or None."""

    execution_id: str
    key: str


@operation("get_execution_namespace", Kind.READ, Scope.READ)
class GetExecutionNamespace(Request[str | None], frozen=True, kw_only=True):
    """The tenant, or None."""

    execution_id: str


@operation("read_exec_core_fields", Kind.READ, Scope.READ)
class ReadExecCoreFields(Request[dict[str, str | None]], frozen=True, kw_only=True):
    """Named fields as text, as the seeds name them; None for what is unknown, secret or unset,
    and for every field of an execution that does not exist."""

    execution_id: str
    names: Sequence[str]


@operation("list_attempts", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListAttempts(Request[Page[AttemptInfo]], frozen=True, kw_only=True):
    """The attempts of an execution, oldest first; the live one is last."""

    execution_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("explain", Kind.READ, Scope.READ, errors=(NotFound,))
class Explain(Request[Explanation], frozen=True, kw_only=True):
    """Why is it not running? State, since when, waiting for what, able workers, when due."""

    execution_id: str


# --- how executions ended ------------------------------------------------------------------------


@operation("get_execution_result", Kind.READ, Scope.READ)
class GetExecutionResult(Request[bytes | None], frozen=True, kw_only=True):
    """The result of a success; None when there is none (yet)."""

    execution_id: str


@operation("read_result", Kind.READ, Scope.READ)
class ReadResult(Request[Attempt | None], frozen=True, kw_only=True):
    """The successful attempt with its result and encoding."""

    execution_id: str


@operation("read_outcomes", Kind.READ, Scope.READ)
class ReadOutcomes(Request[dict[str, Outcome]], frozen=True, kw_only=True):
    """How executions ended, with the results of successes; those that have not are left out."""

    execution_ids: Sequence[str]


@operation("wait_for_result", Kind.WAIT, Scope.READ, errors=(NotFound, WaitTimeout))
class WaitForResult(Request[ExecutionSnapshot], frozen=True, kw_only=True):
    """The snapshot once the execution has ended; WaitTimeout when that takes too long."""

    execution_id: str
    wait_ms: int | None = None


@operation("wait_for_outcome", Kind.WAIT, Scope.READ, errors=(NotFound, WaitTimeout))
class WaitForOutcome(Request[Outcome], frozen=True, kw_only=True):
    """As `wait_for_result`, with the result of a success read in the same look.

    `look_after_ms`: how long to wait for a hint before the first look, for a caller that knows
    that the execution has hardly begun.
    """

    execution_id: str
    wait_ms: int | None = None
    look_after_ms: int = 0


# --- listings ------------------------------------------------------------------------------------


@operation("list_executions", Kind.READ, Scope.READ, errors=(InvalidCursor, InvalidTagKey))
class ListExecutions(Request[Page[ExecutionSnapshot]], frozen=True, kw_only=True):
    """Executions, newest first.

    `text` looks for words in the kind, id, tags and reasons. A page of a text search may be
    short or empty although a next cursor is given: it bounds how many rows one call looks at.
    """

    namespace: str | None = None
    states: Sequence[str] = ()
    lane_id: str | None = None
    execution_kind: str | None = None
    tag: tuple[str, str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    text: str | None = None
    partition: int | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("count_listed", Kind.READ, Scope.READ, errors=(InvalidTagKey,))
class CountListed(Request[int], frozen=True, kw_only=True):
    """How many executions a listing with these filters has.

    `at_most`: it counts no further, which bounds what it costs.
    """

    namespace: str | None = None
    states: Sequence[str] = ()
    lane_id: str | None = None
    execution_kind: str | None = None
    tag: tuple[str, str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    at_most: int | None = None


@operation("count_executions", Kind.READ, Scope.READ)
class CountExecutions(Request[dict[str, dict[str, int]]], frozen=True, kw_only=True):
    """How many executions each lane has in each state."""

    namespace: str | None = None


@operation("list_expired_leases", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListExpiredLeases(Request[Page[ExpiredLease]], frozen=True, kw_only=True):
    """Leases past their time that are not dealt with yet, earliest first."""

    as_of: int | None = None
    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


# --- finding -------------------------------------------------------------------------------------


@operation("find_executions", Kind.READ, Scope.READ)
class FindExecutions(Request[tuple[str, ...]], frozen=True, kw_only=True):
    """Ids of executions whose UUID begins or ends with these digits, newest first.

    All that begin so are found; of those that end so, the ones among the newest
    `limits.FIND_AMONG`. Dashes do not matter.
    """

    part: str
    limit: int = 10


@operation("find_flows", Kind.READ, Scope.READ)
class FindFlows(Request[tuple[str, ...]], frozen=True, kw_only=True):
    """Ids of flows that begin or end with these digits, newest first: see `find_executions`."""

    part: str
    limit: int = 10


@operation("list_kinds", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListKinds(Request[Page[str]], frozen=True, kw_only=True):
    """Every kind of execution that was ever created, by name."""

    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
