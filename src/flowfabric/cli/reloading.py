"""The worker of `ff dev`, beside its server: a process that is replaced when its code changes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from flowfabric.cli.dev_worker import changed_at
from flowfabric.cli.show.terminal import Terminal
from flowfabric.cli.stopping import Stops, first_of
from flowfabric.config import URL_VARIABLE, environment_with

_LOOK_S: Final = 0.2
_SETTLE_S: Final = 0.05  # an editor may write several files
_PAUSE_S: Final = 1.0  # before a worker that has ended by itself is started again
_PATIENCE_S: Final = 2.0  # then it is killed
_LINE_BYTES: Final = 1 << 24  # of all files of a program, or what it prints itself


class _Process:
    """One worker process, and what it has told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.files: dict[str, int] = {}
        self.loaded = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def start(cls, given: Mapping[str, Any]) -> _Process:
        """It reads the program anew. Without files of bytecode: those are told apart by the second,
        and a change may come sooner."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flowfabric.cli.dev_worker", json.dumps(given)),
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C is for `ff dev`, which ends its worker itself
            env=environment_with(**{URL_VARIABLE: given["url"]}, PYTHONDONTWRITEBYTECODE="1"),
        )
        return cls(process)

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        while line := await self._process.stdout.readline():
            try:
                told = json.loads(line)
                self.files.update(told["files"])
                is_loaded = bool(told["is_loaded"])
            except (ValueError, TypeError, KeyError):
                sys.stdout.write(line.decode(errors="replace"))  # the program's own
                continue
            if is_loaded:
                self.loaded.set()

    async def ended(self) -> None:
        """Return when it is gone."""
        await self._process.wait()

    async def stop(self) -> None:
        """SIGTERM: handlers may finish for a moment."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        # What it has started may keep its output open.
        await asyncio.wait([self._reading], timeout=_PATIENCE_S)
        self._reading.cancel()


class Reloading:
    """Keeps a worker at work on the present code."""

    def __init__(self, given: Mapping[str, Any], terminal: Terminal) -> None:
        self._given = given
        self._terminal = terminal
        self._worker: _Process | None = None
        self._watched: dict[str, int] = {}

    async def run(self, stops: Stops) -> None:
        """Until a stop is asked for: start a worker, and another one after each change. While that
        does not load, the one before it goes on."""
        try:
            while not stops.asked.is_set():
                await self._replace(stops)
                await first_of(self._change(), self._worker_ended(), stops.asked.wait())
        finally:
            if self._worker is not None:
                await self._worker.stop()

    async def _replace(self, stops: Stops) -> None:
        newer = await _Process.start(self._given)
        await first_of(newer.loaded.wait(), newer.ended(), stops.asked.wait())
        former = newer
        if newer.loaded.is_set():
            former, self._worker = self._worker or newer, newer
        if former is not self._worker:
            await former.stop()
        self._watched |= newer.files
        if not newer.loaded.is_set() and not stops.asked.is_set():
            goes_on = "; the worker before it goes on" if self._worker is not None else ""
            self._terminal.complain(f"the code is read again when it changes{goes_on}")

    async def _change(self) -> None:
        """Return when a file of the program is another."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._worker is not None:
                self._watched = self._worker.files | self._watched
            now = {file: changed_at(file) for file in self._watched}
            if now != self._watched:
                self._watched = now
                await asyncio.sleep(_SETTLE_S)
                return

    async def _worker_ended(self) -> None:
        """Return some time after the worker has ended by itself."""
        worker = self._worker
        if worker is None:
            await asyncio.Event().wait()
            return
        await worker.ended()
        self._worker = None
        self._terminal.complain("the worker has ended; another one is started")
        await asyncio.sleep(_PAUSE_S)
