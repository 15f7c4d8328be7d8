"""A server in a process of its own, as `ff serve` starts it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from flowfabric.bench.measurement import MeasurementFailed
from flowfabric.model.record import from_json

_END_S = 30.0


class Served(NamedTuple):
    """A server that runs."""

    address: str
    pid: int


@contextmanager
def served(url: str) -> Iterator[str]:
    """The address of a server on a database, until the block ends."""
    with served_process(url) as found:
        yield found.address


@contextmanager
def served_process(url: str) -> Iterator[Served]:
    """A server on a database, until the block ends."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [
            *(sys.executable, "-W", "ignore", "-m", "flowfabric.cli", "serve", "--json"),
            *("--url", url, "--bind", "127.0.0.1:0", "--migrate", "--drain-delay", "0s"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Served(_address(process), process.pid)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _address(process: subprocess.Popen[bytes]) -> str:
    text = b""
    for line in process.stdout or ():
        text += line
        if line.startswith(b"}"):
            return str(from_json(text, dict[str, Any], field="server")["address"])
    raise MeasurementFailed("the server process did not start")
