"""Blames the test that leaves a socket open: the garbage collector would find it in another one."""

from __future__ import annotations

from asyncio.selector_events import BaseSelectorEventLoop
from typing import Any
from unittest.mock import patch

LEFT: list[str] = []  # what loops had open that ended since the last look


def watch() -> Any:
    """A patch under which each event loop notes at its end what is still open."""
    close = BaseSelectorEventLoop.close

    def closing(loop: Any) -> None:
        LEFT.extend(
            f"{transport!r} of {transport.get_protocol()!r}"
            for transport in list(loop._transports.values())
            if transport._sock is not None
        )
        close(loop)

    return patch.object(BaseSelectorEventLoop, "close", closing)


def check() -> None:
    """Fail if an event loop ended before its connections did."""
    found = list(LEFT)
    LEFT.clear()
    assert not found, f"an event loop ended with open connections: {'; '.join(found)}"
