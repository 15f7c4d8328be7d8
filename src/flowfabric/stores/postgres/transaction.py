"""A transaction that begins when it must, so that a small one costs few round trips.

Work on a single execution, or that only creates some, needs no BEGIN, lock and COMMIT. It is
decided on rows read without a lock, and written by one statement, which is atomic by itself and
which names the version of the row that was read (`xmin`: no two versions of a row share it). If the
row has changed meanwhile, nothing is written and the work is run again with locks. As soon as a
transaction does anything else, it begins and locks the rows it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flowfabric.clock import Clock
from flowfabric.model.execution import Body, Execution
from flowfabric.model.record import Record
from flowfabric.model.route import Route
from flowfabric.stores.base import Changes, Corrupt, Found, Wanted
from flowfabric.stores.codec import candidates_of
from flowfabric.stores.execution_columns import BODY_PARTS
from flowfabric.stores.logs import Log, Position
from flowfabric.stores.postgres.arrays import COPY_FROM_BYTES, guarded_statement, held_statement
from flowfabric.stores.postgres.images import Images
from flowfabric.stores.postgres.view import PostgresView
from flowfabric.stores.routebook import RouteBook
from flowfabric.stores.tables import (
    EPISODE_TABLES,
    JOURNAL,
    SIGNALS,
    SUSPENSIONS,
    WAITPOINTS,
    Key,
    Table,
)

R = TypeVar("R", bound=Record)


class MustHold(Exception):
    """Reading without a lock was not enough: nothing was written, run it again with locks."""


class PostgresTransaction(PostgresView):
    """Begun by the first statement that locks or writes, unless one statement can do it all."""

    def __init__(
        self,
        connection: Any,
        clock: Clock | None,
        book: RouteBook,
        images: Images,
        begin: str = "BEGIN",
    ) -> None:
        super().__init__(connection, clock, book)
        self._begin = begin
        self._images = images
        self._image: Execution | None = None  # to be taken for granted by the next one
        self._is_recalled = False  # whether it was taken for granted here
        self._believes = False  # whether the clock is what we believe it to be
        self._is_open = False
        self._has_looked = False  # whether a row was read without a lock
        self._seen: tuple[str, str] | None = None  # the execution read so, and its version
        self._last: Changes | None = None  # saved, but not sent: it may be the only write

    @property
    def is_open(self) -> bool:
        """Whether there is something to roll back."""
        return self._is_open

    async def commit(self) -> None:
        """End the transaction; one that never began is a single statement."""
        if self._is_open:
            await self._connection.execute("COMMIT")
        elif self._last is not None:
            await self._write_at_once(self._last)
        elif self._is_recalled and self._seen is not None:
            self._images.drop((self._seen[0],))
            raise MustHold  # what is refused must be so now, and not by what was known

    async def begin(self) -> None:
        """From here on every row read is locked. Saved changes are written first."""
        if self._is_open:
            return
        if self._has_looked:
            raise MustHold
        self._is_open = True  # before the trip: cancelled halfway, it must be rolled back
        await self._connection.execute(self._begin)
        if self._last is not None:
            await super().save(self._last)

    async def run(self, name: str, *values: Any) -> Sequence[Any]:
        """A statement with locks or writes that belong to this transaction."""
        await self.begin()
        return await super().run(name, *values)

    # --- reading without a lock ----------------------------------------------------------------

    @property
    def _may_look(self) -> bool:
        """Whether a read without a lock is allowed: nothing was locked, read or saved before."""
        return not (self._is_open or self._seen or self._last)

    def _see_clock(self, milliseconds: int) -> None:
        super()._see_clock(milliseconds)
        self._images.see_clock(milliseconds)

    async def look(self, wanted: Wanted) -> Found:
        """Of a lone execution whose journal is added to, what is known of it will do."""
        if not (wanted.is_only_held and self._may_look and len(wanted.executions) == 1):
            return await super().look(wanted)
        (key,) = wanted.executions
        known, found = self._images.recall(key), Found()
        now = self._images.now() if self._now is None else self._now
        if known is None or now is None:
            found = await super().look(wanted)
            execution = found.executions.get(key)
            self._image = execution if isinstance(execution, Execution) else None
            return found
        self._believes, self._now, self._is_recalled = self._now is None, now, True
        self._image, version = known
        self._see(key, version)
        found.executions[key] = self._image
        return found

    async def load(self, ids: Sequence[str]) -> dict[str, Execution | Corrupt]:
        if len(ids) > 1 or not self._may_look:
            return await super().load(ids)
        rows = await self.fetch("look", [key[-36:] for key in ids])
        await self._see_clock_of(rows)
        found = await self.records_by_id(rows)
        for key in found:
            self._see(key, rows[0][-3])
        return found

    def _see(self, execution_id: str, version: str) -> None:
        self._has_looked, self._seen = True, (execution_id, version)

    async def rows(self, table: Table[R], keys: Sequence[Key]) -> dict[Key, R]:
        """Without a lock for rows that are mostly new: rivals collide on those. A row that is there
        needs it before it is replaced."""
        if not (table.is_mostly_new and self._may_look):
            return await super().rows(table, keys)
        found = await self.peek_rows(table, keys)
        self._has_looked = self._has_looked or bool(found)
        return found

    async def ready(
        self, routes: Sequence[Route], limit: int, bytes_max: int | None = None
    ) -> list[tuple[Execution, Body]]:
        """Without a lock for a single candidate; claims of several skip each other's locks."""
        if not self._may_look:
            return await super().ready(routes, limit, bytes_max)
        numbers = await self._numbers(routes)
        rows = await self.fetch("look_ready", numbers, self.now, 2) if numbers else []
        if len(rows) > 1:
            raise MustHold
        found = candidates_of(
            await self.records(rows), [row[-len(BODY_PARTS) - 1 : -1] for row in rows]
        )
        for execution, _ in found:
            if execution.last_mutation_at > self.now:
                raise MustHold  # it changed after the clock was read: time must not run backwards
            self._see(execution.execution_id, rows[0][-1])  # the version comes last
        return found

    # --- writing -------------------------------------------------------------------------------

    async def save(self, changes: Changes) -> None:
        self._images.drop(changes.updated)
        if self._is_open or self._last is not None or not self._is_one_statement(changes):
            await self.begin()
            await super().save(changes)
        else:
            self._last = changes

    def _is_one_statement(self, changes: Changes) -> bool:
        """Insert new rows, or write the next version of the execution that was read, or add to its
        journal."""
        seen = set() if self._seen is None else {self._seen[0]}
        if _only_entries(changes):
            return bool(seen) and _weight(changes) < COPY_FROM_BYTES
        return (
            changes.updated.keys() == seen
            and not (seen and changes.created)
            and not changes.retagged
            and not changes.rebound
            and not changes.rerouted
            and not changes.payloads
            and (_only_waits(changes) if seen else _only_inserts(changes))
            and _weight(changes) < COPY_FROM_BYTES
        )

    async def _write_at_once(self, changes: Changes) -> None:
        if changes.created:
            await self.create(changes)
        await self.gather(changes)
        if self._seen is None:
            await self._flush()
            return
        execution_id, version = self._seen
        if changes.updated:
            sql, values = guarded_statement(self._writes, version)
        else:
            now = self.now if self._believes else None
            sql, values = held_statement(self._writes, execution_id[-36:], version, now)
        if not await self._connection.fetchval(sql, *values):
            self._images.drop((execution_id,))
            if self._believes:
                self._images.forget_clock()
            raise MustHold
        if self._image is not None and not changes.updated:
            self._images.keep(self._image, version)

    async def sweep(self, *, keys_until: int, limit: int) -> int:
        await self.begin()
        return await super().sweep(keys_until=keys_until, limit=limit)

    async def trim(self, log: Log[Any], until: int, limit: int) -> list[Position]:
        await self.begin()
        return await super().trim(log, until, limit)


