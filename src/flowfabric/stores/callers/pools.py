"""Where a caller's connections come from: a pool, an engine, or a function.

They are recognised by the names of their classes, so that none of these libraries is imported.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from flowfabric.callers import kinds_of
from flowfabric.errors import InvalidInput
from flowfabric.stores.callers.drivers import (
    AsyncDriver,
    BlockingDriver,
    async_driver,
    blocking_driver,
)
from flowfabric.stores.callers.trouble import is_drivers, typed

ACCEPTED: Final = (
    "an asyncpg or psycopg pool, a SQLAlchemy engine, or a function that returns one of these, a "
    "new connection or a context manager with one"
)
_POOLS: Final = frozenset({"asyncpg.Pool", "psycopg_pool.AsyncConnectionPool"})
_ENGINES: Final = frozenset({"sqlalchemy.AsyncEngine"})
_BLOCKING_POOLS: Final = frozenset({"psycopg_pool.ConnectionPool"})
_BLOCKING_ENGINES: Final = frozenset({"sqlalchemy.Engine"})
_ASYNC: Final = _POOLS | _ENGINES
_BLOCKING: Final = _BLOCKING_POOLS | _BLOCKING_ENGINES


def check_pool(pool: Any, *, is_async: bool) -> Any:
    """Something that connections come from, of the kind that a function needs."""
    kinds = kinds_of(pool)
    if kinds & _ASYNC and not is_async:
        raise _refused("its connections are async: make the function `async def`")
    if kinds & _BLOCKING and is_async:
        raise _refused("its connections block: make the function a plain `def`")
    is_connection = async_driver_like(pool) or not (kinds & (_ASYNC | _BLOCKING) or callable(pool))
    if is_connection:
        raise _refused(f"expected {ACCEPTED}; got {type(pool).__name__}")
    return pool


def async_driver_like(value: Any) -> bool:
    """Whether it is a connection itself, and not what they come from."""
    names = {"Connection", "AsyncConnection", "Session", "AsyncSession", "PoolConnectionProxy"}
    libraries = {"asyncpg", "psycopg", "sqlalchemy", "sqlite3"}
    return any(
        each.partition(".")[0] in libraries and each.partition(".")[2] in names
        for each in kinds_of(value)
    )


def resolved(pool: Any) -> Any:
    """What a function without a connection of its own returns: a pool or an engine; else None."""
    return pool if kinds_of(pool) & (_ASYNC | _BLOCKING) else None


@asynccontextmanager
async def opened(pool: Any) -> AsyncIterator[AsyncDriver]:
    """An open transaction on a connection of this event loop. It is rolled back unless it was
    committed; errors of the driver that are not the caller's are typed."""
    async with _connected(pool) as driver:
        try:
            await driver.begin()
        except Exception as error:
            raise typed(error) from error
        try:
            yield driver
        except BaseException:
            with suppress(Exception):  # the first error counts; a lost connection rolls back
                await driver.rollback()
            raise


@asynccontextmanager
async def _connected(pool: Any) -> AsyncIterator[AsyncDriver]:
    kinds = kinds_of(pool)
    if kinds & _POOLS:
        lender = pool.acquire if "asyncpg.Pool" in kinds else pool.connection
        _check_loop(pool)
        async with _entered(lender) as connection:
            yield _async_of(connection)
    elif kinds & _ENGINES:
        async with _entered(pool.connect) as connection:
            yield _async_of(connection)
    elif kinds & _BLOCKING:
        raise _refused("its connections block: make the function a plain `def`")
    else:
        async with _made(pool) as driver:
            yield driver


@asynccontextmanager
async def _made(function: Any) -> AsyncIterator[AsyncDriver]:
    """By a function of the caller's: a connection that is closed afterwards, a context manager, or
    a pool."""
    try:
        made = function()
        if async_driver(made) is None and not hasattr(made, "__aenter__"):
            made = await made if inspect.isawaitable(made) else made
    except Exception as error:
        raise typed(error) from error
    if resolved(made) is not None:
        async with _connected(made) as driver:
            yield driver
    elif (driver_ := async_driver(made)) is not None:
        try:
            yield driver_
        finally:
            with suppress(Exception):
                await driver_.close()
    elif hasattr(made, "__aenter__"):
        async with _entered(lambda: made) as connection:
            yield _async_of(connection)
    else:
        raise _refused(f"the function returned {type(made).__name__}; expected {ACCEPTED}")


