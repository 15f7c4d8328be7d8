"""The checks of log lines, wherever they come with."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from flowfabric import limits
from flowfabric.errors import InvalidInput, RetentionLimitExceeded
from flowfabric.kernel.stream.log_lines import AppendLines
from flowfabric.model.checks import check_instant, check_integer, check_list, check_text
from flowfabric.model.handle import Handle
from flowfabric.model.log_lines import LogBatch, NewLine

_NUMBER_MAX: Final = (1 << 53) - 1
_DROPPED_MAX: Final = 1 << 40  # a writer that says more is wrong
_LEVEL_MAX: Final = 100


def lines_command(handle: Handle, logs: Any) -> AppendLines:
    """The command that adds these lines."""
    if not isinstance(logs, LogBatch):
        detail = f"logs: expected a LogBatch, got {type(logs).__name__}"
        raise InvalidInput(detail, field="logs")
    first, most = logs.first, _NUMBER_MAX
    if first is not None:
        first = check_integer(first, field="logs.first", least=1, most=most)
    return AppendLines(
        execution_id=handle.execution_id,
        fence=handle.fence,
        attempt_index=handle.attempt_index,
        lines=_lines(logs.lines),
        dropped=check_integer(logs.dropped, field="logs.dropped", least=0, most=_DROPPED_MAX),
        first=first,
    )


def _lines(lines: Any) -> tuple[NewLine, ...]:
    several = lines if type(lines) is tuple else check_list(lines, field="logs.lines")
    if len(several) > limits.LOG_LINES_MAX:
        detail = f"logs.lines: {len(several)} are more than {limits.LOG_LINES_MAX}"
        raise InvalidInput(detail, field="logs.lines")
    return tuple(map(_line, several))


def _line(line: object) -> NewLine:
    """One line, with its text as text and its numbers as numbers."""
    if _is_plain(line):
        return line
    if not isinstance(line, NewLine):
        detail = f"logs.lines: expected a NewLine, got {type(line).__name__}"
        raise InvalidInput(detail, field="logs.lines")
    field, most = "line.message", limits.LOG_LINE_BYTES
    message: object = line.message
    if isinstance(message, str) and (size := len(message.encode(errors="replace"))) > most:
        detail = f"{field}: {size} bytes is over the limit {most}"
        raise RetentionLimitExceeded(detail, field=field, limit=most)
    return NewLine(
        check_text(message, field=field, max_bytes=most, empty=True, control=True),
        check_instant(line.at, field="line.at"),
        check_integer(line.level, field="line.level", least=0, most=_LEVEL_MAX),
        check_text(line.logger, field="line.logger", max_bytes=limits.NAME_BYTES, empty=True),
    )


def _is_plain(line: object) -> TypeGuard[NewLine]:
    """Whether a line is of the usual form, which needs no copy: many come at once."""
    return (
        type(line) is NewLine
        and _is_short(line.message, limits.LOG_LINE_BYTES)
        and _is_short(line.logger, limits.NAME_BYTES)
        and type(line.at) is int
        and 0 <= line.at <= limits.INSTANT_MS_MAX
        and type(line.level) is int
        and 0 <= line.level <= _LEVEL_MAX
    )


def _is_short(text: object, most: int) -> bool:
    return type(text) is str and len(text) <= most and text.isascii() and text.isprintable()
