"""Streams: what a handler shows while it runs, frame by frame.

Each attempt has one stream, made by its first frame. Frames are kept by mode, so that no mode takes
room from another.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, NamedTuple

from flowfabric import limits
from flowfabric.errors import InvalidCursor
from flowfabric.model.checks import check_text
from flowfabric.model.columns import Instant
from flowfabric.model.record import Record, from_json
from flowfabric.model.words import StreamMode

# --- words ---------------------------------------------------------------------------------------


class FrameKind(StrEnum):
    """What a frame is; the name of its type unless it has one of its own."""

    STDOUT = "stdout"
    STDERR = "stderr"
    EVENT = "event"
    BLOB = "blob"


class PatchKind(StrEnum):
    """How the payload of a summary frame changes the document."""

    MERGE = "json-merge-patch"  # RFC 7396
    APPEND = "append"  # a list of {path, value}: text or lists that grow


class Visibility(StrEnum):
    """Which frames a reader sees."""

    ALL = "all"
    EXCLUDE_BEST_EFFORT = "exclude_best_effort"


class ClosedReason(StrEnum):
    """How the attempt of a stream ended. A suspension closes none: the attempt goes on."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"  # the attempt, or a suspension of it, took too long
    EXPIRED = "expired"  # the execution's deadline
    LEASE_EXPIRED = "lease_expired"
    LEASE_REVOKED = "lease_revoked"
    SKIPPED = "skipped"  # only of a whole execution: it had no attempt


# --- ids and cursors -----------------------------------------------------------------------------

_ID: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?")
_NUMBER_MAX: Final = 2**63 - 1
_CURSOR_BYTES: Final = 64
START: Final = "start"
END: Final = "end"


class FrameId(NamedTuple):
    """The place of a frame in its stream: `<ms>-<seq>`. Ids rise strictly.

    >>> str(FrameId(1731, 4))
    '1731-4'
    """

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"


BEGINNING: Final = FrameId(0, 0)  # before every frame
LAST: Final = FrameId(_NUMBER_MAX, _NUMBER_MAX)


def frame_id_from(value: object, *, field: str) -> FrameId:
    """A concrete place, `<ms>` or `<ms>-<seq>`; anything else says what is wrong with it."""
    text = _cursor_text(value, field)
    if text in (START, END):
        detail = f"{field}: {text} is no concrete place; 0-0 is the beginning"
        raise InvalidCursor(detail, field=field)
    match = _ID.fullmatch(text)
    if match is None:
        raise InvalidCursor(f"{field}: {text!r:.80} is not <ms> or <ms>-<seq>", field=field)
    found = FrameId(int(match[1]), int(match[2] or 0))
    if max(found) > _NUMBER_MAX:
        raise InvalidCursor(f"{field}: {text} is beyond every frame", field=field)
    return found


def bound_from(value: object, *, field: str) -> FrameId:
    """A bound of a read: a concrete place, or `start` or `end`."""
    text = _cursor_text(value, field)
    if text == START:
        return BEGINNING
    return LAST if text == END else frame_id_from(text, field=field)


def _cursor_text(value: object, field: str) -> str:
    text = check_text(value, field=field, max_bytes=_CURSOR_BYTES, empty=True)
    if not text:
        raise InvalidCursor(f"{field}: is empty; begin with start, or 0-0", field=field)
    if text in ("-", "+"):
        raise InvalidCursor(f"{field}: {text} alone is no place; use start or end", field=field)
    return text


class Place(NamedTuple):
    """A place among the streams of all attempts of an execution: `<attempt>:<ms>-<seq>`.

    >>> str(Place(2, FrameId(1731, 4)))
    '2:1731-4'
    """

    attempt_index: int
    frame_id: FrameId

    def __str__(self) -> str:
        return f"{self.attempt_index}:{self.frame_id}"


FIRST_PLACE: Final = Place(0, BEGINNING)


def place_from(value: object, *, field: str = "after") -> Place:
    """A place from its text; None is the beginning."""
    if value is None:
        return FIRST_PLACE
    attempt, _, rest = _cursor_text(value, field).partition(":")
    if not (attempt.isascii() and attempt.isdigit() and len(attempt) <= 10 and rest):
        raise InvalidCursor(f"{field}: expected <attempt>:<ms>-<seq>", field=field)
    return Place(int(attempt), frame_id_from(rest, field=field))


# --- what a writer gives -------------------------------------------------------------------------


class BestEffort(Record, frozen=True, kw_only=True):
    """How best-effort frames of a stream are kept: for `ttl_ms`, and as many as came lately."""

    ttl_ms: int = limits.FRAME_TTL_MS_DEFAULT
    maxlen_floor: int = limits.LIVE_FRAMES_FLOOR
    maxlen_ceiling: int = limits.LIVE_FRAMES_CEILING
    ema_alpha: float = limits.LIVE_RATE_ALPHA


