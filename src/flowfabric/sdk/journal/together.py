"""What a handler asks for in one turn of the event loop, sent together."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from flowfabric.api.executions import NewExecution
from flowfabric.model.record import to_json

A = TypeVar("A")
_ENTRIES_AT_ONCE: Final = 100  # entries of one call to the engine
_DIGEST_BYTES: Final = 8


class Asking(Protocol):
    """One call of a handler for new executions: it has one entry."""

    @property
    def requests(self) -> Sequence[NewExecution]:
        """The executions."""
        ...


C = TypeVar("C", bound=Asking)


class Together(Generic[C, A]):
    """Calls of one turn share a commit. Each gets the answers to its own requests."""

    __slots__ = ("_at_once", "_may_part", "_record", "_sending", "_waiting")

    def __init__(
        self,
        record: Callable[[Sequence[C]], Awaitable[Sequence[A]]],
        *,
        at_once: int,
        may_part: Callable[[BaseException], bool] = lambda error: False,
    ) -> None:
        self._record = record  # some calls; the answers to all their requests, in order
        self._may_part = may_part  # whether an error is that of one call, and not of its neighbours
        self._at_once = at_once  # requests of one call to the engine
        self._waiting: list[tuple[C, asyncio.Future[Sequence[A]]]] = []
        self._sending: set[asyncio.Task[None]] = set()

    def put(self, call: C) -> asyncio.Future[Sequence[A]]:
        """What becomes of a call. On the loop's own thread."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._begin)
        told: asyncio.Future[Sequence[A]] = loop.create_future()
        self._waiting.append((call, told))
        return told

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        task = asyncio.get_running_loop().create_task(self._send(waiting))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, waiting: Sequence[tuple[C, asyncio.Future[Sequence[A]]]]) -> None:
        for part in self._parts(waiting):
            try:
                answers = await self._record([call for call, _ in part])
            except BaseException as error:  # noqa: BLE001 - it belongs to the handler
                if len(part) > 1 and self._may_part(error):
                    for each in part:
                        await self._send([each])
                    continue
                for _, told in part:
                    if not told.done():
                        told.set_exception(error)
            else:
                for call, told in part:
                    count = len(call.requests)
                    own, answers = answers[:count], answers[count:]
                    if not told.done():
                        told.set_result(own)

    def _parts(
        self, waiting: Sequence[tuple[C, asyncio.Future[Sequence[A]]]]
    ) -> list[list[tuple[C, asyncio.Future[Sequence[A]]]]]:
        """What goes into one call to the engine each."""
        parts: list[list[tuple[C, asyncio.Future[Sequence[A]]]]] = []
        size = self._at_once
        for call, told in waiting:
            count = len(call.requests)
            if size + count > self._at_once or len(parts[-1]) >= _ENTRIES_AT_ONCE:
                parts.append([])
                size = 0
            parts[-1].append((call, told))
            size += count
        return parts


def digest_of(requests: Iterable[NewExecution], *more: Any) -> bytes:
    """Of what is to be done, without its options."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for each in requests:
        digest.update(to_json([each.execution_kind, each.input_payload]))
    if more:
        digest.update(to_json(more))
    return digest.digest()
