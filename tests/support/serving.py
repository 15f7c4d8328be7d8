"""A server as a process of its own, started as anyone would start it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_FF = (sys.executable, "-m", "flowfabric.cli")
PATIENCE_S = 60.0  # reached only by a bug, however busy the machine is


class ServerProcess:
    """`ff serve` on a free port, and what it said."""

    def __init__(
        self, url: str, *words: str, folder: Path, environment: Mapping[str, str] = os.environ
    ) -> None:
        self.log = folder / "server.log"
        options = ["--bind", "127.0.0.1:0"] if "--bind" not in words else []
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*_FF, "serve", "--json", "--url", url, *options, *words],
                cwd=folder,
                env=dict(environment),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.told: dict[str, Any] = {}

    def await_start(self) -> str:
        """Its address, once it serves."""
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line.startswith("}"):
                break
        assert text, self.log.read_text("utf-8")
        self.told = json.loads(text)
        return str(self.told["address"])

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def lines(self) -> list[dict[str, Any]]:
        """Its log."""
        return [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]


@contextmanager
def serving(url: str, *words: str, folder: Path) -> Iterator[ServerProcess]:
    """A server that is ready; killed at the end if it still runs."""
    server = ServerProcess(url, *words, folder=folder)
    try:
        server.await_start()
        yield server
    finally:
        server.end()


def get(address: str, path: str, **options: Any) -> httpx.Response:
    return httpx.get(address + path, timeout=PATIENCE_S, **options)
