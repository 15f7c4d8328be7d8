"""The log of a run: what a handler logs, kept with its attempt.

Each attempt has one log, made by its first line. Lines are numbered from 1 and stored several in a
row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from flowfabric.errors import InvalidCursor
from flowfabric.model.checks import check_text
from flowfabric.model.record import Record
from flowfabric.model.stream import ClosedReason

_CURSOR_BYTES: Final = 64
_DIGITS_MAX: Final = 10
_LEVELS: Final = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"), (10, "debug"))
INFO: Final = 20
WARNING: Final = 30


# --- cursors -------------------------------------------------------------------------------------


class LinePlace(NamedTuple):
    """A place in the logs of an execution: `<attempt>:<line>`.

    >>> str(LinePlace(2, 17))
    '2:17'
    """

    attempt_index: int
    number: int

    def __str__(self) -> str:
        return f"{self.attempt_index}:{self.number}"


FIRST_LINE: Final = LinePlace(0, 0)


def line_place_from(value: object, *, field: str = "after") -> LinePlace:
    """A place from its text; None is the beginning."""
    if value is None:
        return FIRST_LINE
    text = check_text(value, field=field, max_bytes=_CURSOR_BYTES, empty=True)
    attempt, _, number = text.partition(":")
    if not (_is_number(attempt) and _is_number(number)):
        raise InvalidCursor(f"{field}: {text!r:.80} is not <attempt>:<line>", field=field)
    return LinePlace(int(attempt), int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


# --- what a writer gives -------------------------------------------------------------------------


class NewLine(Record, frozen=True):
    """One line to keep.

    `at`: when it was logged, by the clock of the machine that did. `level`: as in `logging`, 0 to
    100. `logger`: the name of the logger.
    """

    message: str
    at: int
    level: int = INFO
    logger: str = ""

    @property
    def size(self) -> int:
        """How many bytes of a log it takes."""
        return len(self.message.encode()) + len(self.logger.encode())


class LogBatch(Record, frozen=True, kw_only=True):
    """Lines of one attempt, in order.

    `dropped`: how many more there were behind them that their writer did not keep. `first`: the
    writer's number of the first line; the others count on from it, the dropped ones included. A
    line with a number that is not above the last one was written before, and is not written again.
    """

    lines: Sequence[NewLine] = ()
    dropped: int = 0
    first: int | None = None


# --- rows ----------------------------------------------------------------------------------------


class RunLogRow(Record, frozen=True):
    """The log of one attempt: its counters."""

    execution_id: str
    attempt_index: int
    line_count: int = 0  # the number of the last line
    byte_count: int = 0
    dropped_count: int = 0
    client_seq: int = 0  # the last number a writer gave to a line

    @property
    def last(self) -> int:
        """The number of the last line."""
        return self.line_count


class LineChunk(Record, frozen=True):
    """Some lines that were written together. The key has the number of the last one, so that the
    chunk with the line after a given one is the next by key."""

    execution_id: str
    attempt_index: int
    last_line: int
    lines: tuple[NewLine, ...]


# --- replies -------------------------------------------------------------------------------------


class LogsAppended(Record, frozen=True):
    """How much the log of the attempt has now."""

    line_count: int
    dropped_count: int  # lines that were not kept: the log is full


class LogLine(Record, frozen=True):
    """One line as readers get it."""

    attempt_index: int
    number: int  # in the log of its attempt, from 1
    at: int
    level: int
    logger: str
    message: str

    @property
    def cursor(self) -> str:
        """The place to read on after this line."""
        return f"{self.attempt_index}:{self.number}"

    @property
    def level_name(self) -> str:
        """The level in a word; of one between two, the lower.

        >>> LogLine(0, 1, 0, 35, "app", "careful").level_name
        'warning'
        """
        return next((name for least, name in _LEVELS if self.level >= least), "notset")


class LogPage(Record, frozen=True):
    """Some lines in their order; read on after `next_cursor`.

    A page with `closed_at` is the last one: the attempt (or the execution) has ended, and every
    line was given. `dropped_count`: lines of the attempts from this place on that were not kept.
    """

    lines: tuple[LogLine, ...]
    next_cursor: str
    closed_at: int | None = None
    closed_reason: ClosedReason | None = None
    dropped_count: int = 0

    @property
    def has_news(self) -> bool:
        """Whether there is a line, or the end."""
        return bool(self.lines) or self.closed_at is not None
