"""What a server measures: each answered request, and what its engine and its store tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.figures import Figures
from flowfabric.metrics.registry import Registry

if TYPE_CHECKING:
    from flowfabric.server.routes.route import Route
    from flowfabric.server.service import Service


class Metering:
    """The metrics of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.registry = Registry()
        self._requests = self.registry.counter("ff_http_requests_total")
        self._seconds = self.registry.histogram("ff_http_request_seconds")
        self._figures = Figures(service.engine, self.registry)

    async def start(self) -> None:
        """The engine is started: measure it from now on."""
        self._service.engine.measure(self.registry)
        await self._figures.start()

    async def stop(self) -> None:
        """Read the store no more."""
        await self._figures.stop()

    async def look(self) -> None:
        """Read the store now."""
        await self._figures.look()

    def answered(self, method: str, route: Route | None, status: int, seconds: float) -> None:
        """One request. Its path counts as the template of its route."""
        path = "none" if route is None else route.path
        method = method if route is not None else "other"
        self._requests.add((path, method, f"{status // 100}xx"))
        if route is None or not route.is_health:
            self._seconds.observe(seconds, (path, method))

    def text(self) -> bytes:
        """A scrape."""
        service, show = self._service, self.registry.counter
        show("ff_http_in_flight").show({(): service.in_flight})
        show("ff_http_waits").show({(): service.waits})
        show("ff_http_streams").show({(): service.streams})
        show("ff_loop_lag_seconds").show({(): service.pulse.lag_s()})
        return self.registry.text().encode()
