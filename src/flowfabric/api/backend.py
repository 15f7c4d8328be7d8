"""The waist: all that the SDK, the CLI and a server know of an engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

from flowfabric.api.hints import Bell
from flowfabric.api.journal import Checkpoint
from flowfabric.api.leases import Complete, Fail, Renew
from flowfabric.api.methods import Methods
from flowfabric.api.operation import Request
from flowfabric.errors import FlowFabricError
from flowfabric.metrics.registry import Registry
from flowfabric.model.checks import check_list
from flowfabric.model.handle import Handle
from flowfabric.model.journal import Checkpointed
from flowfabric.model.results import (
    BackendCapabilities,
    Completed,
    LeaseRenewal,
    RetryScheduled,
    TerminalFailed,
)

R = TypeVar("R")


class LocalWorker(Protocol):
    """A worker as the background loop of its own process sees it."""

    @property
    def instance_id(self) -> str:
        """The name its leases carry."""
        ...

    async def catch_up(self) -> None:
        """After a standstill: send what is finished and renew what is due. It never raises, and
        takes no longer than a moment."""
        ...


class EngineBackend(Methods):
    """An engine, wherever it runs.

    >>> await backend.complete(handle, result=b"1")  # doctest: +SKIP
    Completed(execution_id='{fp:7}:…', …)
    >>> await backend.call(Complete(handle=handle, result=b"1"))  # doctest: +SKIP
    Completed(execution_id='{fp:7}:…', …)
    """

    @abstractmethod
    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The answer, or the error object, for each request. They share commits where they can,
        each decided after those before it; one that is refused disturbs no other. A claim shares
        one if it asks for no wait."""

    @abstractmethod
    def listen(self, topics: Iterable[str]) -> AbstractContextManager[Bell]:
        """An event that is set when one of the topics is hinted at (`api.hints`).

        Take it before you look, so that nothing happens between the look and the wait; and look now
        and then without a hint, too.
        """

    @abstractmethod
    def follow(self, told: Callable[[Mapping[str, int]], None]) -> Callable[[], None]:
        """Call this with the topics of every hint, until the returned function is called."""

    @abstractmethod
    def again(self) -> EngineBackend:
        """The same engine for another event loop, for example in another thread; not started."""

    def is_same_as(self, other: EngineBackend) -> bool:
        """Whether calls of the other one come to this very engine."""
        return other is self

    def present(self, worker: LocalWorker) -> AbstractContextManager[None]:
        """The worker is at work in this process while the block runs. An engine in the process lets
        it catch up before anything of its is found overdue; an engine elsewhere has no use for it.
        """
        return nullcontext()

    def measure(self, registry: Registry) -> None:
        """Count into these metrics what an engine in this process does; one elsewhere is measured
        there."""

    @property
    def is_remote(self) -> bool:
        """Whether it is behind a network, where an answer may be lost and a poll is dear."""
        return False

    @property
    @abstractmethod
    def home_namespace(self) -> str:
        """The tenant of calls that name none."""

    @abstractmethod
    def at_home_in(self, namespace: str) -> EngineBackend:
        """This very engine for calls of another tenant: nothing of it is opened or closed."""

    @abstractmethod
    def backend_label(self) -> str:
        """memory, sqlite or postgres."""

    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """Which operations this engine supports."""

    @abstractmethod
    async def start(self, *, migrate: bool = True) -> None:
        """Connect, and bring the schema up to date if asked."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is in flight and disconnect."""

    # --- lists of one kind ---------------------------------------------------------------------

    async def renew_many(
        self, handles: Sequence[Handle | Renew]
    ) -> list[LeaseRenewal | FlowFabricError]:
        """Extend many leases in one commit."""
        several = check_list(handles, field="handles")
        return await self.call_many(
            [each if isinstance(each, Renew) else Renew(handle=each) for each in several]
        )

    async def checkpoint_many(
        self, requests: Sequence[Checkpoint]
    ) -> list[Checkpointed | FlowFabricError]:
        """Entries of many journals in one commit."""
        return await self.call_many(requests)

    async def complete_many(
        self, requests: Sequence[Complete]
    ) -> list[Completed | FlowFabricError]:
        """Many successes in one commit."""
        return await self.call_many(requests)

    async def fail_many(
        self, requests: Sequence[Fail]
    ) -> list[RetryScheduled | TerminalFailed | FlowFabricError]:
        """Many failures in one commit."""
        return await self.call_many(requests)
