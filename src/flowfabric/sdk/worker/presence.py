"""The worker's entry in the registry: made at the start, kept alive, removed at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from flowfabric.api.backend import EngineBackend
from flowfabric.config import VERSION
from flowfabric.model.results import NotRegistered
from flowfabric.model.shown import mask
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.worker.settings import Settings

_LOGGER = logging.getLogger("flowfabric.worker")
_LIVENESS_MS: Final = 30_000
_BEATS: Final = 3


class Presence:
    """Registers the worker with its capabilities, and reads the store's clock."""

    def __init__(
        self,
        engine: EngineBackend,
        settings: Settings,
        outage: Outage,
        clock: Callable[[int], None],
        busy: Callable[[], int],
        drained: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._namespaces = settings.namespaces or (None,)  # an entry for each tenant it serves
        self._patience = Patience(outage)
        self._clock = clock
        self._busy = busy
        self._drained = drained

    async def run(self) -> None:
        """Register, then beat until cancelled."""
        registered = False
        while True:
            try:
                registered = await self._beat() if registered else await self._register()
                self._patience.reset()
            except Exception as error:  # noqa: BLE001 - the entry is worth another try, always
                await self._patience.pause(error)
                continue
            if registered:
                await asyncio.sleep(_LIVENESS_MS / 1000 / _BEATS)

    async def leave(self) -> None:
        """Remove the worker from the registry; if that fails, its entry expires."""
        try:
            for namespace in self._namespaces:
                await self._engine.leave_worker(
                    worker_instance_id=self._settings.instance_id, namespace=namespace
                )
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            _LOGGER.info("could not sign off: %s", mask(str(error)))

    async def _register(self) -> bool:
        settings = self._settings
        for namespace in self._namespaces:
            await self._engine.register_worker(
                worker_id=settings.worker_id,
                worker_instance_id=settings.instance_id,
                namespace=namespace,
                lanes=settings.lanes,
                capabilities=settings.capabilities,
                kinds=settings.kinds,
                liveness_ttl_ms=_LIVENESS_MS,
                host=settings.host,
                version=VERSION,
                concurrency=settings.concurrency,
            )
        self._clock(await self._engine.server_time_ms())
        return True

    async def _beat(self) -> bool:
        for namespace in self._namespaces:
            answer = await self._engine.heartbeat_worker(
                worker_instance_id=self._settings.instance_id,
                namespace=namespace,
                busy=self._busy(),
            )
            if isinstance(answer, NotRegistered):
                return False
            if answer.is_draining:
                self._drained()
        self._clock(await self._engine.server_time_ms())
        return True
