"""Where the functions of steps run: on the loop, in threads of the worker, or in the thread of a
sync handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

from flowfabric.sdk.journal.journal import Journal


class Bodies(Protocol):
    """Where plain functions run."""

    async def run(self, function: Callable[[], Any]) -> Any:
        """The result of a function that may block."""
        ...


class InThreads:
    """In threads of the worker: an async handler must not be blocked, and a try that takes too long
    is left to itself."""

    def __init__(self, journal: Journal) -> None:
        self._threads = journal.owner.bodies

    async def run(self, function: Callable[[], Any]) -> Any:
        """In any of them."""
        return await _elsewhere(self._threads.run, function)


class InThisThread:
    """In the thread of a sync handler, which waits for work while the loop decides."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    async def run(self, function: Callable[[], Any]) -> Any:
        """In the thread that serves."""
        return await _elsewhere(self._jobs.put, function)

    def serve(self, operation: Any, loop: asyncio.AbstractEventLoop) -> Any:
        """Run a coroutine on the loop, and here what it wants to be run here."""
        future = asyncio.run_coroutine_threadsafe(operation, loop)
        future.add_done_callback(lambda _: self._jobs.put(None))
        while (job := self._jobs.get()) is not None:
            job()
        return future.result()


async def _elsewhere(start: Callable[[Callable[[], None]], None], function: Any) -> Any:
    """The result of a function that another thread runs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(outcome: Any, error: BaseException | None) -> None:
        if done.done():
            return  # nothing waits for it any more
        if error is None:
            done.set_result(outcome)
        else:
            done.set_exception(error)

    def job() -> None:
        outcome, error = None, None
        try:
            outcome = function()
        except BaseException as problem:  # noqa: BLE001 - it belongs to the one that waits
            error = problem
            if isinstance(problem, StopIteration):  # no future takes it
                error = RuntimeError("the step raised StopIteration")
        try:
            loop.call_soon_threadsafe(settle, outcome, error)
        except RuntimeError:  # the loop is closed: this thread outlived its worker
            return

    start(job)
    return await done
