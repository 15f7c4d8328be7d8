"""What the writer knows without looking: what it wrote itself and will soon be asked for.

Who completes or renews is nearly always the process that claimed, and who lets a new member of a
flow run is often the one that submitted it: its next transaction would read back and decode the
very rows it has just written. While nobody else has committed to the file those images are still
true.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from flowfabric.model.execution import Execution
from flowfabric.stores.base import Changes, Corrupt
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.sqlite.view import SqliteView

KEPT_MAX: Final = 20_000  # about 20 MB; of more than this the oldest are read from the file


class Images:
    """The images of one connection; all is done under the file's write lock."""

    def __init__(self) -> None:
        self._kept: dict[str, Execution] = {}
        self._connection: sqlite3.Connection | None = None  # whose images they are
        self._version = 0  # of the file, as that connection last saw it

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Drop everything if others have committed since the last transaction.

        The number moves with every commit of another connection, never with our own, and from
        here to the end of the transaction nobody else commits. It says nothing about another
        connection's number.
        """
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or connection is not self._connection:
            self._kept.clear()
            self._version, self._connection = version, connection

    def forget(self) -> None:
        """A transaction was not committed: what it saved is not true."""
        self._kept.clear()

    def known(self, ids: Iterable[str]) -> dict[str, Execution | Corrupt]:
        """Those of the named executions that need not be read."""
        kept = self._kept
        return {key: kept[key] for key in ids if key in kept}

    def saved(self, changes: Changes) -> None:
        """Keep what is leased now or waits for others of its flow, drop what no longer does."""
        kept = self._kept
        for key, (execution, _) in changes.created.items():
            if execution.open_group:
                kept[key] = execution
        for key, execution in changes.updated.items():
            if execution.is_leased:
                kept[key] = execution
            else:
                kept.pop(key, None)
        for key in list(islice(kept, max(0, len(kept) - KEPT_MAX))):
            del kept[key]


class SqliteTransaction(SqliteView):
    """A transaction of the writer, which need not read what it has just written."""

    def __init__(
        self, connection: sqlite3.Connection, now: int, book: RouteBook, images: Images
    ) -> None:
        super().__init__(connection, now, book)
        self._images = images

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        found = self._images.known(ids)
        if len(found) < len(ids):
            found.update(await super().load([key for key in ids if key not in found]))
        return found

    async def save(self, changes: Changes) -> None:
        await super().save(changes)
        self._images.saved(changes)
