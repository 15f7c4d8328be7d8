"""Lines: executions of one serial key, which run one at a time in the order in which they came."""

from __future__ import annotations

from flowfabric.model.columns import Counter, Instant, Long
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState


class LineRow(Record, frozen=True):
    """A serial key of which an execution has not ended. It is the lock of its line."""

    namespace: str
    serial_key: str
    head_id: str  # the execution with the turn, or one that failed and holds up the others
    head_number: Long  # its number
    last_number: Long  # that of the last one that joined
    waiting: Counter = 0  # how many are behind the head
    held_at: Instant | None = None  # since when a failed head holds up the others
    due_at: Instant | None = None  # when the loop looks at a head that was locked


class PlaceRow(Record, frozen=True):
    """A place behind the head of a line. It is changed under the lock of the line."""

    namespace: str
    serial_key: str
    number: Long
    execution_id: str


class Line(Record, frozen=True):
    """A line as shown: its head, and how many are behind it.

    `held_at`: since when its head, which failed, holds up the others.
    """

    namespace: str
    serial_key: str
    head_id: str
    waiting: int
    held_at: int | None = None


class InLine(Record, frozen=True):
    """An execution in a line, as shown. The head is at position 0 of its line's numbers, or holds
    the turn; `number` only rises along the line."""

    number: int
    execution_id: str
    execution_kind: str
    public_state: PublicState
    since: int


class LineReleased(Record, frozen=True):
    """A line goes on past its failed head: `next_id` has the turn now, if any waits."""

    serial_key: str
    passed_id: str
    next_id: str | None = None
