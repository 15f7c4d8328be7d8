"""A server that a command runs: from the first look at its store to the last answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from flowfabric.api.backend import EngineBackend
from flowfabric.cli.call import Call
from flowfabric.cli.exits import CommandFailed, Exit
from flowfabric.cli.show.terminal import Terminal, mask
from flowfabric.cli.stopping import Stops, first_of
from flowfabric.clock import monotonic
from flowfabric.config import EngineConfig
from flowfabric.errors import FlowFabricError, InvalidInput, SchemaMismatch
from flowfabric.model.record import replace
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from flowfabric.trouble import is_passing

_LOGGER = logging.getLogger("flowfabric.server")
_OPEN: Final = (
    "none exists: everything is allowed to programs of this machine, and nothing to others"
)
_GUARDED: Final = "each request needs one; ff token ls lists them"
_PAUSE_S: Final = 0.5  # between two looks at a store that is down


def check_installed(settings: ServerSettings) -> None:
    """Refuse to serve without the packages that a server needs, before anything is begun."""
    needed = ("uvicorn", "httptools", *(("jinja2",) if settings.ui else ()))
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise CommandFailed(
            f"a server needs {' and '.join(missing)}, not installed here",
            advice="pip install 'flowfabric[server]'",
            exit_code=Exit.FAILED,
            code="not_installed",
        )


def logs_as_json(settings: ServerSettings, terminal: Terminal) -> bool:
    """Whether lines are for machines: unless a person reads them on a terminal."""
    if settings.log_format == "auto":
        return not terminal.err.isatty()
    return settings.log_format == "json"


def server_for(call: Call, settings: ServerSettings) -> Server:
    """A server in front of an engine of its own, which does the background work too."""
    from flowfabric.assemble import open_engine

    named = call.arguments.namespace
    config = EngineConfig(
        actor=call.arguments.actor, audit_retention_ms=settings.audit_retention_ms
    )
    config = config if named is None else replace(config, namespace=named)
    return Server(open_engine(call.url, config=config), settings)


class Serving:
    """One run of a server."""

    def __init__(
        self, call: Call, server: Server, *, migrate: bool, shows_login: bool = False
    ) -> None:
        self._call = call
        self._server = server
        self._migrate = migrate
        self._shows_login = shows_login
        self.serves = asyncio.Event()

    @property
    def engine(self) -> EngineBackend:
        """The engine behind the server."""
        return self._server.service.engine

    async def run(self, stops: Stops) -> None:
        """Listen, wait for the store, serve, and drain when a stop is asked for."""
        self._server.bind()
        # A socket that others may serve, too, is not served by one that knows no answer yet.
        is_shared = self._server.settings.bind.startswith("fd:")
        steps = (self._open, self._server.start) if is_shared else (self._server.start, self._open)
        try:
            for step in steps:
                if not stops.asked.is_set():
                    await first_of(step(), stops.asked.wait())
            if not stops.asked.is_set():
                await self._announce()
                self.serves.set()
                await first_of(self._server.ended(), stops.asked.wait())
                await first_of(self._drain(stops), stops.at_once.wait())
        finally:
            await self._server.stop()
            await self.engine.close()
        _LOGGER.info("the server has stopped")

    def hung_up(self) -> None:
        """SIGHUP: the certificate may be a new one."""
        try:
            self._server.renew_certificate()
        except InvalidInput as error:
            _LOGGER.error("the certificate in use stays: %s", error.detail)
        else:
            _LOGGER.info("the certificate was read again")

    async def _drain(self, stops: Stops) -> None:
        _LOGGER.info("the server stops: it answers what is in flight")
        # Whoever presses Ctrl-C waits for it; a process manager has told its balancer.
        await self._server.drain(delay_ms=0 if stops.by_hand else None)

    async def _open(self) -> None:
        """Wait for the store; then answer."""
        until = monotonic() + self._server.settings.store_wait_ms / 1000
        is_waiting = False
        while True:
            try:
                await self.engine.start(migrate=self._migrate)
                break
            except SchemaMismatch as error:
                if not error.fields.get("missing"):
                    raise
                raise _not_migrated(error, self._call.url) from None
            except (FlowFabricError, OSError) as error:
                if not is_passing(error) or monotonic() >= until:
                    raise
                if not is_waiting:
                    _LOGGER.warning("the store is waited for: %s", mask(str(error)))
                is_waiting = True
            await asyncio.sleep(_PAUSE_S)
        await self._server.open()

    async def _announce(self) -> None:
        """Where it is, and what may be asked of it."""
        address = self._server.address
        told = {
            "address": address,
            "url": mask(self._call.url),
            "is_guarded": await self._server.service.guard.has_tokens(),
        }
        once = None
        if self._shows_login and address.startswith("http"):
            once = self._server.service.once.make()
        announce(self._call, told, ui=self._server.settings.ui, once=once)


def announce(call: Call, told: Mapping[str, Any], *, ui: bool, once: str | None = None) -> None:
    """Where a server is, for people or for programs. `once`: what opens the dashboard."""
    terminal, address = call.terminal, str(told["address"])
    is_web = address.startswith("http")
    login = None if once is None else f"{address}/ui/login?once={once}"
    if terminal.as_json:
        terminal.document(dict(told) if login is None else {**told, "login": login})
    else:
        terminal.line(f"FlowFabric serves {told['url']}")
        terminal.line(f"  at      {address}")
        if is_web and ui:
            terminal.line(f"  pages   {address}/ui")
        if is_web:
            terminal.line(f"  docs    {address}/docs")
        if login is not None:
            terminal.line(f"  login   {login} (once, for a minute)")
        terminal.line(f"  tokens  {_GUARDED if told['is_guarded'] else _OPEN}")
    if is_web and ui:
        _LOGGER.info("the dashboard is at %s/ui", address)
    terminal.out.flush()


def _not_migrated(error: SchemaMismatch, url: str) -> CommandFailed:
    return CommandFailed(
        error.detail.removesuffix(": run `ff db migrate`"),
        advice=f"run ff db migrate --url {mask(url)}, or ff serve --migrate",
        exit_code=Exit.REFUSED,
        code=error.code,
        fields=error.fields,
    )
