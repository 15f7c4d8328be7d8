"""`ff serve --workers N`: several processes that share one socket and one PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from typing import Any, Final

from flowfabric.cli.call import Call
from flowfabric.cli.exits import Exit
from flowfabric.cli.serve_process import SECRET_BYTES
from flowfabric.cli.serving import announce
from flowfabric.cli.stopping import Stops, first_of
from flowfabric.config import URL_VARIABLE, environment_with
from flowfabric.ids import new_secret_bytes
from flowfabric.model.record import replace
from flowfabric.server.hosts import host_of
from flowfabric.server.opening import check_certificate
from flowfabric.server.serve import bound_socket, unlink_socket
from flowfabric.server.settings import SETTINGS, Form, ServerSettings
from flowfabric.server.sources import written

_LOGGER = logging.getLogger("flowfabric.server")
_PAUSE_S: Final = 1.0  # before one that has ended by itself is started again


class ServingMany:
    """One run of several server processes."""

    def __init__(self, call: Call, settings: ServerSettings, count: int, *, migrate: bool) -> None:
        self._call = call
        self._settings = settings
        self._count = count
        self._migrate = migrate
        self._processes: set[asyncio.subprocess.Process] = set()
        self._is_ending = False
        self._secret = new_secret_bytes(SECRET_BYTES)  # of forms: a page of one goes to another

    async def run(self, stops: Stops) -> Exit:
        """Serve until a stop is asked for. The first process looks at the store, and brings it up
        to date where that is wanted; the others follow."""
        check_certificate(self._settings)
        listener = bound_socket(self._settings.bind)
        try:
            os.set_inheritable(listener.fileno(), True)
            words = self._words(listener.fileno())
            return await self._run(words, listener.fileno(), stops)
        finally:
            listener.close()
            unlink_socket(self._settings.bind)

    def hung_up(self) -> None:
        """SIGHUP: the certificate may be a new one."""
        self._signal(signal.SIGHUP)

    async def _run(self, words: list[str], number: int, stops: Stops) -> Exit:
        keeping: list[asyncio.Task[Any]] = []
        try:
            first = [*words, "--migrate"] if self._migrate else words
            process, told = await self._started(first, number, stops)
            if told is None:
                return await _end_of(process)
            announce(self._call, {**told, "processes": self._count}, ui=self._settings.ui)
            keeping.append(asyncio.create_task(self._kept(process, words, number)))
            keeping += [
                asyncio.create_task(self._kept(None, words, number)) for _ in range(self._count - 1)
            ]
            await stops.asked.wait()
        finally:
            self._is_ending = True
            for each in keeping:
                each.cancel()
            await asyncio.gather(*keeping, return_exceptions=True)
            await self._end(stops)
        return Exit.OK

    async def _started(
        self, words: list[str], number: int, stops: Stops | None = None
    ) -> tuple[asyncio.subprocess.Process, dict[str, Any] | None]:
        """A process, and what it told when it served; nothing if it has ended before."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flowfabric.cli.serve_process", str(os.getpid()), *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=(number,),
            start_new_session=True,  # Ctrl-C is for this process, which ends them itself
            env=environment_with(**{URL_VARIABLE: self._call.url}),  # not where `ps` shows it
        )
        self._processes.add(process)
        assert process.stdin is not None  # noqa: S101 - it was started with a pipe
        process.stdin.write(self._secret.hex().encode())
        process.stdin.close()
        reading = asyncio.create_task(_told(process))
        waits = (reading,) if stops is None else (reading, stops.asked.wait())
        await first_of(*(asyncio.shield(each) if each is reading else each for each in waits))
        return process, reading.result() if reading.done() else None

    async def _kept(
        self, process: asyncio.subprocess.Process | None, words: list[str], number: int
    ) -> None:
        """One process after another, for as long as this runs."""
        while True:
            if process is None:
                process, _ = await self._started(words, number)
            code = await process.wait()
            self._processes.discard(process)
            _LOGGER.error("a server process has ended (%d); another one is started", code)
            process = None
            await asyncio.sleep(_PAUSE_S)

    async def _end(self, stops: Stops) -> None:
        """All of them drain; a second signal goes to them as well."""
        self._signal(signal.SIGINT if stops.by_hand else signal.SIGTERM)
        ends = asyncio.gather(*(each.wait() for each in self._processes))
        await first_of(asyncio.shield(ends), stops.at_once.wait())
        if not ends.done():
            self._signal(signal.SIGTERM)
        await ends

    def _signal(self, number: signal.Signals) -> None:
        for each in self._processes:
            with suppress(ProcessLookupError):
                each.send_signal(number)

    def _words(self, number: int) -> list[str]:
        """The settings in force, and the socket that is there already."""
        settings = self._settings
        hosts = (*settings.allowed_hosts, host_of(settings.bind))
        settings = replace(settings, bind=f"fd:{number}", allowed_hosts=hosts)
        arguments = self._call.arguments
        words = ["serve", "--json", *(["--debug"] if arguments.debug else [])]
        for name in ("namespace", "actor"):
            if getattr(arguments, name) is not None:
                words += [f"--{name}", getattr(arguments, name)]
        for key, setting in SETTINGS.items():
            value, option = getattr(settings, setting.field), key.replace("_", "-")
            if setting.about.form is Form.FLAG:
                words.append(f"--{option}" if value else f"--no-{option}")
            elif value not in (None, ()):
                words.append(f"--{option}={written(setting, value)}")
        return words


async def _told(process: asyncio.subprocess.Process) -> dict[str, Any] | None:
    """The document that a server prints when it serves."""
    assert process.stdout is not None  # noqa: S101 - it was started with a pipe
    text = b""
    while line := await process.stdout.readline():
        text += line
        if line.startswith(b"}"):
            found: dict[str, Any] = json.loads(text)
            return found
    return None


async def _end_of(process: asyncio.subprocess.Process) -> Exit:
    """How the first one ended, which has said why."""
    with suppress(ProcessLookupError):
        process.terminate()
    code = await process.wait()
    return Exit(code) if code in tuple(Exit) else Exit.FAILED
