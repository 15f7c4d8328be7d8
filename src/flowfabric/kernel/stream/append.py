"""Append: the owner of a lease adds frames to the stream of its attempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from flowfabric.errors import StaleLease
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.kernel.execution.own import Delay
from flowfabric.kernel.journal.chapter import Continue
from flowfabric.kernel.journal.checkpoint import Checkpoint
from flowfabric.kernel.stream.log_lines import AppendLines
from flowfabric.kernel.stream.retention import (
    best_effort_length,
    best_effort_rate,
    counted,
    kept_length,
    rate_stored,
    trimmed_to,
)
from flowfabric.kernel.stream.summary import change_summary
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.journal import Continued
from flowfabric.model.policy import StreamPolicy
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Completed, Delayed, RetryScheduled, TerminalFailed
from flowfabric.model.stream import (
    Appended,
    BestEffort,
    FrameId,
    FrameRow,
    NewFrame,
    StreamRow,
    SummaryRow,
)
from flowfabric.model.words import StreamMode

SOURCE: Final = "worker"
_SUMMARY: Final = StreamMode.SUMMARY
_BEST_EFFORT: Final = StreamMode.BEST_EFFORT


class AppendFrames(ExecutionCommand[Appended], frozen=True, kw_only=True):
    """Add frames, all or none."""

    fence: Fence
    attempt_index: int
    frames: tuple[NewFrame, ...]

    def needs(self, need: Needs) -> None:
        """The execution, the stream of the attempt and its document."""
        need.executions.add(self.execution_id)
        key = (self.execution_id, self.attempt_index)
        need.streams.add(key)
        # Frames that name no mode take that of the policy, which is not known yet.
        if any(frame.mode in (None, _SUMMARY) for frame in self.frames):
            need.summaries.add(key)


class EndWithOutput(
    ExecutionCommand[Completed | RetryScheduled | TerminalFailed | Delayed | Continued],
    frozen=True,
    kw_only=True,
):
    """The last frames, log lines and journal entries under a lease, and its end: all or none."""

    append: AppendFrames | None
    lines: AppendLines | None
    entries: Checkpoint | None
    end: Complete | Fail | Delay | Continue

    @property
    def parts(self) -> tuple[AppendFrames | AppendLines | Checkpoint, ...]:
        """What comes before the end."""
        parts = (self.append, self.lines, self.entries)
        return tuple(part for part in parts if part is not None)

    def needs(self, need: Needs) -> None:
        """What all need."""
        for part in self.parts:
            part.needs(need)
        self.end.needs(need)


class Facts(Record, frozen=True):
    """What an append depends on beside its execution."""

    stream: StreamRow | None = None
    summary: SummaryRow | None = None
    known: Mapping[int, FrameId] = {}  # newest frames by the number their writer gave them


def append_frames(
    execution: Execution | None, facts: Facts, command: AppendFrames, at: Moment
) -> Decision[Appended]:
    """Frames with rising ids, under the same fence as every other write of an owner."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    if execution.attempt_index != command.attempt_index:
        return Decision(Refused(StaleLease, f"attempt {command.attempt_index} is over"))
    writing = _Writing(execution, facts, at.now)
    for frame in command.frames:
        if (refused := writing.add(frame)) is not None:
            return Decision(refused)
    return writing.decision()


class _Writing:
    """One append under way."""

    def __init__(self, execution: Execution, facts: Facts, now: int) -> None:
        self._policy: StreamPolicy = execution.policy.stream_policy
        self._now = now
        self._key = (execution.execution_id, execution.attempt_index or 0)
        self._before = facts.stream
        self._stream = facts.stream or StreamRow(*self._key, created_at=now)
        self._summary_before = self._summary = facts.summary
        self._known = dict(facts.known)
        self._written: list[FrameRow] = []
        self._ids: list[str | None] = []
        self._live_length = 0  # how many best-effort frames are kept

    def add(self, frame: NewFrame) -> Refused | None:
        """One more frame, unless its writer's number says that it was written before."""
        if frame.seq is not None and frame.seq <= self._stream.client_seq:
            found = self._known.get(frame.seq)
            self._ids.append(None if found is None else str(found))
            return None
        mode = frame.mode or self._policy.durability_mode
        version = None
        if mode is _SUMMARY:
            summary = change_summary(self._summary, frame, self._key, self._now)
            if isinstance(summary, Refused):
                return summary
            self._summary, version = summary, summary.version
        due_at = self._due_at(frame, mode)
        self._write(frame, mode, version, due_at)
        return None

    def _due_at(self, frame: NewFrame, mode: StreamMode) -> int | None:
        """When the frame expires; of a best-effort frame, the rate is counted on."""
        if mode is not _BEST_EFFORT:
            ttl = self._policy.retention_ttl_ms
            return None if ttl is None else self._now + ttl
        settings = frame.best_effort or BestEffort()
        rate = best_effort_rate(self._stream, settings, self._now)
        self._live_length = best_effort_length(rate, settings)
        self._stream = replace(self._stream, rate_uhz=rate_stored(rate), best_effort_at=self._now)
        return self._now + settings.ttl_ms

    def _write(
        self, frame: NewFrame, mode: StreamMode, version: int | None, due_at: int | None
    ) -> None:
        stream = self._stream
        ms = max(self._now, stream.last_ms)  # a clock that went back must not lower ids
        place = FrameId(ms, stream.last_seq + 1 if ms == stream.last_ms else 0)
        self._stream = replace(
            stream,
            last_ms=place.ms,
            last_seq=place.seq,
            client_seq=stream.client_seq if frame.seq is None else frame.seq,
            total_bytes=stream.total_bytes + len(frame.payload),
            **counted(stream, mode),
        )
        if frame.seq is not None:
            self._known[frame.seq] = place
        self._ids.append(str(place))
        self._written.append(
            FrameRow(
                *self._key,
                mode,
                *place,
                self._stream.count_of(mode),
                frame.kind,
                frame.frame_type or frame.kind.value,
                frame.payload,
                frame.encoding or _encoding_of(frame.payload),
                SOURCE,
                self._now,
                frame.correlation_id,
                frame.seq,
                version,
                due_at,
            )
        )

    def decision(self) -> Decision[Appended]:
        """The rows to write; frames that have to go are those up to the numbers in the stream."""
        summary = self._summary
        reply = Appended(
            f"{self._key[0]}:{self._key[1]}",
            tuple(self._ids),
            self._stream.frame_count,
            None if summary is None else summary.version,
        )
        if not self._written:
            return Decision(replace(reply, frame_count=self._stream.frame_count))
        for mode, added in Counter(row.mode for row in self._written).items():
            live = mode is _BEST_EFFORT
            keep = self._live_length if live else kept_length(mode, self._policy)
            gone = trimmed_to(self._stream, mode, keep, added)
            if gone != self._stream.trimmed_of(mode):
                self._stream = replace(self._stream, **counted(self._stream, mode, gone))
        saves: list[Record] = [self._stream, *self._written]
        if summary is not None and summary is not self._summary_before:
            saves.append(summary)
        return Decision(reply, saves=tuple(saves))


def _encoding_of(payload: bytes) -> str:
    """What bytes are that come without a word about it."""
    try:
        payload.decode()
    except UnicodeDecodeError:
        return "binary"
    return "utf8"
