"""What an engine measures of itself where it is asked to: by commit and by read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from flowfabric.clock import stopwatch
from flowfabric.engine.batch import Pending
from flowfabric.errors import LeaseExpired, LeaseRevoked, StaleLease
from flowfabric.kernel.decision import Refused
from flowfabric.kernel.execution.own import Renew
from flowfabric.metrics.registry import Registry

T = TypeVar("T")
WRITE: Final = ("write",)
READ: Final = ("read",)
_STALE: Final = frozenset((StaleLease, LeaseExpired, LeaseRevoked))
_RENEWED: Final = ("renewed",)
_REFUSED: Final = ("refused",)


class EngineMeter:
    """The metrics of one engine."""

    def __init__(self, registry: Registry) -> None:
        self._seconds = registry.histogram("ff_store_seconds")
        self._errors = registry.counter("ff_store_errors_total")
        self._conflicts = registry.counter("ff_conflicts_total")
        self._sizes = registry.histogram("ff_batch_size")
        self._renewals = registry.counter("ff_lease_renewals_total")
        self._stale = registry.counter("ff_stale_writes_refused_total")
        self._denied = registry.counter("ff_admission_denied_total")
        self._pool = registry.histogram("ff_pool_wait_seconds")

    async def timed(self, labels: tuple[str, ...], work: Callable[[], Awaitable[T]]) -> T:
        """The work's result, and how long it took."""
        began = stopwatch()
        try:
            return await work()
        except Exception:
            self._errors.add(labels)
            raise
        finally:
            self._seconds.observe(stopwatch() - began, labels)

    def collided(self) -> None:
        """A transaction has to be run again."""
        self._conflicts.add()

    def waited(self, seconds: float) -> None:
        """A connection of the pool was waited for."""
        self._pool.observe(seconds)

    def committed(self, batch: Sequence[Pending]) -> None:
        """These commands shared a commit."""
        self._sizes.observe(len(batch))
        renewed = 0
        for pending in batch:
            reply = pending.reply
            is_renewal = type(pending.command) is Renew
            if type(reply) is Refused:
                if is_renewal:
                    self._renewals.add(_REFUSED)
                elif reply.error in _STALE:
                    self._stale.add((reply.error.code,))
            elif is_renewal:
                renewed += 1
        if renewed:
            self._renewals.add(_RENEWED, renewed)

    def denied(self, limits: Iterable[str]) -> None:
        """Budgets or quotas that did not admit a start."""
        for each in limits:
            self._denied.add((each.partition("\x1f")[0],))  # a quota without its key
