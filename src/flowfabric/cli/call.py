"""One call of a command: its arguments, its terminal, and the engine it may open."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.exits import not_found, usage
from flowfabric.cli.show.terminal import Terminal, mask
from flowfabric.cli.shown import Shown
from flowfabric.config import (
    DEFAULT_URL,
    URL_VARIABLE,
    EngineConfig,
    url_from_environment,
    user_at_host,
)
from flowfabric.errors import NotFound
from flowfabric.model.migration import MigrationStatus
from flowfabric.model.record import replace


class Database(Protocol):
    """A store as the commands about its schema see it."""

    @property
    def family(self) -> str: ...
    async def migrate(self) -> list[str]: ...
    async def migration_status(self) -> list[MigrationStatus]: ...
    def migration_sql(self) -> str: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The input of a command."""

    arguments: Namespace
    terminal: Terminal

    @property
    def url(self) -> str:
        """The store: the option, else the environment, else a file here."""
        return self.arguments.url or url_from_environment() or DEFAULT_URL

    @property
    def source_of_url(self) -> str:
        """Where the URL comes from."""
        if self.arguments.url:
            return "flag"
        return URL_VARIABLE if url_from_environment() else "default"

    def require_store(self, command: str) -> None:
        """Refuse the URL of a server: the command works next to the store."""
        from flowfabric.assemble import is_server

        if is_server(self.url):
            raise usage(
                f"{command} needs a store, and {mask(self.url)!s:.300} is a server",
                advice="run it on a machine that reaches the store, with --url of that",
            )

    @property
    def config(self) -> EngineConfig:
        """A command only reads and asks: the background work is left to the workers."""
        actor = self.arguments.actor or user_at_host()
        if self.arguments.namespace is None:
            return EngineConfig(loops=False, actor=actor)
        return EngineConfig(loops=False, actor=actor, namespace=self.arguments.namespace)

    @property
    def shown(self) -> Shown:
        """The last thing shown of this store."""
        path = sqlite_path(self.url)
        return Shown(self.url if path is None else str(path.absolute()))

    def unopened(self, *, works: bool = False) -> EngineBackend:
        """An engine that has not touched its store."""
        from flowfabric.assemble import open_backend  # drivers load when needed

        return open_backend(self.url, config=replace(self.config, loops=works))

    def store(self) -> Database:
        """The store itself, for commands about the database and not about work."""
        from flowfabric.assemble import open_store  # drivers load when needed

        return open_store(self.url, config=self.config)

    @asynccontextmanager
    async def engine(
        self, *, creates: bool = False, works: bool = False
    ) -> AsyncIterator[EngineBackend]:
        """A started engine; only a command that `creates` makes a database that is missing. One
        that `works` does background work too: what it waits for must not wait for a worker."""
        if not creates:
            self.refuse_missing_file()
        engine = self.unopened(works=works)
        try:
            await engine.start(migrate=creates)
            yield engine
        except NotFound as error:
            from flowfabric.cli.advice import named  # keeps --help fast

            raise await named(engine, error) from None
        finally:
            await engine.close()

    def refuse_missing_file(self) -> None:
        """Looking must not leave an empty database behind."""
        path = sqlite_path(self.url)
        if path is not None and not _is_there(path):
            raise not_found(
                f"no database at {path!s:.300}",
                advice="name one with --url or FLOWFABRIC_URL, or make one with ff db migrate",
            )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def sqlite_path(url: str) -> Path | None:
    """The file behind a SQLite URL: three slashes and a relative path, four and an absolute one."""
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        return None
    return Path(unquote(url.removeprefix(prefix).partition("?")[0]))
