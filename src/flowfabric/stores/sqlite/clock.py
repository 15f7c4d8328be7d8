"""The store's clock: one time for all processes that share a file, whatever their clocks say."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import suppress
from typing import Any, Final

from flowfabric.clock import Clock, SystemClock, boot_id, boot_ms
from flowfabric.stores.sqlite.timeline import TOLERANCE_MS, Timeline, judged, noted
from flowfabric.stores.sqlite.view import SQL

_LOGGER = logging.getLogger("flowfabric.stores")
LOOK_EVERY_MS: Final = 5_000  # how often the line is read from the file again


class StoreClock:
    """Follows the line in the file. A given clock is used instead, and so is the wall clock where
    there is no boot clock."""

    def __init__(self, given: Clock | None) -> None:
        self._wall = given or SystemClock()
        self._boot_id = boot_id() if given is None else None
        self._line: Timeline | None = None
        self._look_at = 0  # on the boot clock
        self._warned_of = 0  # the difference last logged, in seconds

    def now_ms(self) -> int:
        """The current time, as far as known without the file."""
        return self._wall.now_ms() if self._line is None else self._line.time_at(boot_ms())

    def now(self, connection: sqlite3.Connection) -> int:
        """The current time, for work on a connection; now and then the file is read."""
        if self._line is None:
            return self._wall.now_ms()
        boot = boot_ms()
        if boot >= self._look_at:
            self._look(connection, boot)
        return self._line.time_at(boot)

    def find(self, connection: sqlite3.Connection) -> bool:
        """Read the line of this boot from the file; whether there was one, or none is needed."""
        if self._boot_id is None:
            return True
        self._line = self._stored(connection)
        self._look_at = 0
        return self._line is not None

    def draw(self, connection: sqlite3.Connection) -> None:
        """Under the write lock: the first process of a boot starts from its wall clock, but never
        before the latest time in the file."""
        connection.execute(SQL["draw_clock"], (self._boot_id, boot_ms(), self._wall.now_ms()))
        connection.execute(SQL["forget_clocks"])
        self.find(connection)

    def _stored(self, connection: sqlite3.Connection) -> Timeline | None:
        row = connection.execute(SQL["clock"], (self._boot_id,)).fetchone()
        return Timeline(*row) if row is not None else None

    def _look(self, connection: sqlite3.Connection, boot: int) -> None:
        """Adopt the line of the file, and record this process's wish or objection in it."""
        self._look_at = boot + LOOK_EVERY_MS
        line = self._stored(connection)
        if line is None:  # an operator removed it: this process keeps its time
            return
        self._line = line
        self._tell(line, boot)
        wanted = judged(line, boot, self._wall.now_ms())
        if connection.in_transaction:
            wanted = noted(wanted, boot)
        if wanted != line:
            # A written line counts when it is read again: it may yet be rolled back.
            self._look_at = boot
            self._write(connection, line, wanted)

    def _write(self, connection: sqlite3.Connection, line: Timeline, wanted: Timeline) -> None:
        """Change the line unless another process has. A failure here never fails a read."""
        values = [*_values(wanted), self._boot_id, *_values(line)]
        with suppress(*(() if connection.in_transaction else (sqlite3.OperationalError,))):
            connection.execute(SQL["change_clock"], values)

    def _tell(self, line: Timeline, boot: int) -> None:
        """Log once that the clocks differ, and again when the difference changes."""
        offset_ms = self._wall.now_ms() - line.time_at(boot)
        offset_s = 0 if abs(offset_ms) <= TOLERANCE_MS else round(offset_ms / 1000)
        if offset_s and abs(offset_s - self._warned_of) * 1000 > TOLERANCE_MS:
            _LOGGER.warning(
                "the clock of this process is %+d s off the store's time; the store's counts. "
                "See `Time` in docs/guides/sqlite.md",
                offset_s,
            )
            self._warned_of = offset_s

    def facts(self) -> dict[str, Any]:
        """Facts for doctor: the clock in use, and its distance from this process's."""
        line = self._line
        if line is None:
            return {"clock": "wall"}
        boot = boot_ms()
        return {
            "clock": "boot",
            "clock_offset_ms": self._wall.now_ms() - line.time_at(boot),
            "clock_correction_ms": 0 if line.is_steady(boot) else line.gain_ms,
            "clock_wish_ms": line.wish_ms,
        }

    def upkeep(self) -> list[tuple[str, str, str]]:
        """Warnings for doctor: a clock that disagrees with the store's time."""
        offset_ms = self.facts().get("clock_offset_ms", 0)
        if abs(offset_ms) <= TOLERANCE_MS:
            return []
        what = f"the clock of this process is {offset_ms / 1000:+.0f} s off the store's time"
        return [("clock", "ff_clock", what)]


def _values(line: Timeline) -> list[Any]:
    return [getattr(line, name) for name in Timeline.__struct_fields__]
