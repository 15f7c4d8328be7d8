"""The composition root: the only module that knows every store."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from flowfabric.api.backend import EngineBackend
from flowfabric.clock import Clock
from flowfabric.config import (
    DEFAULT_NAMESPACE,
    EngineConfig,
    ca_from_environment,
    config_from,
    token_from_environment,
)
from flowfabric.engine.engine import Engine
from flowfabric.errors import InvalidInput
from flowfabric.loops.timekeeper import Timekeeper
from flowfabric.stores.base import Store

if TYPE_CHECKING:  # it needs an extra
    from flowfabric.stores.postgres.store import PostgresStore

_FORMS = "memory://, sqlite:///path, postgresql://… or https://… of a server"


def open_store(
    url: str,
    *,
    config: EngineConfig | None = None,
    clock: Clock | None = None,
    pool: Any = None,
) -> Store:
    """The store a URL names; it is not connected yet. `pool`: an asyncpg pool to use for it.

    >>> open_store("memory://").family
    'memory'
    """
    config = config_from(config)
    scheme = _scheme(url)
    if scheme in ("postgresql", "postgres"):
        return _postgres_store()(url, config=config, clock=clock, pool=pool)
    if pool is not None:
        raise InvalidInput("pool: only PostgreSQL has one; the url names another", field="pool")
    if scheme == "memory":
        from flowfabric.stores.memory import MemoryStore

        return MemoryStore(clock=clock, partitions=config.partitions)
    if scheme == "sqlite":
        from flowfabric.stores.sqlite.store import SqliteStore

        return SqliteStore(_sqlite_path(url), config=config, clock=clock)
    got = f", got {scheme}://…" if scheme else ""
    raise InvalidInput(f"url: expected {_FORMS}{got}", field="url")


def _scheme(url: object) -> str:
    """The text before `://`; without that nothing is repeated, it may be a password."""
    scheme, colon, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    return scheme.lower() if colon and scheme.isascii() and len(scheme) <= 32 else ""


def _postgres_store() -> type[PostgresStore]:
    try:
        from flowfabric.stores.postgres.store import PostgresStore
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise InvalidInput(
            "url: PostgreSQL needs asyncpg, which is not installed here: "
            "pip install 'flowfabric[postgres]'",
            field="url",
        ) from None
    return PostgresStore


async def scratch_database(url: str) -> str:
    """The URL of a database that this process makes on the server of another one, for its tests; it
    is dropped at the end of the process."""
    _postgres_store()  # says what is missing
    from flowfabric.stores.postgres import scratch

    return await scratch.scratch_database(url)


def _sqlite_path(url: str) -> str:
    """sqlite:///relative.db and sqlite:////absolute.db, as in SQLAlchemy."""
    try:
        parts = urlsplit(url)
        path = unquote(parts.path)
        is_path = not parts.netloc and path.startswith("/") and b"\0" not in os.fsencode(path)
    except ValueError:  # brackets where a host would be, or half a character
        is_path, path = False, ""
    if not is_path or len(path) < 2:
        raise InvalidInput(
            "url: expected sqlite:///relative.db or sqlite:////absolute/path.db", field="url"
        )
    return path[1:]


def open_engine(
    url: str,
    *,
    config: EngineConfig | None = None,
    clock: Clock | None = None,
    pool: Any = None,
) -> Engine:
    """An engine over the store a URL names; `await engine.start()` connects it.

    >>> open_engine("memory://").backend_label()
    'memory'
    """
    config = config_from(config)
    store = open_store(url, config=config, clock=clock, pool=pool)
    return Engine(store, config, loop=Timekeeper)


def is_server(url: object) -> bool:
    """Whether a URL names a server, and not a store."""
    return _scheme(url) in ("http", "https")


def open_backend(
    url: str,
    *,
    token: str | None = None,
    config: EngineConfig | None = None,
    clock: Clock | None = None,
    pool: Any = None,
) -> EngineBackend:
    """An engine over the store a URL names, or the one behind the server that it names.

    `token`: for a server; without one that of the environment counts.

    >>> open_backend("http://localhost:9090").backend_label()
    'remote'
    """
    config = config_from(config)
    if not is_server(url):
        if token is not None:
            raise InvalidInput("token: only a server asks for one", field="token")
        return open_engine(url, config=config, clock=clock, pool=pool)
    if pool is not None:
        raise InvalidInput("pool: only PostgreSQL has one; the url names a server", field="pool")
    if find_spec("aiohttp") is None:  # which is loaded with the first request only
        raise InvalidInput(
            "url: a server is asked by aiohttp, which is not installed here: "
            "pip install 'flowfabric[client]'",
            field="url",
        )
    from flowfabric.client.engine import RemoteEngine

    return RemoteEngine(
        url,
        token=token if token is not None else token_from_environment(),
        namespace=None if config.namespace == DEFAULT_NAMESPACE else config.namespace,
        actor=config.actor,
        ca=ca_from_environment(),
    )
