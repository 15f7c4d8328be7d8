"""Databases that a process makes for its tests, and drops at its end."""

from __future__ import annotations

import asyncio
import atexit
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from flowfabric.errors import FlowFabricError
from flowfabric.ids import new_name
from flowfabric.stores.postgres.faults import DRIVER_ERRORS, fault
from flowfabric.stores.postgres.session import check_url

_made: dict[str, str] = {}  # by the URL of its server: the name of the database


async def scratch_database(url: str) -> str:
    """The URL of this process's own database on the server that a URL names."""
    if url not in _made:
        name = new_name("flowfabric_test").replace("-", "_")
        await _execute(url, f"CREATE DATABASE {name}")
        if not _made:
            atexit.register(drop_scratch_databases)
        _made[url] = name
    return urlunsplit(urlsplit(url)._replace(path=f"/{_made[url]}"))


def drop_scratch_databases() -> None:
    """Leave nothing on the servers. Call it where no event loop runs."""
    while _made:
        url, name = _made.popitem()
        with suppress(FlowFabricError):  # the server is gone, and with it perhaps the database
            asyncio.run(_execute(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def _execute(url: str, statement: str) -> None:
    try:
        connection = await asyncpg.connect(check_url(url))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
    except DRIVER_ERRORS as error:
        raise fault(error) from error
