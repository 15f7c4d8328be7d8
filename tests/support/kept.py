"""What the labs of one test process share on PostgreSQL: an event loop, and connections in it.

A new connection costs the server a process with empty caches, and both sides the preparation of
every statement: more than the rest of a small test. So a connection that an engine closes is kept,
and the next engine that asks for one like it gets it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from typing import Any
from unittest.mock import patch

import asyncpg

from tests.support.runner import StepRunner

SPARE_MAX = 8  # a server takes a hundred, and some tests open many
FAULTS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)


class Kept(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is kept instead of closed, unless its state is in doubt."""

    __slots__ = ("asked", "ends", "is_asking", "is_listening", "keeper")

    def given_to(self, keeper: Keeper, asked: Any) -> Kept:
        """A connection is made by the driver; this is the rest."""
        self.keeper, self.asked = keeper, asked
        self.ends: list[Any] = []
        self.is_asking = self.is_listening = False
        return self

    def __del__(self) -> None:
        """One that was lost is hung up where it is found: the driver would blame the test under
        way, and the end of the loop another one."""
        with suppress(Exception):
            super().terminate()

    @property
    def is_fit(self) -> bool:
        """The server waits for a statement, outside any transaction."""
        return not (self.is_closed() or self.is_asking or self.is_in_transaction())

    async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
        """The rows, without a trip to the server when it is known that there are none."""
        empty = _EMPTY.get()
        if empty is not None and await empty.has(query, self):
            return []
        self.is_asking = True
        rows = await super().fetch(query, *args, **options)
        self.is_asking = False
        return rows

    async def execute(self, query: str, *args: Any, **options: Any) -> Any:
        """The same; a statement that fails or is cancelled leaves the connection in doubt."""
        self.is_asking = True
        status = await super().execute(query, *args, **options)
        self.is_asking = False
        return status

    async def close(self, *, timeout: float | None = None) -> None:
        """Leave it to the next engine."""
        if self.is_fit:
            self.keeper.keep(self)
        else:
            await super().close(timeout=timeout)

    async def add_listener(self, channel: str, callback: Any) -> None:
        """Only hints listen."""
        self.is_listening = True
        await super().add_listener(channel, callback)

    def add_termination_listener(self, callback: Any) -> None:
        """As long as the engine has it."""
        self.ends.append(callback)
        super().add_termination_listener(callback)

    def terminate(self) -> None:
        """Hints cut their connection off when they stop, although it is as good as any."""
        if not (self.is_listening and self.is_fit):
            super().terminate()
            return
        self.is_listening = False
        while self.ends:
            self.remove_termination_listener(self.ends.pop())
        self.keeper.keep(self)


class Keeper:
    """Stands in for the driver where engines connect: prefers a connection that was kept."""

    def __init__(self, runner: StepRunner) -> None:
        self.runner = runner
        self._spare: list[Kept] = []  # the last used last

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncpg, name)

    @contextmanager
    def at_work(self) -> Iterator[StepRunner]:
        """Engines connect by way of this in the loop of the runner. What a test leaves running is
        cancelled at the end, as it is when an event loop ends."""
        with patch("flowfabric.stores.postgres.session.asyncpg", self):
            yield self.runner
            self.runner.run(_cancel_others())

    async def connect(self, url: str, *, timeout: float, **options: Any) -> Any:
        """A connection that was made with these options, or a new one."""
        if asyncio.get_running_loop() is not self.runner.loop:
            return await asyncpg.connect(url, timeout=timeout, **options)
        asked = (url, options)
        while (spare := self._find(asked)) is not None:
            try:
                await spare.reset(timeout=timeout)
                return spare
            except BaseException as error:
                spare.terminate()
                if not isinstance(error, FAULTS):  # the server has not ended it meanwhile
                    raise
        made = await asyncpg.connect(url, timeout=timeout, connection_class=Kept, **options)
        return made.given_to(self, asked)

    def _find(self, asked: Any) -> Kept | None:
        for place in reversed(range(len(self._spare))):
            if self._spare[place].asked == asked:
                return self._spare.pop(place)
        return None

    def keep(self, connection: Kept) -> None:
        """For the next engine; the connection that was used longest ago makes room."""
        self._spare.append(connection)
        if len(self._spare) > SPARE_MAX:
            self._spare.pop(0).terminate()

    def close(self) -> None:
        """Hang up."""
        while self._spare:
            self._spare.pop().terminate()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


# --- tables without rows --------------------------------------------------------------------------


class _Empty:
    """The tables that have no row, asked for once by the connection that reads them."""

    def __init__(self) -> None:
        self._names: set[str] | None = None

    async def has(self, query: str, connection: Kept) -> bool:
        if self._names is None:
            self._names = set()  # the question itself is not skipped
            self._names = await _empty_tables(connection)
        return bool(tables := _tables(query)) and tables <= self._names


_EMPTY: ContextVar[_Empty | None] = ContextVar("empty", default=None)


async def dumped(store: Any) -> dict[str, list[Any]]:
    """The dump of a store. It reads every table one by one while most have no row: kept connections
    answer for those at once."""
    token = _EMPTY.set(_Empty())
    try:
        found: dict[str, list[Any]] = await store.dump()
        return found
    finally:
        _EMPTY.reset(token)


@cache
def _tables(query: str) -> frozenset[str]:
    return frozenset(re.findall(r"\bff_\w+", query))


async def _empty_tables(connection: Kept) -> set[str]:
    names = await connection.fetchval(
        "SELECT array_agg(relname::text) FROM pg_class WHERE relkind IN ('r', 'p') "
        "AND relnamespace = 'public'::regnamespace"
    )
    looks = ", ".join(f"EXISTS (SELECT FROM {name})" for name in sorted(names))
    found = await connection.fetchval(f"SELECT ARRAY[{looks}]")
    return {name for name, has_rows in zip(sorted(names), found, strict=True) if not has_rows}
