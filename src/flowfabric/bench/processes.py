"""Starting worker processes and hearing from them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from flowfabric.bench.measurement import MeasurementFailed
from flowfabric.model.record import from_json

LIMIT_S = 600.0


def _command(url: str, concurrency: int, n: int) -> list[str]:
    module = "flowfabric.bench.worker_process"
    return [sys.executable, "-W", "ignore", "-m", module, url, str(concurrency), str(n)]


def drained_by_process(url: str, concurrency: int, n: int) -> dict[str, float]:
    """Let one worker process empty the backlog; returns its report."""
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        _command(url, concurrency, n),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise MeasurementFailed(f"the worker process ended with {done.returncode}: {last}")
    return from_json(done.stdout, dict[str, float], field="worker process")


@contextmanager
def worker_beside(url: str, concurrency: int) -> Iterator[None]:
    """A worker process that idles until the block ends."""
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        _command(url, concurrency, 0),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            raise MeasurementFailed("the worker process did not start")
        yield
    finally:
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
