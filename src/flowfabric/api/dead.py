"""Dead letters: executions that failed or expired, and were not replayed or dismissed since."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import ExecutionNotEligible, InvalidCursor, NotFound
from flowfabric.model.dead import DeadCount, DeadLetter, Dismissed, Restored


@operation("list_dead", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListDead(Request[Page[DeadLetter]], frozen=True, kw_only=True):
    """Dead letters of a tenant, the latest end first.

    `category`: that of the failure, such as `timeout`, or a word of the handler's own.
    `fingerprint`: those of one group of failures that are alike. `is_dismissed`: those that
    were dismissed, the latest submit first; a page of them may be short although another
    follows.
    """

    namespace: str | None = None
    execution_kind: str | None = None
    category: str | None = None
    fingerprint: str | None = None
    is_dismissed: bool = False
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("count_dead", Kind.READ, Scope.READ)
class CountDead(Request[tuple[DeadCount, ...]], frozen=True, kw_only=True):
    """How many dead letters a tenant has of each kind and category, the most first."""

    namespace: str | None = None
    execution_kind: str | None = None
    category: str | None = None


@operation("dismiss_dead", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class DismissDead(UnsafeRequest[Dismissed], frozen=True, kw_only=True):
    """Take a dead letter out of the listing. The execution stays as long as any that failed."""

    execution_id: str
    reason: str = ""


@operation("restore_dead", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class RestoreDead(UnsafeRequest[Restored], frozen=True, kw_only=True):
    """Take a dead letter that was dismissed into the listing again."""

    execution_id: str
    reason: str = ""
