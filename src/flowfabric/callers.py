"""Connections that callers pass in, and the wrappers around them.

They are recognised by the names of their classes, so that none of these libraries is imported.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from flowfabric.errors import FlowFabricError, InvalidInput

ACCEPTED: Final = (
    "an asyncpg or psycopg 3 connection, a SQLAlchemy 2 connection or session over one of these, "
    "or Django's connection over psycopg 3"
)
ASYNCPG: Final = frozenset({"asyncpg.Connection", "asyncpg.PoolConnectionProxy"})
_ASYNC: Final = ASYNCPG | {
    "psycopg.AsyncConnection",
    "sqlalchemy.AsyncConnection",
    "sqlalchemy.AsyncSession",
    "sqlalchemy.async_scoped_session",
}
_WRAPPED: Final = frozenset({"sqlalchemy.Session", "sqlalchemy.Connection"})
# SQLAlchemy begins at the first execute, and commits only what it has begun.
_BEGIN: Final = "SELECT 1"


def kinds_of(value: object) -> frozenset[str]:
    """The classes of an object, as library and name: `psycopg.Connection`."""
    return frozenset(
        f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(value).__mro__
    )


def refused(detail: str) -> InvalidInput:
    """The error for a connection that cannot be joined, with the reason."""
    return InvalidInput(f"connection: {detail}", field="connection")


def blocking_driver(given: Any) -> Any:
    """The driver's connection behind a blocking one. Call it in the caller's thread: Django's
    connection and a scoped session differ from thread to thread."""
    if kinds_of(given) & _ASYNC:
        raise refused(
            "ff.sync takes blocking connections; await ff.submit(…) on the event loop of this one"
        )
    try:
        return _unwrapped(_meant_here(given))
    except Exception as error:
        raise trouble_of_wrapper(error) from error


async def driver_of(given: Any) -> Any:
    """The driver's connection behind any that is accepted."""
    try:
        given = _meant_here(given)
        if "sqlalchemy.AsyncSession" in kinds_of(given):
            given = await given.connection()
        if "sqlalchemy.AsyncConnection" in kinds_of(given):
            await given.exec_driver_sql(_BEGIN)
            return (await given.get_raw_connection()).driver_connection
        if kinds_of(given) & _WRAPPED:
            return await asyncio.to_thread(_unwrapped, given)
        return _unwrapped(given)
    except Exception as error:
        raise trouble_of_wrapper(error) from error


def _meant_here(given: Any) -> Any:
    """The object behind a proxy in this thread and task."""
    kinds = kinds_of(given)
    if "django.ConnectionProxy" in kinds:
        return given._connections[given._alias]
    if kinds & {"sqlalchemy.scoped_session", "sqlalchemy.async_scoped_session"}:
        return given()
    return given


def _unwrapped(given: Any) -> Any:
    if "django.BaseDatabaseWrapper" in kinds_of(given):
        if given.connection is None:
            raise refused("Django has no open connection here; use transaction.atomic()")
        return given.connection
    if "sqlalchemy.Session" in kinds_of(given):
        given = given.connection()
    if "sqlalchemy.Connection" in kinds_of(given):
        given.exec_driver_sql(_BEGIN)
        return given.connection.driver_connection
    return given


def trouble_of_wrapper(error: Exception) -> Exception:
    """SQLAlchemy's own errors as ours; those of a driver, which it wraps, as the driver's."""
    if isinstance(error, FlowFabricError) or "sqlalchemy.SQLAlchemyError" not in kinds_of(error):
        return error
    original = getattr(error, "orig", None)
    while (cause := getattr(original, "__cause__", None)) is not None:
        original = cause  # for asyncpg it makes a third one in between
    if isinstance(original, Exception):
        return original
    return refused(str(error).partition("\n")[0])
