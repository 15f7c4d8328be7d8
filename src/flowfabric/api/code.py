"""Versions of code: which executions that have not ended belong to which one."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import ExecutionNotEligible, InvalidCursor, NotFound
from flowfabric.model.code import CodeUse, Repinned


@operation("list_code", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListCode(Request[Page[CodeUse]], frozen=True, kw_only=True):
    """The code of executions that have not ended, newest first.

    `execution_kind`: of this kind alone. Their journals are looked through for markers, so
    pages are short: at most 200 executions.
    """

    namespace: str | None = None
    execution_kind: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("repin_execution", Kind.WRITE, Scope.OPERATE, errors=(NotFound, ExecutionNotEligible))
class RepinExecution(UnsafeRequest[Repinned], frozen=True, kw_only=True):
    """Let an execution that does not run belong to another version of its task.

    `expected`: the version it is pinned to; refused if it is another one, or none.
    """

    execution_id: str
    expected: str
    version: str
