"""Append lines: the owner of a lease adds to the log of its attempt, as long as there is room."""

from __future__ import annotations

from typing import Final

from flowfabric import limits
from flowfabric.errors import StaleLease
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.fence import not_found, refuse_unless_owner
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.log_lines import WARNING, LineChunk, LogsAppended, NewLine, RunLogRow
from flowfabric.model.record import replace

MARKER_LOGGER: Final = "flowfabric.logs"
FULL: Final = (
    f"the log of this attempt is full ({limits.LOG_LINES_MAX} lines, {limits.LOG_BYTES_MAX} bytes "
    "at most): what follows is dropped"
)


class AppendLines(ExecutionCommand[LogsAppended], frozen=True, kw_only=True):
    """Add lines. Those for which there is no room are counted."""

    fence: Fence
    attempt_index: int
    lines: tuple[NewLine, ...]
    dropped: int = 0
    first: int | None = None

    def needs(self, need: Needs) -> None:
        """The execution and the log of the attempt."""
        need.executions.add(self.execution_id)
        need.run_logs.add((self.execution_id, self.attempt_index))


def append_lines(
    execution: Execution | None, log: RunLogRow | None, command: AppendLines, at: Moment
) -> Decision[LogsAppended]:
    """Lines with rising numbers, under the same fence as every other write of an owner."""
    refusal = refuse_unless_owner(execution, command.execution_id, command.fence, at.now)
    if refusal is not None or execution is None:
        return Decision(refusal or not_found(command.execution_id))
    if execution.attempt_index != command.attempt_index:
        return Decision(Refused(StaleLease, f"attempt {command.attempt_index} is over"))
    before = log or RunLogRow(command.execution_id, command.attempt_index)
    lines, dropped = _unwritten(before, command)
    if not lines and not dropped:
        return Decision(LogsAppended(before.line_count, before.dropped_count))
    fitting, byte_count = _fitting(before, lines)
    dropped += len(lines) - len(fitting)
    if dropped and not before.dropped_count:
        fitting = (*fitting, NewLine(FULL, at.now, WARNING, MARKER_LOGGER))
    after = replace(
        before,
        line_count=before.line_count + len(fitting),
        byte_count=byte_count,
        dropped_count=before.dropped_count + dropped,
        client_seq=max(before.client_seq, _last_number(command)),
    )
    reply = LogsAppended(after.line_count, after.dropped_count)
    return Decision(reply, saves=(after, *_chunks(before, fitting)))


def _last_number(command: AppendLines) -> int:
    if command.first is None:
        return 0
    return command.first - 1 + len(command.lines) + command.dropped


def _unwritten(log: RunLogRow, command: AppendLines) -> tuple[tuple[NewLine, ...], int]:
    """The lines, and how many dropped ones, that no earlier call has told."""
    told = 0 if command.first is None else max(0, log.client_seq - command.first + 1)
    told_dropped = max(0, told - len(command.lines))
    return command.lines[told:], max(0, command.dropped - told_dropped)


def _fitting(log: RunLogRow, lines: tuple[NewLine, ...]) -> tuple[tuple[NewLine, ...], int]:
    """The lines for which there is room, and the bytes of the log with them. Nothing follows the
    first line that was dropped, or readers would not see where lines are missing."""
    size, count = log.byte_count, 0
    room = 0 if log.dropped_count else limits.LOG_LINES_MAX - log.line_count
    for line in lines[:room]:
        if size + line.size > limits.LOG_BYTES_MAX:
            break
        size += line.size
        count += 1
    return lines[:count], size


def _chunks(before: RunLogRow, lines: tuple[NewLine, ...]) -> list[LineChunk]:
    """Lines in rows that a reader of a page likes to read."""
    chunks: list[LineChunk] = []
    part: list[NewLine] = []
    size = 0
    for number, line in enumerate(lines, before.line_count + 1):
        part.append(line)
        size += line.size
        is_last = number == before.line_count + len(lines)
        if is_last or len(part) == limits.LOG_CHUNK_LINES or size >= limits.LOG_CHUNK_BYTES:
            key = (before.execution_id, before.attempt_index, number)
            chunks.append(LineChunk(*key, tuple(part)))
            part, size = [], 0
    return chunks
