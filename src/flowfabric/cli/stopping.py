"""Ctrl-C and SIGTERM for commands that run until they are stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


class Stops:
    """The first signal asks for a stop in good order, the second for one at once."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.at_once = asyncio.Event()
        self.by_hand = False  # Ctrl-C: somebody waits for the end

    def heard(self, number: signal.Signals) -> None:
        """A signal came."""
        if self.asked.is_set():
            self.at_once.set()
        self.by_hand = self.by_hand or number is signal.SIGINT
        self.asked.set()


@contextmanager
def stopping_on_signals(on_hangup: Callable[[], None] | None = None) -> Iterator[Stops]:
    """Signals set events while the block runs; SIGHUP calls a function."""
    loop, stops = asyncio.get_running_loop(), Stops()
    wanted: list[tuple[signal.Signals, Callable[[], None]]] = [
        (number, lambda number=number: stops.heard(number))  # type: ignore[misc]
        for number in _STOPPING
    ]
    if on_hangup is not None and hasattr(signal, "SIGHUP"):
        wanted.append((signal.SIGHUP, on_hangup))
    installed = []
    for number, react in wanted:
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            loop.add_signal_handler(number, react)
            installed.append(number)
    try:
        yield stops
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


async def first_of(*waits: Awaitable[Any]) -> None:
    """Return when one of them does; the others are cancelled. An error of one is raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
