"""What the writer knows without looking: the leased executions it wrote itself.

Who completes or renews is nearly always the process that claimed, so its next transaction would
read back and decode the very rows it has just written. While nobody else has committed to the file
those images are still true.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from flowfabric.model.execution import Execution
from flowfabric.stores.base import Changes, Corrupt
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.sqlite.view import SqliteView

KEPT_MAX: Final = 10_000  # about 10 MB; more leases than this are read from the file


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
        """Keep what is leased now, drop what no longer is."""
        kept = self._kept
        for key, execution in changes.updated.items():
            if execution.is_leased:
                kept[key] = execution
            else:
                kept.pop(key, None)
        if len(kept) > KEPT_MAX:
            kept.clear()


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
