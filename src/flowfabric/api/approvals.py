"""What people look at before and after they decide; the signals themselves are in `waits`."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.page import Page
from flowfabric.api.words import BlockingReasonGiven
from flowfabric.errors import InvalidCursor
from flowfabric.model.approvals import ApprovalGiven, WaitShown


@operation("show_wait", Kind.READ, Scope.READ, also=(Scope.APPROVE,))
class ShowWait(Request[WaitShown | None], frozen=True, kw_only=True):
    """One wait as a person needs it to decide: what it asks for, who has answered, what it is
    about.

    The waitpoint is the one that `find_waitpoint` finds by the key; it may be closed by now.
    """

    execution_id: str
    waitpoint_key: str


@operation("count_waits", Kind.READ, Scope.READ, also=(Scope.APPROVE,))
class CountWaits(Request[int], frozen=True, kw_only=True):
    """How many executions are suspended, of one `reason` if it is named.

    It counts no further than `at_most`.
    """

    namespace: str | None = None
    reason: BlockingReasonGiven | None = None
    at_most: int = limits.PAGE_DEFAULT


@operation("list_approvals", Kind.READ, Scope.READ, errors=(InvalidCursor,), also=(Scope.APPROVE,))
class ListApprovals(Request[Page[ApprovalGiven]], frozen=True, kw_only=True):
    """Signals that approved or rejected something, newest first.

    They are found as long as events are kept. A page looks through so many events at most: it
    may hold few items and still have a next one.
    """

    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