def _only_entries(changes: Changes) -> bool:
    """Whether entries of a journal are all that is written."""
    return changes.rows.keys() == {JOURNAL} and not any(
        getattr(changes, name) for name in changes.__slots__ if name != "rows"
    )


def _only_inserts(changes: Changes) -> bool:
    """Whether the small tables only gain rows that no other process depends on."""
    return all(
        not each.updated and not each.deleted and not table.in_catalog
        for table, each in changes.rows.items()
    )


def _only_waits(changes: Changes) -> bool:
    """Whether the small tables only change where the execution's own version guards them.

    Every write to one of these tables also writes the next version of the execution, or holds it.
    """
    return all(
        (table in EPISODE_TABLES or table is JOURNAL)
        and not each.deleted
        and (not each.updated or table in (SUSPENSIONS, WAITPOINTS))
        for table, each in changes.rows.items()
    )


def _weight(changes: Changes) -> int:
    """The bytes of all payloads and results."""
    payloads = sum(len(body.payload) for _, body in changes.created.values())
    signals = changes.rows[SIGNALS].inserted if SIGNALS in changes.rows else ()
    payloads += sum(len(signal.payload or b"") for signal in signals)
    entries = changes.rows[JOURNAL].inserted if JOURNAL in changes.rows else ()
    payloads += sum(len(entry.value or b"") for entry in entries)
    return payloads + sum(len(attempt.result or b"") for attempt in changes.attempts)
