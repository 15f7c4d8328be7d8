"""An event loop that runs one coroutine after the other, thousands of them in some tests."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StepRunner:
    """An `asyncio.Runner` that does not take over SIGINT for each coroutine: doing so prints the
    task it runs, which costs as much as a small step."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of every step."""
        return self._runner.get_loop()

    def run(self, step: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end."""
        return self.loop.run_until_complete(step)

    def close(self) -> None:
        """Cancel what is left, and end the loop."""
        self._runner.close()
