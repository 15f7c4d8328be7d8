"""Coalescing: while one commit is in flight, the next batch gathers.

There is no timer: an idle engine commits a single call at once; a busy one shares each commit among
all waiting calls. Every caller gets its own reply or its own error, and one bad command never
disturbs its neighbours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

from flowfabric.errors import FlowFabricError, StoreError
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Refused
from flowfabric.trouble import Trouble, trouble

R = TypeVar("R")
Commit = Callable[[Sequence["Pending"]], Awaitable[None]]


class Pending:
    """One command on its way to a commit, and its reply."""

    __slots__ = ("command", "group", "reply")

    def __init__(self, command: Command[object], group: Group) -> None:
        self.command = command
        self.group = group
        self.reply: object = None  # of the command, or its error


class Group:
    """The commands one caller waits for together."""

    __slots__ = ("future", "pendings", "remaining")

    def __init__(self, commands: Sequence[Command[object]]) -> None:
        self.pendings = [Pending(command, self) for command in commands]
        self.remaining = len(self.pendings)
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_done(self) -> None:
        """Count a finished command; the last one wakes the caller."""
        self.remaining -= 1
        if self.remaining == 0 and not self.future.done():
            self.future.set_result(None)

    def replies(self) -> list[object]:
        """Each command's reply, refusals as error objects."""
        return [
            reply.to_error() if isinstance(reply := pending.reply, Refused) else reply
            for pending in self.pendings
        ]


class Batcher:
    """Gathers waiting commands and commits them, a few batches at a time."""

    def __init__(self, commit: Commit, *, batch_max: int, in_flight: int) -> None:
        self._commit = commit
        self._batch_max = batch_max
        self._in_flight = in_flight
        self._waiting: deque[Pending] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, commands: Sequence[Command[R]]) -> list[R | FlowFabricError]:
        """The reply, or the error object, for each command."""
        if not commands:
            return []
        group = Group(commands)
        self._waiting.extend(group.pendings)
        self._start()
        await group.future
        return cast("list[R | FlowFabricError]", group.replies())

    async def run_one(self, command: Command[R]) -> R:
        """The reply of one command; its refusal is raised."""
        reply = (await self.run((command,)))[0]
        if isinstance(reply, FlowFabricError):
            raise reply
        return reply

    async def idle(self) -> None:
        """Return when nothing is in flight."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        if self._waiting and len(self._running) < self._in_flight:
            task = asyncio.create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Commands may have come between the task's last check and its end."""
        self._running.discard(task)
        self._start()

    async def _work(self) -> None:
        while self._waiting:
            count = min(self._batch_max, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            await self._finish(batch)

    async def _finish(self, batch: list[Pending]) -> None:
        """Commit a batch; a failure that one command may have caused is narrowed down to it."""
        try:
            await self._commit(batch)
        except (FlowFabricError, Exception) as error:  # noqa: BLE001 - handed to each caller
            if len(batch) > 1 and _may_be_ones_fault(error):
                half = len(batch) // 2
                await self._finish(batch[:half])
                await self._finish(batch[half:])
                return
            for pending in batch:
                pending.reply = as_error(error)
        for pending in batch:
            pending.group.one_done()


def _may_be_ones_fault(error: Exception) -> bool:
    """Whether nothing was written, and fewer commands at once may succeed: also where the store
    itself refuses a write, but not while it is unreachable."""
    return not isinstance(error, StoreError) or trouble(error) is Trouble.UNCLEAR


def as_error(error: Exception) -> FlowFabricError:
    """An exception, whatever it is, as one of our errors."""
    if isinstance(error, FlowFabricError):
        return error
    wrapped = StoreError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
