"""The testing kit for tests without asyncio: the same calls, each run to its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flowfabric.sdk.run import Run
from flowfabric.testing.fabric import TestFabric
from flowfabric.testing.loop import VirtualLoop


class Blocking:
    """An object whose coroutines are run to their end by the loop of the test."""

    def __init__(self, target: Any, loop: VirtualLoop) -> None:
        self._target = target
        self._loop = loop

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        return self._blocking(found) if inspect.ismethod(found) else found

    def _blocking(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            own = [each._target if isinstance(each, Blocking) else each for each in args]
            answer = method(*own, **kwargs)
            if inspect.isawaitable(answer):
                answer = self._loop.run_until_complete(answer)
            return Blocking(answer, self._loop) if isinstance(answer, Run) else answer

        return call


class SyncTestFabric(Blocking):
    """A `TestFabric` for tests without asyncio.

    ```
    def test_publish(sync_fabric: SyncTestFabric) -> None:
        run = sync_fabric.submit(publish, "solar")
        sync_fabric.advance("30d")
        assert run.result() == "solar"
    ```
    """

    def __init__(self, fabric: TestFabric, loop: VirtualLoop) -> None:
        super().__init__(fabric, loop)
