"""Wake-up hints inside one process; a store that can reach other processes builds on this."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Callback = Callable[[Mapping[str, int]], None]


class LocalHints:
    """Callbacks in this process, called on the event loop that publishes."""

    def __init__(self) -> None:
        self._callbacks: list[Callback] = []

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Add a listener; call the result to remove it."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    def publish(self, topics: Mapping[str, int]) -> None:
        """Tell every listener of this process."""
        self.deliver(topics)

    def deliver(self, topics: Mapping[str, int]) -> None:
        """Call the listeners."""
        for callback in tuple(self._callbacks):
            callback(topics)
