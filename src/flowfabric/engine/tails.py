"""Waiting for frames and log lines: hints wake a tail, and one shared look a second makes up for
lost ones.

However many tails wait, the look costs two queries, or three where both are waited for: the
executions, and how far their streams and logs have got.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from flowfabric import limits
from flowfabric.api.hints import Bell, end_topic, stream_topic
from flowfabric.clock import stopwatch
from flowfabric.engine.wakeups import Wakeups
from flowfabric.errors import ResourceExhausted
from flowfabric.kernel.stream.closing import may_grow
from flowfabric.model.execution import Execution
from flowfabric.model.stream import Visibility
from flowfabric.stores.base import Corrupt, Reader
from flowfabric.stores.tables import STREAMS, AnyTable, Key

T = TypeVar("T")
_IDLE_S: Final = 5.0  # how soon a tail that waited in vain is asked for again
LOOKED_AT_S: Final = 5.0  # a wait so long was looked at several times
_LOGGER = logging.getLogger("flowfabric.streams")


class Reading(Protocol):
    """The part of a machine that a look needs."""

    async def read(self, work: Callable[[Reader], Awaitable[T]]) -> T:
        """Reads outside any transaction."""
        ...


# An attempt, and a place in its stream or its log: frame ids, or numbers of lines.
Reached = tuple[int, Any]


class Subject(NamedTuple):
    """What a tail waits for."""

    execution_id: str
    is_whole: bool  # all attempts, or the one its place names
    table: AnyTable  # that of streams or of logs: each row has the `last` of its attempt
    visibility: Visibility = Visibility.ALL


class Tail:
    """One wait for what comes after a place."""

    __slots__ = ("bell", "place", "subject")

    def __init__(self, subject: Subject, place: Reached, bell: Bell) -> None:
        self.subject = subject
        self.place = place  # of what was seen last, or passed over
        self.bell = bell


class Tails:
    """The open tails of one engine."""

    def __init__(self, reading: Reading, wakeups: Wakeups, most: int) -> None:
        self._reading = reading
        self._wakeups = wakeups
        self._most = most
        self._open: set[Tail] = set()
        self._idle: dict[tuple[Subject, str], tuple[float, Any]] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def waiting_count(self) -> int:
        """How many there are."""
        return len(self._open)

    def note_idle(self, subject: Subject, page: Any) -> None:
        """A tail waited in vain: the same one will soon be asked for again."""
        if len(self._idle) > 2 * self._most:
            self._idle.clear()
        self._idle[subject, page.next_cursor] = (stopwatch(), page)

    def last_page(self, subject: Subject, place: Reached) -> Any:
        """The empty page with which a tail ended at this place just now. The shared look finds what
        came since."""
        is_frame = subject.table is STREAMS and not subject.is_whole
        cursor = str(place[1] if is_frame else place)
        noted_at, page = self._idle.pop((subject, cursor), (0.0, None))
        return page if stopwatch() - noted_at < _IDLE_S else None

    @contextmanager
    def waiting(self, subject: Subject, place: Reached) -> Iterator[Tail]:
        """A tail that is woken when its execution's streams or logs grow or are closed."""
        if len(self._open) >= self._most:
            raise ResourceExhausted(
                f"{self._most} tails wait already",
                pool="tails",
                max=self._most,
                retry_after_ms=limits.TAIL_LOOK_MS,
            )
        topics = (stream_topic(subject.execution_id), end_topic(subject.execution_id))
        with self._wakeups.listening(topics) as bell:
            tail = Tail(subject, place, bell)
            self._open.add(tail)
            if self._task is None:
                self._task = asyncio.create_task(self._look_on(), name="flowfabric-tails")
            try:
                yield tail
            finally:
                self._open.discard(tail)

    async def stop(self) -> None:
        """End the shared look."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look_on(self) -> None:
        """Look now and then while there are tails."""
        while self._open:
            await asyncio.sleep(limits.TAIL_LOOK_MS / 1000)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - a store that is away: tails see it themselves
                _LOGGER.debug("no look at streams and logs: %s", error)
        self._task = None

    async def look(self) -> None:
        """Wake the tails that missed a hint."""
        if tails := tuple(self._open):
            executions, last = await self._reading.read(lambda reader: _seen(reader, tails))
            for tail in tails:
                if _is_behind(tail, executions.get(tail.subject.execution_id), last):
                    tail.bell.set()


async def _seen(
    reader: Reader, tails: tuple[Tail, ...]
) -> tuple[dict[str, Execution | Corrupt], dict[tuple[AnyTable, Key], Any]]:
    """The executions of tails, and how far the attempts they are at have got. Executions first: if
    an attempt is seen to be over, its last frame or line is seen too."""
    executions = await reader.get(sorted({tail.subject.execution_id for tail in tails}))
    last: dict[tuple[AnyTable, Key], Any] = {}
    for table in {tail.subject.table for tail in tails}:
        own = [tail for tail in tails if tail.subject.table is table]
        keys: set[Key] = {(tail.subject.execution_id, tail.place[0]) for tail in own}
        for tail in own:
            found = executions.get(tail.subject.execution_id)
            if isinstance(found, Execution) and found.attempt_index is not None:
                keys.add((found.execution_id, found.attempt_index))
        rows = await reader.peek_rows(table, sorted(keys))
        last.update({(table, key): row.last for key, row in rows.items()})
    return executions, last


def _is_behind(
    tail: Tail, execution: Execution | Corrupt | None, last: dict[tuple[AnyTable, Key], Any]
) -> bool:
    """Whether a read would tell something new."""
    if not isinstance(execution, Execution):
        return True
    subject, (attempt_index, reached) = tail.subject, tail.place
    seen = last.get((subject.table, (subject.execution_id, attempt_index)))
    if seen is not None and seen > reached:
        return True
    if not subject.is_whole:
        return not may_grow(execution, attempt_index)
    present = (subject.table, (subject.execution_id, execution.attempt_index))
    is_elsewhere = execution.attempt_index != attempt_index
    return execution.is_terminal or (is_elsewhere and present in last)
