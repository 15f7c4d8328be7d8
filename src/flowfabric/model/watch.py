"""Watches: an execution waits for the ends of others, its children or any."""

from __future__ import annotations

from typing import Final

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record

_SCHEDULE: Final = "schedule\x1f"  # no execution's id begins so
ENDED: Final = "__ended"  # the signal that tells of an end, and the key of its waitpoint


class WatchRow(Record, frozen=True):
    """An execution whose end another one waits for. Written under the lock of both.

    A schedule watches its runs, among them flows, without a waitpoint.

    An end that others wait for leaves one more row, which is due: the loop tells them.
    """

    execution_id: str  # whose end is waited for
    watcher_id: str  # the execution that waits; in a row that is due, the epoch of the end
    waitpoint_id: str = ""  # where the watcher is told
    needs_all: Counter = 0  # 1: it is told when the last execution it watches there has ended
    due_at: Instant | None = None  # when the loop tells the watchers


def watcher_of(namespace: str, schedule_id: str) -> str:
    """A schedule as the watcher of its runs."""
    return f"{_SCHEDULE}{namespace}\x1f{schedule_id}"


def schedule_of(watcher_id: str) -> tuple[str, str] | None:
    """The schedule that watches; none if an execution does.

    >>> schedule_of(watcher_of("default", "report"))
    ('default', 'report')
    """
    if not watcher_id.startswith(_SCHEDULE):
        return None
    namespace, _, name = watcher_id.removeprefix(_SCHEDULE).partition("\x1f")
    return namespace, name


class Watching(Record, frozen=True):
    """Which of the executions have not ended, and the waitpoint at which the watcher is told; none
    where what it waits for is there already."""

    open_ids: tuple[str, ...]
    waitpoint_id: str | None = None
