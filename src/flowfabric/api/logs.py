"""What handlers log: lines kept with their attempt, written by the owner of a lease."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.refusals import BY_HANDLE, LOGGED
from flowfabric.errors import InvalidCursor, NotFound, ResourceExhausted
from flowfabric.model.handle import Handle
from flowfabric.model.log_lines import LogBatch, LogPage, LogsAppended


@operation("append_logs", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *LOGGED))
class AppendLogs(Request[LogsAppended], frozen=True, kw_only=True):
    """Add lines to the log of the attempt, in one transaction.

    A log that is full ends with a line that says so; what follows is counted and not kept.
    Lines with numbers of their writer are written once, however often the call is repeated.
    """

    handle: Handle
    logs: LogBatch


@operation("read_logs", Kind.WAIT, Scope.READ, errors=(NotFound, InvalidCursor, ResourceExhausted))
class ReadLogs(Request[LogPage], frozen=True, kw_only=True):
    """Lines of one attempt, or of all attempts one after the other, after a place.

    A place is `<attempt>:<line>`, as `next_cursor` has it; none is the beginning. Waits up to
    `wait_ms`, at most 30 seconds, while there are none and more may come, and then answers an
    empty page. A page with `closed_at` is the last one.
    """

    execution_id: str
    attempt_index: int | None = None
    after: str | None = None
    limit: int = limits.PAGE_DEFAULT
    wait_ms: int = 0
