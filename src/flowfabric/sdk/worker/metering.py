"""What a worker measures, and the port on which it tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from flowfabric.api.backend import EngineBackend
from flowfabric.figures import Figures
from flowfabric.metrics.listener import Listener
from flowfabric.metrics.pulse import Pulse
from flowfabric.metrics.registry import Registry
from flowfabric.sdk.worker.settings import Settings


class WorkerMetering:
    """The metrics of one worker. What the store knows a worker of a server leaves to the server."""

    def __init__(
        self, engine: EngineBackend, settings: Settings, busy: Callable[[], Counter[str]]
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._busy = busy
        self._registry = Registry()
        self._pulse = Pulse()
        is_remote = engine.backend_label() == "remote"
        self._figures = None if is_remote else Figures(engine, self._registry)
        self._listener = Listener(settings.metrics or "", self._text)

    @property
    def address(self) -> str:
        """Where it tells."""
        return self._listener.address

    async def start(self) -> None:
        """Measure and listen from now on."""
        await self._listener.start()
        self._pulse.start()
        self._engine.measure(self._registry)
        if self._figures is not None:
            await self._figures.start()

    async def stop(self) -> None:
        """Tell no more."""
        await self._listener.stop()
        self._pulse.stop()
        if self._figures is not None:
            await self._figures.stop()

    def _text(self) -> str:
        show, settings, busy = self._registry.counter, self._settings, self._busy()
        show("ff_worker_slots").show({(lane,): settings.concurrency for lane in settings.lanes})
        show("ff_worker_slots_busy").show({(lane,): busy[lane] for lane in settings.lanes})
        show("ff_loop_lag_seconds").show({(): self._pulse.lag_s()})
        return self._registry.text()
