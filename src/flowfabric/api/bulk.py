"""Bulk operations: one change to every execution that a filter selects.

One is a row that the engines with loops move on, a bounded piece at a time, whatever becomes of the
process that started it. Each execution is acted on at most once, in the transaction in which the
operation moves past it, and by the same rule as a call for it alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.api.words import BlockingReasonGiven, BulkActionGiven, BulkStateGiven, LetterGiven
from flowfabric.errors import (
    IdempotencyConflict,
    InvalidBlockingReason,
    InvalidCursor,
    InvalidTagKey,
    NotFound,
)
from flowfabric.model.bulk import BulkCounted, BulkOperation


@operation(
    "start_operation",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(IdempotencyConflict, InvalidBlockingReason, InvalidTagKey),
)
class StartOperation(UnsafeRequest[BulkOperation | BulkCounted], frozen=True, kw_only=True):
    """Cancel, retry, hold, release, dismiss, restore or reprioritise all executions that fit.

    >>> await engine.start_operation(action="cancel", lane_id="mail")  # doctest: +SKIP
    BulkOperation(operation_id='…', action=<BulkAction.CANCEL: 'cancel'>, …)

    The parts of the filter are those of `list_executions`, `blocking_reason`: what they wait
    for, `failure_category`, `dead_letter`: open or dismissed, and `fingerprint`: open dead
    letters of one group of failures, for retry and dismiss. Without `states`, those that the
    action is for; restore is for dismissed letters. Later executions are left alone.
    `reason` goes with all but release and priority, `new_priority` with priority, `cascade` and
    `fresh` with retry. `limit`: act on so many at most, newest first. `dry_run` only counts.
    `operation_id`: a UUID of the caller's own; a start repeated with it finds the first one.
    """

    action: BulkActionGiven
    namespace: str | None = None
    states: Sequence[str] = ()
    lane_id: str | None = None
    execution_kind: str | None = None
    tag: tuple[str, str] | None = None
    created_after: int | None = None
    created_before: int | None = None
    text: str | None = None
    blocking_reason: BlockingReasonGiven | None = None
    failure_category: str | None = None
    dead_letter: LetterGiven | None = None
    fingerprint: str | None = None
    reason: str = ""
    new_priority: int | None = None
    cascade: bool = False
    fresh: bool = False
    limit: int | None = None
    dry_run: bool = False
    operation_id: str | None = None


@operation("describe_operation", Kind.READ, Scope.READ)
class DescribeOperation(Request[BulkOperation | None], frozen=True, kw_only=True):
    """How far an operation is; None if it is unknown, or ended long ago."""

    operation_id: str


@operation("list_operations", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListOperations(Request[Page[BulkOperation]], frozen=True, kw_only=True):
    """Operations, newest first; `namespace`: those over this tenant alone."""

    namespace: str | None = None
    state: BulkStateGiven | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("stop_operation", Kind.WRITE, Scope.OPERATE, errors=(NotFound,))
class StopOperation(UnsafeRequest[BulkOperation], frozen=True, kw_only=True):
    """Act on nothing more. What was done stays done; one that is over stays as it ended."""

    operation_id: str
