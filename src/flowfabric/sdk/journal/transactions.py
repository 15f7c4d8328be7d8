"""Steps in a transaction of a database of the caller's own: done exactly once.

In the database of the store the entry of the step is written in the very transaction, under the
lease: both are there, or neither. In any other database a receipt is, and the entry follows.

Whether a commit has happened may be unknown, because the connection broke. Then the journal or the
receipt is asked, in a way that waits for a transaction that may still be under way.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend
from flowfabric.errors import (
    ContentionError,
    IdempotencyConflict,
    InvalidInput,
)
from flowfabric.ids import jitter
from flowfabric.model.journal import Checkpointed, EntryKind, JournalEntry, NewEntry
from flowfabric.sdk.journal.failures import Unrecordable
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.known_pools import KNOWN_POOLS
from flowfabric.stores.callers import receipts
from flowfabric.stores.callers.drivers import AsyncDriver, BlockingDriver
from flowfabric.stores.callers.pools import opened, opened_blocking
from flowfabric.stores.callers.receipts import Receipt
from flowfabric.stores.callers.trouble import typed
from flowfabric.trouble import may_pass

T = TypeVar("T")
Runner = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]
_TRIES: Final = 5  # of a transaction that collides with others in our own part of it
_PAUSE_S: Final = 0.02


class Recording(Protocol):
    """What a transaction needs to know of its step."""

    journal: Journal
    key: str
    digest: bytes | None

    def encoded(self, value: Any) -> tuple[Any, bytes]:
        """A result as later runs see it, and how it is recorded."""
        ...

    def entry(self, value: Any, data: bytes) -> NewEntry:
        """The entry of a success."""
        ...

    def decoded(self, data: bytes) -> Any:
        """A recorded result."""
        ...


class _Behind(Exception):
    """Other branches have gone on while the connection was opened: they are made durable first.

    Not inside the transaction, which may lock the very file of the store."""


class _Again(Exception):
    """The transaction collided with another one: nothing of it is there."""


class Session:
    """One try of a step in a transaction."""

    def __init__(self, pool: Any, step: Recording) -> None:
        self._pool = pool
        self._step = step
        self._owner = step.journal.owner
        self._lock = threading.Lock()
        self._is_abandoned = self._is_ending = self._is_in_body = False
        self.is_committed = False  # the function has run, and counts
        self.is_recorded = False  # so has its entry
        self.value: Any = None
        self.data = b""
        self.refusal: Exception | None = None  # of the call itself, which is no failure of the step

    # --- on the event loop -----------------------------------------------------------------------

    async def run(self, body: Callable[[Any], Awaitable[Any]]) -> Any:
        """The result of an async function, given a connection."""
        return await self._repeated(partial(self._run, body))

    async def _run(self, body: Callable[[Any], Awaitable[Any]]) -> None:
        async with opened(self._pool) as driver:
            is_shared = await self._is_shared(driver.connection, driver.is_postgres)
            if not is_shared and self._take(await _read(driver, self._receipt_key)):
                await driver.rollback()
                return
            await self._leave_if_behind(driver)
            self._is_in_body = True
            value, data = self._step.encoded(await body(driver.connection))
            self._is_in_body = False
            _refuse_ended(driver.is_begun())
            if is_shared:
                end = self._end_here(driver, value, data)
            else:
                end = self._end_there(driver, value, data)
            await _uninterrupted(end)

    async def _leave_if_behind(self, driver: AsyncDriver) -> None:
        """Nothing is awaited between this and the function, unless it raises."""
        if not self._step.journal.outbox.is_empty:
            await driver.rollback()
            raise _Behind

    async def _end_here(self, driver: AsyncDriver, value: Any, data: bytes) -> None:
        """With the entry, in the database of the store."""
        await self._carry(driver.connection, value, data, driver.commit)

    async def _end_there(self, driver: AsyncDriver, value: Any, data: bytes) -> None:
        """With a receipt, in another database."""
        receipt = self._receipt(data)
        try:
            is_first = bool(await driver.fetch(receipts.WRITE, *receipt))
        except Exception as error:
            raise typed(error) from error
        if not is_first:
            raise _Again  # a rival was: its receipt is read
        try:
            await driver.commit()
        except Exception as error:
            if not await self._owner.ask(lambda _: self._has_receipt(receipt)):
                raise typed(error) from error
        self._done(value, data)

    async def _has_receipt(self, receipt: Receipt) -> bool:
        """Whether it was committed: one that is not there can be written, and is taken back. That
        waits for a transaction that may still be under way."""
        async with opened(self._pool) as driver:
            try:
                return not await driver.fetch(receipts.WRITE, *receipt)
            except Exception as error:
                raise typed(error) from error
            finally:
                with suppress(Exception):
                    await driver.rollback()

    # --- in a thread -----------------------------------------------------------------------------

    async def run_blocking(self, body: Callable[[Any], Any], run: Runner) -> Any:
        """The result of a plain function. `run`: calls something in the thread for it."""
        return await self._repeated(partial(self._in_thread, body, run))

    async def _in_thread(self, body: Callable[[Any], Any], run: Runner) -> None:
        done, loop = asyncio.Event(), asyncio.get_running_loop()

        def job() -> None:
            try:
                self._run_blocking(body)
            finally:
                with suppress(RuntimeError):  # the loop is closed: the worker is gone
                    loop.call_soon_threadsafe(done.set)

        try:
            await run(job)
        except asyncio.CancelledError:
            if not self._abandon():
                await done.wait()
            raise

    def _run_blocking(self, body: Callable[[Any], Any]) -> None:
        with opened_blocking(self._pool) as driver:
            is_shared = self._wait_for(self._is_shared(driver.connection, driver.is_postgres))
            if not is_shared and self._take(_read_blocking(driver, self._receipt_key)):
                driver.rollback()
                return
            if not self._step.journal.outbox.is_empty:
                driver.rollback()
                raise _Behind
            self._is_in_body = True
            value, data = self._step.encoded(body(driver.connection))
            self._is_in_body = False
            _refuse_ended(driver.is_begun())
            if not self._begin_end():
                driver.rollback()
            elif is_shared:
                commit = partial(asyncio.to_thread, driver.commit)
                self._wait_for(self._carry(driver.connection, value, data, commit))
            else:
                self._end_there_blocking(driver, value, data)

    def _end_there_blocking(self, driver: BlockingDriver, value: Any, data: bytes) -> None:
        receipt = self._receipt(data)
        try:
            is_first = bool(driver.fetch(receipts.WRITE, *receipt))
        except Exception as error:
            raise typed(error) from error
        if not is_first:
            raise _Again
        try:
            driver.commit()
        except Exception as error:
            ask = self._owner.ask(lambda _: asyncio.to_thread(self._has_receipt_blocking, receipt))
            if not self._wait_for(ask):
                raise typed(error) from error
        self._done(value, data)

    def _has_receipt_blocking(self, receipt: Receipt) -> bool:
        with opened_blocking(self._pool) as driver:
            try:
                return not driver.fetch(receipts.WRITE, *receipt)
            except Exception as error:
                raise typed(error) from error
            finally:
                with suppress(Exception):
                    driver.rollback()

    def _wait_for(self, operation: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(operation, self._owner.loop).result()

    def _begin_end(self) -> bool:
        """Whether the result is still wanted; from here on it is waited for."""
        with self._lock:
            self._is_ending = not self._is_abandoned
            return self._is_ending

    def _abandon(self) -> bool:
        """A thread that took too long must not commit later. False if it does already."""
        with self._lock:
            self._is_abandoned = not self._is_ending
            return self._is_abandoned

    # --- both ------------------------------------------------------------------------------------

    async def _repeated(self, run: Callable[[], Awaitable[None]]) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                await run()
            except _Behind:
                tries -= 1
                await self._step.journal.barrier(self._step.key)
            except (_Again, ContentionError) as error:
                if type(error) not in (_Again, ContentionError):
                    raise  # the function's own trouble
                if tries >= _TRIES:
                    raise ContentionError("the transaction collided with others") from error
                await asyncio.sleep(_PAUSE_S * tries * (0.5 + jitter()))
                self._is_ending = False
            except InvalidInput as error:
                if not self._is_in_body:
                    self.refusal = error
                raise
            else:
                return self.value

    async def _is_shared(self, connection: Any, is_postgres: bool) -> bool:
        """Whether a connection leads to the database of the store."""
        return is_postgres and await self._owner.ask(partial(self._shares, connection))

    async def _shares(self, connection: Any, engine: EngineBackend) -> bool:
        known = KNOWN_POOLS.get(self._pool, engine)
        if known is None:
            is_able = engine.capabilities().supports.get("checkpoint_in", False)
            known = is_able and await engine.shares_database(connection)
            KNOWN_POOLS.note(self._pool, engine, known)
        return known

    async def _carry(
        self, connection: Any, value: Any, data: bytes, commit: Callable[[], Awaitable[None]]
    ) -> None:
        """The entry, and everything before it that is not durable yet, with the commit."""
        entry = self._step.entry(value, data)
        send = partial(self._commit_with, connection, commit)
        found = await self._step.journal.outbox.carry([entry], send)
        if found is not None:  # an earlier try of this run was committed, and this one was not
            data = found.value or b"null"
            value = self._step.decoded(data)
        self._done(value, data)
        self.is_recorded = True

    async def _commit_with(
        self,
        connection: Any,
        commit: Callable[[], Awaitable[None]],
        entries: tuple[NewEntry, ...],
    ) -> JournalEntry | None:
        problem = await self._owner.ask(partial(self._checkpoint_in, connection, entries))
        try:
            if isinstance(problem, Exception):
                raise problem
            await commit()
        except Exception as error:
            if (found := await self._recorded(_last_of(entries))) is None:
                raise typed(error) from error
            return found
        return None

    async def _checkpoint_in(
        self, connection: Any, entries: tuple[NewEntry, ...], engine: EngineBackend
    ) -> Checkpointed | Exception:
        """A refusal because of the lease is raised. Anything else that is not a wrong call is told:
        the connection is of no use any more, so it cannot be asked again."""
        handle = self._owner.claimed.handle
        try:
            return await engine.checkpoint_in(handle, connection, entries=entries)
        except IdempotencyConflict as error:
            return error
        except Exception as error:
            if may_pass(error) or type(error) is ContentionError:
                return error
            raise

    async def _recorded(self, entry: NewEntry) -> JournalEntry | None:
        """The entry as it was committed, if it was. To renew the lease waits for a transaction that
        holds the execution, so after it none can be under way."""
        handle = self._owner.claimed.handle
        await self._owner.ask(lambda engine: engine.renew(handle))
        after = entry.position - 1 if entry.position else None
        page = await self._owner.ask(lambda engine: engine.load_journal(handle, after=after))
        found = page.entries[0] if page.entries else None
        return found if found is not None and found.key == entry.key else None

    @property
    def _receipt_key(self) -> str:
        return self._step.journal.idempotency_key(self._step.key)

    def _receipt(self, data: bytes) -> Receipt:
        step, owner = self._step, self._owner
        arguments = None if step.digest is None else step.digest.hex()
        execution_id = owner.claimed.execution_id
        return Receipt(self._receipt_key, execution_id, step.key, arguments, data.decode())

    def _take(self, found: tuple[str, str | None] | None) -> bool:
        """The result of a transaction that was committed before, if there is a receipt."""
        if found is None:
            return False
        data, arguments = found[0].encode(), found[1]
        digest = self._step.digest
        if None not in (arguments, digest) and digest is not None and digest.hex() != arguments:
            raise Unrecordable(
                f"{self._step.key}: a receipt was written for it with other arguments, by an "
                "earlier life of the execution; delete that row to have it done again"
            )
        self._done(self._step.decoded(data), data)
        return True

    def _done(self, value: Any, data: bytes) -> None:
        self.value, self.data, self.is_committed = value, data, True


async def _read(driver: AsyncDriver, key: str) -> tuple[str, str | None] | None:
    try:
        rows = await driver.fetch(receipts.READ, key)
    except Exception as error:
        raise typed(error) from error
    return (rows[0][0], rows[0][1]) if rows else None


def _read_blocking(driver: BlockingDriver, key: str) -> tuple[str, str | None] | None:
    try:
        rows = driver.fetch(receipts.READ, key)
    except Exception as error:
        raise typed(error) from error
    return (rows[0][0], rows[0][1]) if rows else None


def _refuse_ended(is_begun: bool) -> None:
    if not is_begun:
        raise Unrecordable("the function ended the transaction itself; leave that to the step")


async def _uninterrupted(operation: Coroutine[Any, Any, None]) -> None:
    """A commit that was begun is waited for: only its end tells whether it happened."""
    ending = asyncio.ensure_future(operation)
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait([ending])
        if not ending.cancelled():
            ending.exception()  # retrieved, so that it is not logged
        raise


def plainly(pool: Any, function: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """The function outside of handlers: in a transaction all the same, and recorded nowhere."""

    async def run(*args: Any, **kwargs: Any) -> Any:
        async with opened(pool) as driver:
            value = await function(driver.connection, *args, **kwargs)
            await driver.commit()
            return value

    def run_blocking(*args: Any, **kwargs: Any) -> Any:
        with opened_blocking(pool) as driver:
            value = function(driver.connection, *args, **kwargs)
            driver.commit()
            return value

    return run if is_async else run_blocking


def _last_of(entries: tuple[NewEntry, ...]) -> NewEntry:
    """The last one that is recorded: what is published with them is no entry."""
    return next(each for each in reversed(entries) if each.kind is not EntryKind.STATE)
