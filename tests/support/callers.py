"""Programs with a transaction of their own, one for each kind of connection that is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import django
import psycopg
from django.conf import settings
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker


@dataclass
class Caller:
    """What is handed to a submit, and what its program can do with its transaction."""

    connection: Any
    execute: Callable[[str], Awaitable[Any]]
    commit: Callable[[], Awaitable[Any]]
    rollback: Callable[[], Awaitable[Any]]


Begin = Callable[[str], Any]  # a context with a caller whose transaction is open


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    transaction = connection.transaction()
    await transaction.start()
    yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)
    await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        yield Caller(connection, connection.execute, transaction.commit, transaction.rollback)


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def psycopg_async_in_block(url: str) -> AsyncIterator[Caller]:
    """autocommit, with a transaction block."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("BEGIN")

    async def end(word: str) -> None:
        await connection.execute(word)

    yield Caller(connection, connection.execute, lambda: end("COMMIT"), lambda: end("ROLLBACK"))
    await connection.close()


def sqlalchemy_url(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://").replace(":@/", "@/")


def over(driver: str, *, session: bool) -> Begin:
    @asynccontextmanager
    async def sqlalchemy_async(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(sqlalchemy_url(url, driver))
        async with AsyncSession(engine) if session else engine.connect() as given:
            yield Caller(given, lambda sql: given.execute(text(sql)), given.commit, given.rollback)
        await engine.dispose()

    return sqlalchemy_async


ASYNC: dict[str, Begin] = {
    "asyncpg": asyncpg_connection,
    "asyncpg-pool": asyncpg_pool,
    "psycopg-async": psycopg_async,
    "psycopg-async-autocommit": psycopg_async_in_block,
    "sqlalchemy-async-connection-asyncpg": over("asyncpg", session=False),
    "sqlalchemy-async-session-asyncpg": over("asyncpg", session=True),
    "sqlalchemy-async-connection-psycopg": over("psycopg", session=False),
    "sqlalchemy-async-session-psycopg": over("psycopg", session=True),
}


# --- without asyncio ------------------------------------------------------------------------------


def threaded(given: Any, execute: Any, commit: Any, rollback: Any) -> Caller:
    """Blocking calls of a test that runs in an event loop."""
    return Caller(
        given,
        lambda sql: asyncio.to_thread(execute, sql),
        lambda: asyncio.to_thread(commit),
        lambda: asyncio.to_thread(rollback),
    )


@asynccontextmanager
async def psycopg_blocking(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield threaded(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def sqlalchemy_connection(url: str) -> AsyncIterator[Caller]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with engine.connect() as given:
        yield threaded(given, lambda sql: given.execute(text(sql)), given.commit, given.rollback)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_session(url: str) -> AsyncIterator[Caller]:
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    with Session(engine) as given:
        yield threaded(given, lambda sql: given.execute(text(sql)), given.commit, given.rollback)
    engine.dispose()


@asynccontextmanager
async def sqlalchemy_scoped(url: str) -> AsyncIterator[Caller]:
    """Another session in each thread: the test's own is meant."""
    engine = create_engine(sqlalchemy_url(url, "psycopg"))
    given = scoped_session(sessionmaker(engine))
    mine = given()
    yield threaded(given, lambda sql: mine.execute(text(sql)), mine.commit, mine.rollback)
    given.remove()
    engine.dispose()


BLOCKING: dict[str, Begin] = {
    "psycopg": psycopg_blocking,
    "sqlalchemy-connection": sqlalchemy_connection,
    "sqlalchemy-session": sqlalchemy_session,
    "sqlalchemy-scoped-session": sqlalchemy_scoped,
}
CALLERS = {**ASYNC, **BLOCKING}


def django_connection(url: str) -> Any:
    """`django.db.connection`, pointed at this database."""
    parts = urlsplit(url)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parse_qs(parts.query).get("host", [parts.hostname or ""])[0],
        "PORT": str(parts.port or ""),
    }
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    from django.db import connection

    connection.close()
    connection.settings_dict.update(database)
    return connection
