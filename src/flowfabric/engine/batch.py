"""Coalescing: while one commit is in flight, the next batch gathers.

There is no timer: an idle engine commits a single call at once; a busy one shares each commit among
all waiting calls. Every caller gets its own reply or its own error, and one bad command never
disturbs its neighbours.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from flowfabric.engine.acts import Act, act_now
from flowfabric.errors import FlowFabricError, StoreError
from flowfabric.kernel.command import Command
from flowfabric.kernel.decision import Refused
from flowfabric.trouble import Trouble, trouble

R = TypeVar("R")
Commit = Callable[[Sequence["Pending"]], Awaitable[None]]


class Pending:
    """One command on its way to a commit, and its reply."""

    __slots__ = ("act", "command", "group", "reply")

    def __init__(self, command: Command[object], group: Group, act: Act | None) -> None:
        self.command = command
        self.group = group
        self.act = act  # that it is a part of
        self.reply: object = None  # of the command, or its error

    def answer(self) -> Any:
        """The reply, a refusal as an error object."""
        reply = self.reply
        return reply.to_error() if isinstance(reply, Refused) else reply


class Group:
    """What one caller waits for: the end of several commands."""

    __slots__ = ("future", "remaining")

    def __init__(self, count: int) -> None:
        self.remaining = count
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def one_done(self) -> None:
        """Count a finished command; the last one wakes the caller."""
        self.remaining -= 1
        if self.remaining == 0 and not self.future.done():
            self.future.set_result(None)


class Batcher:
    """Gathers waiting commands and commits them, a few batches at a time."""

    def __init__(self, commit: Commit, *, batch_max: int, in_flight: int) -> None:
        self._commit = commit
        self._batch_max = batch_max
        self._in_flight = in_flight
        self._waiting: deque[Pending] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._is_looking = False  # a task takes what waits when its turn in the loop comes

    async def run(
        self, commands: Sequence[Command[R]], acts: Sequence[Act | None] = ()
    ) -> list[R | FlowFabricError]:
        """The reply, or the error object, for each command. `acts`: that each is a part of, if not
        all of the present one."""
        if not commands:
            return []
        group = Group(len(commands))
        acts = acts or [act_now()] * len(commands)
        pendings = [
            Pending(command, group, act) for command, act in zip(commands, acts, strict=True)
        ]
        self._waiting.extend(pendings)
        self._start()
        await group.future
        return [pending.answer() for pending in pendings]

    async def run_one(self, command: Command[R]) -> R:
        """The reply of one command; its refusal is raised."""
        group = Group(1)
        pending = Pending(command, group, act_now())
        self._waiting.append(pending)
        self._start()
        await group.future
        answer: R | FlowFabricError = pending.answer()
        if isinstance(answer, FlowFabricError):
            raise answer
        return answer

    async def idle(self) -> None:
        """Return when nothing is in flight."""
        while self._running:
            await asyncio.wait(self._running)

    def _start(self) -> None:
        """Have a task take what waits, unless one is about to or too many commit already."""
        if self._waiting and not self._is_looking and len(self._running) < self._in_flight:
            self._is_looking = True
            task = asyncio.create_task(self._work())
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Commands may have come between the task's last check and its end."""
        self._is_looking = False
        self._running.discard(task)
        self._start()

    async def _work(self) -> None:
        self._is_looking = False
        while self._waiting:
            count = min(self._batch_max, len(self._waiting))
            batch = [self._waiting.popleft() for _ in range(count)]
            self._start()  # for those that one batch has no room for
            await self._finish(batch)
            if not (self._waiting or self._is_looking):
                # Callers that were just answered often have a next command: let them come first.
                self._is_looking = True
                await asyncio.sleep(0)
                self._is_looking = False

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
