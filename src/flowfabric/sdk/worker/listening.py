"""A worker as a consumer: it calls the fabric's handlers of events, each group in a task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import CursorExpired, DeliveryExpired, NotFound
from flowfabric.model.feed import Event
from flowfabric.model.group import Delivery
from flowfabric.sdk.listening import Listener
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.trouble import may_pass

_LOGGER = logging.getLogger("flowfabric.worker")
_AT_ONCE: Final = 100  # events in one delivery
_LOST_S: Final = 60.0  # before a group that has lost events is asked for again


class Listening:
    """All handlers of events of one worker."""

    def __init__(
        self,
        engine: EngineBackend,
        listeners: Iterable[Listener],
        consumer: str,
        outage: Outage,
        stopping: asyncio.Event,
    ) -> None:
        """`stopping`: begin with no further event."""
        self._ears = [Ear(engine, each, consumer, outage, stopping) for each in listeners]

    async def join(self) -> None:
        """Enter every group, or make it; wrong arguments of `@ff.on` are found here."""
        for ear in self._ears:
            await ear.join()

    async def run(self) -> None:
        """Call handlers until stopped."""
        await asyncio.gather(*(ear.run() for ear in self._ears))

    async def finished(self) -> None:
        """Every handler that was under way when it was stopped has ended."""
        for ear in self._ears:
            await ear.idle.wait()


class Ear:
    """One handler."""

    def __init__(
        self,
        engine: EngineBackend,
        listener: Listener,
        consumer: str,
        outage: Outage,
        stopping: asyncio.Event,
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._consumer = consumer
        self._patience = Patience(outage)
        self._stopping = stopping
        self.idle = asyncio.Event()
        self.idle.set()

    async def run(self) -> None:
        """Take deliveries and handle them; an outage of the store is waited out."""
        while not self._stopping.is_set():
            try:
                taken = await self._engine.read_group(
                    group_id=self._listener.group, consumer=self._consumer, limit=_AT_ONCE
                )
                self._patience.reset()
                if taken.events:
                    await self._handle(taken)
            except NotFound:  # it was deleted
                await self.join()
            except CursorExpired as error:
                _LOGGER.error(
                    "%s lost events and handles none until it is moved: ff groups reset %s. %s",
                    *(self._listener.group, self._listener.group, error),
                )
                await self._pause(_LOST_S)
            except Exception as error:
                if may_pass(error):
                    await self._patience.pause(error, unless=self._stopping)
                    continue
                _LOGGER.error("%s cannot be read", self._listener.group, exc_info=error)
                await self._pause(_LOST_S)

    async def join(self) -> None:
        """Enter the group, or make it."""
        listener = self._listener
        while not self._stopping.is_set():
            try:
                await self._engine.create_consumer_group(
                    group_id=listener.group,
                    kinds=(listener.kind,),
                    filter=listener.filter,
                    after=listener.after,
                )
            except Exception as error:
                if not may_pass(error):
                    raise
                await self._patience.pause(error, unless=self._stopping)
            else:
                self._patience.reset()
                return

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    # --- handling ------------------------------------------------------------------------------

    async def _handle(self, taken: Delivery) -> None:
        """What was handled is acknowledged, whatever comes after it."""
        handled = _Handled(self._engine, taken, self._consumer)
        keeping = asyncio.create_task(self._keep(handled))
        self.idle.clear()
        try:
            await self._call_with_each(taken, handled)
            await handled.acknowledge()
        finally:
            self.idle.set()
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    async def _call_with_each(self, taken: Delivery, handled: _Handled) -> None:
        """One event after the other, until one fails that is tried again."""
        for at, event in enumerate(taken.events):
            if self._stopping.is_set() or handled.is_lost:
                return
            error = await self._call(event)
            if error is None:
                handled.add(event)
            elif at == 0 and taken.tries >= self._listener.tries:
                self._tell(event, "and is given up", error)
                handled.add(event, is_dropped=True)
            else:
                self._tell(event, "and is tried again", error)
                return

    async def _call(self, event: Event) -> Exception | None:
        """What the handler raised."""
        function = self._listener.function
        try:
            if self._listener.is_async:
                await function(event)
            else:
                await asyncio.to_thread(function, event)
        except Exception as error:  # noqa: BLE001 - whatever a handler raises
            return error
        return None

    def _tell(self, event: Event, what: str, error: Exception) -> None:
        _LOGGER.error(
            "%s failed with the %s event of %s %s",
            *(self._listener.group, event.event_type, event.subject, what),
            exc_info=error,
        )

    async def _keep(self, handled: _Handled) -> None:
        """Say that this goes on, long before the delivery goes to another consumer."""
        while True:
            await asyncio.sleep(limits.REDELIVER_MS_DEFAULT / 3000)
            try:
                await handled.extend()
            except Exception as error:
                if not may_pass(error):
                    raise


class _Handled:
    """How far a delivery was handled."""

    def __init__(self, engine: EngineBackend, taken: Delivery, consumer: str) -> None:
        self._engine = engine
        self._taken = taken
        self._consumer = consumer
        self._last = ""
        self._count = 0
        self._dropped = 0
        self.is_lost = False  # another consumer has it

    def add(self, event: Event, *, is_dropped: bool = False) -> None:
        """The next event was handled, or given up."""
        self._last = event.cursor
        self._count += 1
        self._dropped += is_dropped

    async def extend(self) -> None:
        """Acknowledge what was handled and keep the rest."""
        await self._ack(self._last)

    async def acknowledge(self) -> None:
        """Acknowledge what was handled; the rest is handed out again in time."""
        if self._count:
            is_whole = self._count == len(self._taken.events)
            await self._ack(None if is_whole else self._last)

    async def _ack(self, up_to: str | None) -> None:
        if self.is_lost:
            return
        dropped, self._dropped = self._dropped, 0
        try:
            await self._engine.ack_group(
                group_id=self._taken.group_id,
                consumer=self._consumer,
                delivery=self._taken.delivery,
                up_to=up_to,
                dropped=dropped,
            )
        except (DeliveryExpired, NotFound):
            self.is_lost = True
        except BaseException:
            self._dropped += dropped
            raise
