"""Errors of background work in the log: the first at once, the same one again ever more rarely;
and what waits for someone to act, once a minute at most."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from flowfabric.clock import stopwatch
from flowfabric.errors import FlowFabricError

FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 3_600.0
KINDS_MAX: Final = 1_000  # distinct errors remembered; beyond this all are forgotten
REMINDER_PAUSE_S: Final = 60.0
REMINDED_MAX: Final = 5  # things in one line; doctor names all

_Kind = tuple[type[Exception], str, int]


class _Told:
    """When an error was last logged, and how often it came since."""

    __slots__ = ("pause_s", "silent", "until")

    def __init__(self) -> None:
        self.pause_s, self.until, self.silent = FIRST_PAUSE_S, stopwatch() + FIRST_PAUSE_S, 0


class Complaints:
    """Logs errors without letting one that recurs every second fill the log."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._told: dict[_Kind, _Told] = {}

    def tell(self, text: str, *values: object, error: Exception) -> None:
        """Log an error, with its traceback when it was not expected."""
        kind = _kind_of(error)
        told = self._told.get(kind)
        if told is None:
            if len(self._told) >= KINDS_MAX:
                self._told.clear()
            self._told[kind] = _Told()
            self._write(text, values, error)
        elif stopwatch() < told.until:
            told.silent += 1
        else:
            self._write(f"{text} (and {told.silent} times since it was last told)", values, error)
            told.pause_s = min(LONGEST_PAUSE_S, told.pause_s * 2)
            told.until, told.silent = stopwatch() + told.pause_s, 0

    def _write(self, text: str, values: tuple[object, ...], error: Exception) -> None:
        foreseen = isinstance(error, FlowFabricError)
        self._logger.error(text, *values, exc_info=None if foreseen else error)


class Reminders:
    """Logs what stays as it is until someone acts: one line at most in each minute, about all of
    it. `text`: of the line, with a place for the things."""

    def __init__(self, logger: logging.Logger, text: str) -> None:
        self._logger = logger
        self._text = text
        self._waiting: dict[str, str] = {}  # what is to be told of each thing
        self._until = 0.0

    def tell(self, things: Mapping[str, str]) -> None:
        """Log these now, or with the next line if the last one is too young."""
        self._waiting.update(things)
        if not self._waiting or stopwatch() < self._until:
            return
        said = [f"{name} ({what})" for name, what in self._waiting.items()]
        more = len(said) - REMINDED_MAX
        if more > 0:
            said = [*said[:REMINDED_MAX], f"and {more} more"]
        self._logger.warning(self._text, ", ".join(said))
        self._waiting, self._until = {}, stopwatch() + REMINDER_PAUSE_S


def _kind_of(error: Exception) -> _Kind:
    """Errors of one class from one line are the same; their texts may name different records."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error), "", 0
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
