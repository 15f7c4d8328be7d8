"""The waist: all that the SDK, the CLI and a server know of an engine."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from flowfabric.api.leases import Complete, Fail, Renew
from flowfabric.api.methods import Methods
from flowfabric.api.operation import Request
from flowfabric.errors import FlowFabricError
from flowfabric.model.checks import check_list
from flowfabric.model.handle import Handle
from flowfabric.model.results import Completed, LeaseRenewal, RetryScheduled, TerminalFailed

R = TypeVar("R")


class EngineBackend(Methods):
    """An engine, wherever it runs.

    >>> await backend.complete(handle, result=b"1")  # doctest: +SKIP
    Completed(execution_id='{fp:7}:…', …)
    >>> await backend.call(Complete(handle=handle, result=b"1"))  # doctest: +SKIP
    Completed(execution_id='{fp:7}:…', …)
    """

    @abstractmethod
    async def call_many(self, requests: Sequence[Request[R]]) -> list[R | FlowFabricError]:
        """The answer, or the error object, for each request. They share commits where they can; one
        that is refused disturbs no other."""

    @abstractmethod
    async def start(self) -> None:
        """Connect."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what is in flight and disconnect."""

    # --- lists of one kind ---------------------------------------------------------------------

    async def renew_many(self, handles: Sequence[Handle]) -> list[LeaseRenewal | FlowFabricError]:
        """Extend many leases in one commit."""
        several = check_list(handles, field="handles")
        return await self.call_many([Renew(handle=handle) for handle in several])

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