@asynccontextmanager
async def _entered(lender: Any) -> AsyncIterator[Any]:
    """A connection that goes back where it came from."""
    try:
        lent = lender()
        connection = await lent.__aenter__()
    except Exception as error:
        raise _unlent(error) from error
    try:
        yield connection
    except BaseException as error:
        with suppress(BaseException):  # the first error counts
            await lent.__aexit__(type(error), error, error.__traceback__)
        raise
    else:
        with suppress(Exception):  # what was to be committed is
            await lent.__aexit__(None, None, None)


def _async_of(connection: Any) -> AsyncDriver:
    driver = async_driver(connection)
    if driver is None:
        raise _refused(f"an async function needs an async connection; got {_name(connection)}")
    return driver


def _check_loop(pool: Any) -> None:
    """There is no public way to ask; psycopg's pools say it themselves."""
    loop = getattr(pool, "_loop", None)
    if loop is not None and loop is not asyncio.get_running_loop():
        raise _refused("the pool belongs to another event loop than the worker's")


# --- blocking ------------------------------------------------------------------------------------


@contextmanager
def opened_blocking(pool: Any) -> Iterator[BlockingDriver]:
    """The same in a thread."""
    with _connected_blocking(pool) as driver:
        try:
            driver.begin()
        except Exception as error:
            raise typed(error) from error
        try:
            yield driver
        except BaseException:
            with suppress(Exception):
                driver.rollback()
            raise


@contextmanager
def _connected_blocking(pool: Any) -> Iterator[BlockingDriver]:
    kinds = kinds_of(pool)
    if kinds & _BLOCKING:
        lender = pool.connection if kinds & _BLOCKING_POOLS else pool.connect
        with _entered_blocking(lender) as connection:
            yield _blocking_of(connection)
    elif kinds & _ASYNC:
        raise _refused("its connections are async: make the function `async def`")
    else:
        with _made_blocking(pool) as driver:
            yield driver


@contextmanager
def _made_blocking(function: Any) -> Iterator[BlockingDriver]:
    try:
        made = function()
    except Exception as error:
        raise typed(error) from error
    if resolved(made) is not None:
        with _connected_blocking(made) as driver:
            yield driver
    elif (driver_ := blocking_driver(made)) is not None:
        try:
            yield driver_
        finally:
            with suppress(Exception):
                driver_.close()
    elif hasattr(made, "__enter__"):
        with _entered_blocking(lambda: made) as connection:
            yield _blocking_of(connection)
    else:
        if inspect.iscoroutine(made):
            made.close()
        detail = f"a plain function needs a blocking connection; got {_name(made)}"
        raise _refused(detail)


@contextmanager
def _entered_blocking(lender: Any) -> Iterator[Any]:
    try:
        lent = lender()
        connection = lent.__enter__()
    except Exception as error:
        raise _unlent(error) from error
    try:
        yield connection
    except BaseException as error:
        with suppress(BaseException):
            lent.__exit__(type(error), error, error.__traceback__)
        raise
    else:
        with suppress(Exception):
            lent.__exit__(None, None, None)


def _blocking_of(connection: Any) -> BlockingDriver:
    driver = blocking_driver(connection)
    if driver is None:
        raise _refused(f"a plain function needs a blocking connection; got {_name(connection)}")
    return driver


def _unlent(error: Exception) -> Exception:
    """A pool that is closed or was never opened is no outage."""
    if "asyncpg.InterfaceError" in kinds_of(error):
        return _refused(str(error))
    return typed(error) if is_drivers(error) else error


def _name(value: Any) -> str:
    kind = type(value)
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _refused(detail: str) -> InvalidInput:
    return InvalidInput(f"transaction: {detail}", field="transaction")
