"""How often a caller may ask: each server counts for itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flowfabric.clock import monotonic
from flowfabric.errors import RateLimited
from flowfabric.server.access.caller import Caller

if TYPE_CHECKING:
    from flowfabric.server.settings import ServerSettings

_REMEMBERED: Final = 10_000  # callers of each kind
_MINUTE_S: Final = 60.0


class Bucket:
    """Drops for each key: one is taken by each request, and they come back with time."""

    def __init__(self, per_s: float, most: float, now: Callable[[], float]) -> None:
        self._per_s = per_s
        self._most = most
        self._now = now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def left(self, key: str) -> float:
        """The drops that there are."""
        drops, at = self._left.get(key, (self._most, 0.0))
        return min(self._most, drops + (self._now() - at) * self._per_s)

    def take(self, key: str) -> None:
        """One drop, if there is one."""
        self._left[key] = (max(0.0, self.left(key) - 1), self._now())
        self._left.move_to_end(key)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    def wait_ms(self, key: str) -> int:
        """How long until there is a drop; 0 if there is one."""
        missing = 1 - self.left(key)
        return 0 if missing <= 0 else max(1, round(missing / self._per_s * 1_000))


class Rates:
    """The limits of one server."""

    def __init__(self, settings: ServerSettings, now: Callable[[], float] = monotonic) -> None:
        self._of_token = Bucket(settings.rate_token, 2 * settings.rate_token, now)
        self._of_address = Bucket(settings.rate_address, 2 * settings.rate_address, now)
        self._of_expensive = Bucket(settings.rate_expensive, 2 * settings.rate_expensive, now)
        self._failures = Bucket(settings.rate_login / _MINUTE_S, settings.rate_login, now)

    def count(self, caller: Caller, address: str) -> None:
        """Refuse a caller that asks too often."""
        if caller.actor is not None:
            _take(self._of_token, caller.actor, "token")
        elif not caller.is_known:
            _take(self._of_address, address, "address")

    def count_expensive(self, caller: Caller, address: str) -> None:
        """Refuse a caller that asks too often for what reads much."""
        _take(self._of_expensive, caller.actor or address, "expensive")

    def require_room(self, address: str) -> None:
        """Refuse an address that has asked too often without a token."""
        if wait_ms := self._of_address.wait_ms(address):
            raise RateLimited("this caller asks too often", retry_after_ms=wait_ms)

    def require_trials(self, address: str) -> None:
        """Refuse an address from which too many tokens were tried that open nothing."""
        if wait_ms := self._failures.wait_ms(address):
            detail = "too many tokens that open nothing"
            raise RateLimited(detail, retry_after_ms=wait_ms, rate="login")

    def failed(self, address: str) -> None:
        """A token opened nothing."""
        self._failures.take(address)


def _take(bucket: Bucket, key: str, rate: str) -> None:
    """One drop; `rate`: the setting that the refusal names."""
    if wait_ms := bucket.wait_ms(key):
        detail = f"this caller asks too often (rate_{rate})"
        raise RateLimited(detail, retry_after_ms=wait_ms, rate=rate)
    bucket.take(key)
