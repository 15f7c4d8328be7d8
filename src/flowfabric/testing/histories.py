"""Histories that a test has recorded, and those in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from flowfabric.model.handle import Handle
from flowfabric.model.journal import NewEntry
from flowfabric.model.record import replace
from flowfabric.sdk.task import Task
from flowfabric.testing import replay
from flowfabric.testing.history import DamagedHistory, History, read, written

SUFFIX: Final = ".history"


class Recorded:
    """Which runs of a test have recorded something, and how far they were replayed."""

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        # by execution, attempt and position; by execution and chapter
        self._secrets: dict[tuple[str, int, int], bytes | None] = {}
        self._reached: dict[tuple[str, int], int] = {}
        self.checked_ones: dict[str, tuple[History, Task[..., Any]]] = {}

    def note(self, handle: Handle, entry: NewEntry) -> None:
        """An entry is on its way to the store. What is secret is in no listing, only here."""
        self._changed[handle.execution_id] = None
        if entry.is_secret:
            where = (handle.execution_id, handle.attempt_index, entry.position)
            self._secrets[where] = entry.value

    def changed(self) -> list[str]:
        """The runs that have recorded something since they were last asked for."""
        found = list(self._changed)
        self._changed.clear()
        return found

    def completed(self, history: History) -> History:
        """The history with its secrets."""
        key = history.execution_id
        entries = [
            replace(each, value=self._secrets.get((key, each.attempt_index, each.position)))
            if each.is_secret
            else each
            for each in history.entries
        ]
        return replace(history, entries=tuple(entries))

    def begin(self, history: History) -> int:
        """The first prefix that was not replayed yet."""
        where = (history.execution_id, history.chapter)
        return min(self._reached.get(where, 0), len(history.entries))

    def checked(self, history: History, task: Task[..., Any]) -> None:
        """Every prefix was replayed."""
        self._reached[history.execution_id, history.chapter] = len(history.entries)
        self.checked_ones[history.execution_id] = (history, task)


def write_history(history: History, path: Path) -> None:
    """Write a history to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(written(history), encoding="utf-8")


def read_history(path: Path) -> History:
    """Read a file; `DamagedHistory` names the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DamagedHistory(f"{path}:1: {error}") from None
    return read(text, name=str(path))


async def check_file(path: Path, tasks: Mapping[str, Task[..., Any]]) -> History:
    """Replay one file by the present code; `DamagedHistory` if it is of no task that is here."""
    history = read_history(path)
    task = tasks.get(history.kind)
    if task is None:
        known = ", ".join(sorted(tasks)) or "none"
        raise DamagedHistory(f"{path}:1: there is no task {history.kind!r}; there are: {known}")
    await replay.check(task, history)
    return history


def files_in(folder: Path) -> list[Path]:
    """The histories in a folder and those below it."""
    if not folder.is_dir():
        raise DamagedHistory(f"{folder}: there is no such folder")
    return sorted(folder.rglob(f"*{SUFFIX}"))


async def check_folder(folder: Path, tasks: Mapping[str, Task[..., Any]]) -> int:
    """Replay every file of a folder; how many there were."""
    files = files_in(folder)
    for path in files:
        await check_file(path, tasks)
    return len(files)
