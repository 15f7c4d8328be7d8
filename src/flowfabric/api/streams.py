"""What attempts show while they run: frames and summaries, written by the owner of a lease."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.refusals import BY_HANDLE, FRAMED
from flowfabric.api.words import VisibilityGiven
from flowfabric.errors import InvalidCursor, NotFound, ResourceExhausted
from flowfabric.model.handle import Handle
from flowfabric.model.stream import Appended, NewFrame, StreamPage, Summary, Visibility


@operation("append_frame", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *FRAMED))
class AppendFrame(Request[Appended], frozen=True, kw_only=True):
    """Add one frame to the stream of the attempt."""

    handle: Handle
    frame: NewFrame


@operation("append_frames", Kind.WRITE, Scope.WORKER, errors=(*BY_HANDLE, *FRAMED))
class AppendFrames(Request[Appended], frozen=True, kw_only=True):
    """Add frames to the stream of the attempt, all or none, in one transaction.

    Frames with a `seq` of their writer are written once, however often the call is repeated.
    """

    handle: Handle
    frames: Sequence[NewFrame]


@operation("read_stream", Kind.READ, Scope.READ, errors=(NotFound, InvalidCursor))
class ReadStream(Request[StreamPage], frozen=True, kw_only=True):
    """Frames of one attempt from one place to another, both included, in order.

    A place is `<ms>-<seq>`, the id of a frame, or `<ms>`, `start` or `end`. To read on, ask
    with `tail_stream` after `next_cursor`.
    """

    execution_id: str
    attempt_index: int
    from_cursor: str = "start"
    to_cursor: str = "end"
    count_limit: int = limits.READ_FRAMES_DEFAULT
    visibility: VisibilityGiven = Visibility.ALL


@operation(
    "tail_stream", Kind.WAIT, Scope.READ, errors=(NotFound, InvalidCursor, ResourceExhausted)
)
class TailStream(Request[StreamPage], frozen=True, kw_only=True):
    """Frames of one attempt after a place; `0-0` is the beginning.

    Waits up to `wait_ms`, at most 30 seconds, while there are none and the stream is open, and
    then answers an empty page. A page with `closed_at` is the last one.
    """

    execution_id: str
    attempt_index: int
    after: str = "0-0"
    wait_ms: int = 0
    count_limit: int = limits.READ_FRAMES_DEFAULT
    visibility: VisibilityGiven = Visibility.ALL


@operation(
    "read_execution_stream",
    Kind.WAIT,
    Scope.READ,
    errors=(NotFound, InvalidCursor, ResourceExhausted),
)
class ReadExecutionStream(Request[StreamPage], frozen=True, kw_only=True):
    """Frames of all attempts of an execution after a place, attempt by attempt.

    A place is `<attempt>:<ms>-<seq>`, as `next_cursor` has it; none is the beginning. Waits
    like `tail_stream`. A page with `closed_at` is the last one: the execution has ended.
    """

    execution_id: str
    after: str | None = None
    limit: int = limits.READ_FRAMES_DEFAULT
    wait_ms: int = 0
    visibility: VisibilityGiven = Visibility.ALL


@operation("read_summary", Kind.READ, Scope.READ, errors=(NotFound,))
class ReadSummary(Request[Summary | None], frozen=True, kw_only=True):
    """The rolling document of an attempt, or None before its first change. No attempt: of the
    current one."""

    execution_id: str
    attempt_index: int | None = None