class NewFrame(Record, frozen=True, kw_only=True):
    """One frame to append.

    `mode`: none is that of the execution's stream policy. `seq`: numbers a writer's frames of an
    attempt, rising; a frame with a number that is not above the last one was written before, and
    is not written again. `encoding`: what the bytes are, for readers; none is `utf8` where they
    are, else `binary`. `patch_kind` and `expected_version`: of summary frames. `best_effort`: of
    best-effort frames.
    """

    payload: bytes
    kind: FrameKind = FrameKind.EVENT
    frame_type: str = ""
    mode: StreamMode | None = None
    encoding: str | None = None
    correlation_id: str | None = None
    seq: int | None = None
    patch_kind: PatchKind = PatchKind.MERGE
    expected_version: int | None = None
    best_effort: BestEffort | None = None


# --- rows ----------------------------------------------------------------------------------------


class StreamRow(Record, frozen=True):
    """One stream: its last id and its counters. It is as narrow as it can be: each append writes
    it."""

    execution_id: str
    attempt_index: int
    created_at: Instant
    last_ms: int = 0
    last_seq: int = 0
    client_seq: int = 0  # the last number a writer gave to a frame
    total_bytes: int = 0
    # frames of each mode in its life, and the number up to which they were trimmed
    durable_count: int = 0
    durable_trimmed: int = 0
    summary_count: int = 0
    summary_trimmed: int = 0
    best_effort_count: int = 0
    best_effort_trimmed: int = 0
    rate_uhz: int = 0  # of best-effort frames, in millionths of a hertz
    best_effort_at: Instant | None = None  # when the last one came

    @property
    def last(self) -> FrameId:
        """The id of the last frame."""
        return FrameId(self.last_ms, self.last_seq)

    @property
    def frame_count(self) -> int:
        """How many frames were appended in its life."""
        return self.durable_count + self.summary_count + self.best_effort_count

    def count_of(self, mode: StreamMode) -> int:
        """How many frames of a mode were appended in its life."""
        count: int = getattr(self, f"{mode.value}_count")
        return count

    def trimmed_of(self, mode: StreamMode) -> int:
        """The number of the last frame of a mode that is gone."""
        trimmed: int = getattr(self, f"{mode.value}_trimmed")
        return trimmed


class SummaryRow(Record, frozen=True):
    """The rolling document of an attempt."""

    execution_id: str
    attempt_index: int
    document: bytes  # JSON
    version: int
    patch_kind: PatchKind  # of the last change
    first_applied_at: Instant
    last_updated_at: Instant


class FrameRow(Record, frozen=True):
    """One frame. The mode is a part of the key: frames are read and trimmed mode by mode."""

    execution_id: str
    attempt_index: int
    mode: StreamMode
    ms: int
    seq: int
    number: int  # among the frames of its mode, from 1
    kind: FrameKind
    frame_type: str
    payload: bytes
    encoding: str
    source: str
    appended_at: Instant
    correlation_id: str | None = None
    client_seq: int | None = None
    summary_version: int | None = None
    due_at: Instant | None = None  # it expires then

    @property
    def frame_id(self) -> FrameId:
        """Its place."""
        return FrameId(self.ms, self.seq)


class FrameMark(Record, frozen=True):
    """A frame without its payload, for trimming and for repeated appends."""

    execution_id: str
    attempt_index: int
    mode: StreamMode
    ms: int
    seq: int
    number: int
    client_seq: int | None = None

    @property
    def frame_id(self) -> FrameId:
        """Its place."""
        return FrameId(self.ms, self.seq)


# --- replies -------------------------------------------------------------------------------------


class Appended(Record, frozen=True):
    """The ids of appended frames, in their order.

    Of a frame that was written before, the id it got then; none where that one is trimmed.
    """

    stream_id: str  # <execution>:<attempt>
    frame_ids: tuple[str | None, ...]
    frame_count: int  # in the life of the stream
    summary_version: int | None = None


class Frame(Record, frozen=True):
    """One frame as readers get it."""

    id: str
    attempt_index: int
    mode: StreamMode
    kind: FrameKind
    frame_type: str
    payload: bytes
    encoding: str
    source: str
    appended_at: int
    correlation_id: str | None = None
    summary_version: int | None = None
    expires_at: int | None = None

    @property
    def cursor(self) -> str:
        """The place to read on after this frame, among all attempts of its execution."""
        return f"{self.attempt_index}:{self.id}"

    @property
    def text(self) -> str:
        """The payload as text; bytes that are no text are replaced."""
        return self.payload.decode(errors="replace")

    @property
    def value(self) -> Any:
        """The payload as its encoding says: text, a JSON value, or bytes."""
        if self.encoding == "json":
            return from_json(self.payload, object, field="payload")
        return self.text if self.encoding == "utf8" else self.payload


class StreamPage(Record, frozen=True):
    """Some frames in their order; read on after `next_cursor`.

    A page with `closed_at` is the last one: the attempt (or the execution) has ended, and every
    frame was given.
    """

    frames: tuple[Frame, ...]
    next_cursor: str
    closed_at: int | None = None
    closed_reason: ClosedReason | None = None

    @property
    def has_news(self) -> bool:
        """Whether there is a frame, or the end."""
        return bool(self.frames) or self.closed_at is not None


class Summary(Record, frozen=True):
    """The rolling document of an attempt; JSON."""

    document: bytes
    version: int
    patch_kind: PatchKind
    first_applied_at: int
    last_updated_at: int
