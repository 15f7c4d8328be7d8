"""What the calls of a context need of the worker that runs its handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from flowfabric.api.backend import EngineBackend
from flowfabric.model.results import Claimed
from flowfabric.sdk.journal.journal import Journal

T = TypeVar("T")


class Asker(Protocol):
    """An owner that calls the engine for an execution."""

    @property
    def claimed(self) -> Claimed:
        """The execution and its lease."""
        ...

    async def ask(self, operation: Callable[[EngineBackend], Awaitable[T]]) -> T:
        """An engine call under the lease; outages are waited out, a lost lease ends the handler."""
        ...

    def wait_for(self, operation: Any) -> Any:
        """Run a coroutine on the worker's loop and block this thread for its result."""
        ...

    async def settle(self) -> None:
        """Return when everything recorded so far is durable: what follows may depend on it."""
        ...

    @property
    def journal(self) -> Journal:
        """What the handler has done and does."""
        ...
