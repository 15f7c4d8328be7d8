"""A cache of rows that the writer wrote itself and will soon need.

The process that completes or renews is nearly always the one that claimed, and the process that
releases a new member of a flow is often the one that submitted it: its next transaction would read
back and decode the very rows it has just written. As long as no other connection commits to the
file, those images are still true.
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

KEPT_MAX: Final = 20_000  # about 20 MB; beyond this the oldest are dropped


class Images:
    """The images of one connection; every access is under the file's write lock."""

    def __init__(self) -> None:
        self._kept: dict[str, Execution] = {}
        self._connection: sqlite3.Connection | None = None  # the connection they belong to
        self._version = 0  # of the file, as that connection last saw it

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, connection: sqlite3.Connection) -> None:
        """Drop everything if another connection has committed since the last transaction.

        The number changes with every commit of another connection, never with our own, and from
        here to the end of the transaction no other connection commits. Numbers of two connections
        cannot be compared.
        """
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version or connection is not self._connection:
            self._kept.clear()
            self._version, self._connection = version, connection

    def forget(self) -> None:
        """Drop images of a transaction that was not committed."""
        self._kept.clear()

    def known(self, ids: Iterable[str]) -> dict[str, Execution | Corrupt]:
        """The images of the named executions that are cached."""
        kept = self._kept
        return {key: kept[key] for key in ids if key in kept}

    def saved(self, changes: Changes) -> None:
        """Keep executions that are leased or wait for others of their flow, drop all others."""
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
    """A transaction of the writer that takes its own recent writes from the cache."""

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
