"""Lines: executions of one serial key, which run one at a time in the order in which they came."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import InvalidCursor, LineNotHeld, NotFound
from flowfabric.model.line import InLine, Line, LineReleased
from flowfabric.model.repair import Repaired


@operation("list_lines", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListLines(Request[Page[Line]], frozen=True, kw_only=True):
    """The lines of a namespace by their serial keys: those with an execution that has not
    ended, and those that a failed head holds up."""

    namespace: str | None = None  # none: the engine's
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("list_line", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ListLine(Request[Page[InLine]], frozen=True, kw_only=True):
    """The executions of one line in their order; the first one has the turn, or failed and
    holds up the others. Executions whose dependencies have not ended are in no line yet."""

    serial_key: str
    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("release_line", Kind.WRITE, Scope.OPERATE, errors=(NotFound, LineNotHeld))
class ReleaseLine(UnsafeRequest[LineReleased], frozen=True, kw_only=True):
    """Let a line go on past a failed head that holds it up (`on_head_failure="hold"`). To run
    the head again instead, replay it: it keeps the turn."""

    serial_key: str
    namespace: str | None = None


@operation("reconcile_lines", Kind.ADMIN, Scope.ADMIN, errors=(InvalidCursor,))
class ReconcileLines(UnsafeRequest[Repaired], frozen=True, kw_only=True):
    """Close places of executions that no longer wait there, count those behind each head, and
    pass the turns of heads that are gone. With `serial_key`, only that line."""

    serial_key: str | None = None
    namespace: str | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
