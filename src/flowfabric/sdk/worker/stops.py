"""Hears from a server which leases are lost, and whether the worker should end.

An engine in this process hints at the ends of executions itself. Elsewhere one request waits for
that on a connection of its own, apart from claims: also a worker without a free slot hears it.
"""

from __future__ import annotations

from collections.abc import Callable

from flowfabric.api.backend import EngineBackend
from flowfabric.model.worker import HeldLease
from flowfabric.sdk.outage import Outage, Patience
from flowfabric.sdk.worker.leases import Leases
from flowfabric.sdk.worker.settings import Settings
from flowfabric.trouble import may_pass

_WAIT_MS = 20_000


class Stops:
    """The one wait for all leases of a worker."""

    def __init__(
        self,
        engine: EngineBackend,
        settings: Settings,
        leases: Leases,
        outage: Outage,
        drained: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._leases = leases
        self._patience = Patience(outage)
        self._drained = drained

    async def run(self) -> None:
        """Ask again and again until cancelled. What was told is not asked for again: its renewal is
        tried until it is answered."""
        namespaces = self._settings.namespaces
        told: set[tuple[str, int]] = set()
        while True:
            held = [
                HeldLease(
                    execution_id=each.claimed.execution_id, lease_epoch=each.claimed.lease_epoch
                )
                for each in self._leases
                if not (each.is_finished or each.is_stopped)
            ]
            told &= {(each.execution_id, each.lease_epoch) for each in held}
            held = [each for each in held if (each.execution_id, each.lease_epoch) not in told]
            try:
                heard = await self._engine.wait_for_stops(
                    worker_instance_id=self._settings.instance_id,
                    held=held,
                    namespace=namespaces[0] if namespaces else None,
                    wait_ms=_WAIT_MS,
                )
            except Exception as error:
                if not may_pass(error):
                    raise
                await self._patience.pause(error)
                continue
            self._patience.reset()
            for stop in heard.stops:
                self._leases.check(stop.execution_id, stop.lease_epoch)
                told.add((stop.execution_id, stop.lease_epoch))
            if heard.is_draining:
                self._drained()
