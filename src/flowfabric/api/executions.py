"""What anyone asks of executions: new ones, how they fare, how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.words import PolicyGiven
from flowfabric.model.results import CreateResult

# --- new work ------------------------------------------------------------------------------------


@operation("create_execution", Kind.WRITE, Scope.SUBMIT)
class NewExecution(Request[CreateResult], frozen=True, kw_only=True):
    """Record one execution.

    >>> await engine.create_execution(execution_kind="brief")  # doctest: +SKIP
    Created(execution_id='{fp:7}:…', public_state=<PublicState.WAITING: 'waiting'>)

    A repeated idempotency key answers `Duplicate` with the first execution's id; other content
    under the key is an `IdempotencyConflict`.
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
    tags: Mapping[str, str] = {}
    policy: PolicyGiven | None = None
    delay_until: int | None = None  # an instant
    delay_ms: int | None = None  # or so long after it could begin: its submit, or its join
    execution_deadline_at: int | None = None
    colocate_with: str | None = None  # a flow it will be added to: its id fits that flow


@operation("create_executions", Kind.WRITE, Scope.SUBMIT, positional=("requests",))
class CreateExecutions(Request[list[CreateResult]], frozen=True, kw_only=True):
    """Record thousands in one transaction: all of them or, if one is refused, none."""

    requests: Sequence[NewExecution]


@operation(
    "create_executions_in",
    Kind.WRITE,
    Scope.SUBMIT,
    positional=("connection", "requests"),
    is_local=True,
)
class CreateExecutionsIn(Request[list[CreateResult]], frozen=True, kw_only=True):
    """Record executions inside the caller's own open Postgres transaction.

    They exist when, and only if, the caller commits, and waiting workers are told then. The
    connection is one of asyncpg, psycopg 3, SQLAlchemy 2 or Django. A refusal leaves the
    transaction as it was.
    """

    connection: Any
    requests: Sequence[NewExecution]
