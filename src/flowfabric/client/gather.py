"""Gathering: while a request is on its way, the next one gathers. There is no timer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.operation import Operation
from flowfabric.errors import FlowFabricError

_BYTES_MAX: Final = 4 << 20


class Sendable:
    """An encoded request on its way, and its answer."""

    __slots__ = ("answered", "body", "operation")

    def __init__(self, operation: Operation, body: bytes) -> None:
        self.operation = operation
        self.body = body
        self.answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


Send = Callable[[Sequence[Sendable]], Awaitable[Sequence[Any]]]


class Gatherer:
    """Sends what waits together, a few requests at a time."""

    def __init__(self, send: Send, *, in_flight: int) -> None:
        self._send = send
        self._in_flight = in_flight
        self._waiting: deque[Sendable] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, operation: Operation, body: bytes) -> Any:
        """The reply to one request; its error is raised."""
        sendable = Sendable(operation, body)
        self._waiting.append(sendable)
        self._start()
        return await sendable.answered

    async def idle(self) -> None:
        """Return when nothing is on its way."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        if self._waiting and len(self._running) < self._in_flight:
            task = asyncio.create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start()

    async def _work(self) -> None:
        while batch := self._next():
            try:
                answers = await self._send(batch)
            except Exception as error:  # noqa: BLE001 - handed to each caller
                answers = [error] * len(batch)
            for sendable, answer in zip(batch, answers, strict=True):
                _answer(sendable, answer)
            await asyncio.sleep(0)  # callers that were answered often have a next request

    def _next(self) -> list[Sendable]:
        return [self._waiting.popleft() for _ in range(fitting(self._waiting))]


def fitting(waiting: Iterable[Sendable]) -> int:
    """How many of them one request carries: at least the first."""
    count = size = 0
    for each in waiting:
        size += len(each.body)
        if count == limits.COMMANDS_MAX or (count and size > _BYTES_MAX):
            break
        count += 1
    return count


def _answer(sendable: Sendable, answer: Any) -> None:
    if sendable.answered.done():  # its caller was cancelled
        return
    if isinstance(answer, FlowFabricError | Exception):
        sendable.answered.set_exception(answer)
    else:
        sendable.answered.set_result(answer)
