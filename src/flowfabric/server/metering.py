"""What a server measures: each answered request, and what its engine and its store tell."""

from __future__ import annotations

from flowfabric.api.backend import EngineBackend
from flowfabric.figures import Figures
from flowfabric.metrics.registry import Registry


class Metering:
    """The metrics of one server."""

    def __init__(self, engine: EngineBackend) -> None:
        self._engine = engine
        self.registry = Registry()
        self._requests = self.registry.counter("ff_http_requests_total")
        self._seconds = self.registry.histogram("ff_http_request_seconds")
        self.figures = Figures(engine, self.registry)

    async def start(self) -> None:
        """The engine is started: measure it from now on."""
        self._engine.measure(self.registry)
        await self.figures.start()

    async def stop(self) -> None:
        """Read the store no more."""
        await self.figures.stop()

    def answered(self, method: str, path: str | None, status: int, seconds: float) -> None:
        """One request. `path`: the template of its route, so that no id is a label."""
        if path is None:
            method = path = "none"
        self._requests.add((path, method, f"{status // 100}xx"))
        self._seconds.observe(seconds, (path, method))

    def text(self, *, in_flight: int, waits: int, streams: int, lag_s: float) -> bytes:
        """A scrape."""
        show = self.registry.counter
        show("ff_http_in_flight").show({(): in_flight})
        show("ff_http_waits").show({(): waits})
        show("ff_http_streams").show({(): streams})
        show("ff_loop_lag_seconds").show({(): lag_s})
        return self.registry.text().encode()
