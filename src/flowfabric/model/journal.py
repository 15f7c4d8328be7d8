"""The journal of an execution: what its handler has done, entry by entry, so that another run of it
goes on where the last one stopped.

Entries are only ever added. Of several with one key the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from flowfabric.model.budget import UsageOutcome
from flowfabric.model.columns import Counter, Instant, Long
from flowfabric.model.record import Record, from_json, to_json
from flowfabric.model.suspension import ResumeInfo

UNUSED_KEY: Final = "unused"  # of the entry about entries that no call asked for
PATCH_PREFIX: Final = "patch:"  # of the key of an entry that a change of the code applies
# Of the entries; the first one of a journal names it. 2: spawns are entries and have numbers.
# 3: so do submits.
FORMAT: Final = 3


class EntryKind(StrEnum):
    """What an entry records."""

    STEP = "step"  # a function that ended
    STARTED = "started"  # a function that may begin only once is about to
    RETRYING = "retrying"  # failed tries of a step, and when it goes on
    VALUE = "value"  # a value that another run must not choose anew
    SPEND = "spend"  # what a block around steps has spent is settled
    PATCH = "patch"  # that a change of the code applies
    WINNER = "winner"  # which of several branches was first
    WAIT = "wait"  # a wait; how it ended is told by the suspension it refers to
    WAITPOINT = "waitpoint"  # an address that was handed out: the waitpoint it refers to
    SPAWN = "spawn"  # children, by their ids
    SUBMIT = "submit"  # other executions, or a flow, that were submitted, and what became of that
    UNDO = "undo"  # what is to be done if the execution does not succeed
    UNDONE = "undone"  # the handler had that done: the ids of these calls
    ENDED = "ended"  # how executions ended that were waited for, as far as it may change
    CHAPTER = "chapter"  # the beginning of a chapter: the arguments of its handler
    MESSAGE = "message"  # a message that was received
    REPLY = "reply"  # its answer
    UNUSED = "unused"  # the keys of entries that the code which ended the run did not ask for
    STATE = "state"  # no row of the journal: what the run publishes with the entries before it


class EntryState(StrEnum):
    """How it ended."""

    OK = "ok"
    FAILED = "failed"
    OPEN = "open"  # it goes on
    REOPENED = "reopened"  # it failed and ended an attempt: the next attempt tries it again


class EntryError(Record, frozen=True):
    """Why a step failed.

    `names`: the class of the exception and its ancestors, nearest first. `arguments`: those of an
    exception that is raised again as itself, as JSON.
    """

    category: str
    reason: str
    names: tuple[str, ...] = ()
    arguments: str | None = None
    is_permanent: bool = False


class CodeMark(Record, frozen=True):
    """Which code began a journal."""

    format: int = FORMAT
    version: str | None = None


class Settlement(Record, frozen=True):
    """A reservation that ends with an entry, in its transaction: what was really spent."""

    budget_id: str
    hold_id: str
    amounts: Mapping[str, int]


class NewEntry(Record, frozen=True, kw_only=True):
    """One entry to add.

    `position`: among the entries of its journal and chapter, from 0. `asked`: which call of its
    scope it was. `key`: `scope/name#n`. `digest`: of the arguments; `arguments`: these, as JSON,
    where they are short and no secret. `tries`: how often it was tried.
    `value`: JSON. `settles`: reservations of this execution that are charged with it.
    """

    position: int
    key: str
    kind: EntryKind = EntryKind.STEP
    state: EntryState = EntryState.OK
    asked: int = 0
    value: bytes | None = None
    digest: bytes | None = None
    error: EntryError | None = None
    tries: int = 1
    began_at: int = 0
    took_ms: int = 0
    is_secret: bool = False
    code: CodeMark | None = None
    settles: tuple[Settlement, ...] = ()
    arguments: bytes | None = None


class EntryRow(Record, frozen=True):
    """One entry as stored. Written under the lock of its execution, and never again."""

    execution_id: str
    journal_index: Counter
    chapter_index: Counter
    position: Counter
    asked: Counter
    key: str
    kind: EntryKind
    state: EntryState
    tries: Counter
    began_at: Instant
    took_ms: Long
    recorded_at: Instant
    attempt_index: Counter
    lease_epoch: Long
    is_secret: Counter  # 1: shown in no listing
    value: bytes | None = None
    digest: bytes | None = None
    error: EntryError | None = None
    code: CodeMark | None = None
    # What the handler asked for next, on the last entry of a checkpoint that something waited for.
    next_key: str | None = None
    refers_to: str | None = None  # of a wait: its suspension
    arguments: bytes | None = None  # short ones, to be shown if the code gives others

    def repeats(self, other: EntryRow) -> bool:
        """Whether both record the same end of the same call."""
        return (
            self.key == other.key
            and self.kind is other.kind
            and self.state is other.state
            and self.digest == other.digest
            and self.lease_epoch == other.lease_epoch
        )


class JournalEntry(Record, frozen=True):
    """One entry as readers get it. A secret one has no value."""

    position: int
    key: str
    kind: EntryKind
    state: EntryState
    asked: int
    tries: int
    began_at: int
    took_ms: int
    recorded_at: int
    attempt_index: int
    size: int
    value: bytes | None = None
    digest: bytes | None = None
    error: EntryError | None = None
    code: CodeMark | None = None
    next_key: str | None = None
    is_secret: bool = False
    refers_to: str | None = None
    arguments: bytes | None = None


def outcome_value(outcome: ResumeInfo) -> bytes:
    """How a wait ended, as the value of an entry: a copy cannot refer to the suspension."""
    return to_json(outcome)


def copied_outcome(entry: JournalEntry) -> ResumeInfo | None:
    """How a wait ended, if its entry was copied with that. The value of any other one is a number:
    when the wait was to end."""
    value = entry.value
    if entry.kind is not EntryKind.WAIT or value is None or not value.startswith(b"{"):
        return None
    return from_json(value, ResumeInfo, field="entry.value")


class JournalPage(Record, frozen=True):
    """Some entries in their order; read on after the position of the last one.

    `outcomes`: how the waits among them ended, by their suspensions; where values are asked for.
    """

    entries: tuple[JournalEntry, ...]
    journal_index: int
    chapter_index: int
    has_more: bool = False
    outcomes: Mapping[str, ResumeInfo] = {}


class EntryMark(Record, frozen=True):
    """An entry without its value."""

    execution_id: str
    journal_index: Counter
    chapter_index: Counter
    position: Counter
    key: str
    kind: EntryKind
    code: CodeMark | None = None


class PublishedRow(Record, frozen=True):
    """What a run has published last. Written under the lock of its execution."""

    execution_id: str
    value: bytes
    published_at: Instant
    attempt_index: Counter


class Published(Record, frozen=True):
    """What a run has published last, as JSON."""

    value: bytes
    published_at: int
    attempt_index: int


class RunningRow(Record, frozen=True):
    """What a handler was at when its lease was renewed last: the key of a step, and since when.
    Written under the lock of its execution; it holds as long as no later renewal or entry came."""

    execution_id: str
    key: str
    since: Instant
    told_at: Instant
    lease_epoch: Long


class Continued(Record, frozen=True, tag=True):
    """The execution goes on in another chapter, as soon as a worker takes it."""

    execution_id: str
    chapter_index: int


class Forked(Record, frozen=True, tag=True):
    """Another execution goes on from a copy of a journal; so many entries were copied."""

    execution_id: str
    forked_from: str
    entry_count: int


class Checkpointed(Record, frozen=True):
    """Every entry up to this position is durable.

    `outcomes`: how the reservations that end with them were settled, in their order.
    """

    position: int
    outcomes: tuple[UsageOutcome, ...] = ()
