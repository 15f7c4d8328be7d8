"""One typed method per operation, written by tools/backend_methods.py from requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from flowfabric.api.leases import (
    Cancel,
    Claim,
    Complete,
    CompleteExecution,
    Delay,
    Fail,
    FailExecution,
    Progress,
    Renew,
    RenewLease,
)
from flowfabric.api.operation import Request
from flowfabric.api.words import FailureClassGiven
from flowfabric.model.attempt import FailureClass
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.results import (
    Cancelled,
    Claimed,
    Completed,
    Delayed,
    LeaseRenewal,
    Progressed,
    RetryScheduled,
    TerminalFailed,
)

R = TypeVar("R")


class Methods(ABC):
    """Every operation under its name: each method makes a request and asks for it."""

    @abstractmethod
    async def call(self, request: Request[R]) -> R:
        """The answer to one request; a refusal is raised."""

    # --- leases ---------------------------------------------------------------------------------

    async def claim(
        self,
        *,
        lanes: Sequence[str],
        worker_id: str,
        worker_instance_id: str,
        capabilities: Sequence[str] = (),
        kinds: Sequence[str] | None = None,
        limit: int = 1,
        lease_ttl_ms: int | None = None,
        namespace: str | None = None,
        namespaces: Sequence[str] | None = None,
        max_wait_ms: int = 0,
    ) -> list[Claimed]:
        """Up to `limit` executions over several lanes in one transaction, best first.

        Waits up to `max_wait_ms` when there is none. Only work this worker can run is looked at.
        Lanes get their parts by weight, and the tenants of `namespaces` equal parts of each lane.
        """
        return await self.call(
            Claim(
                lanes=lanes,
                worker_id=worker_id,
                worker_instance_id=worker_instance_id,
                capabilities=capabilities,
                kinds=kinds,
                limit=limit,
                lease_ttl_ms=lease_ttl_ms,
                namespace=namespace,
                namespaces=namespaces,
                max_wait_ms=max_wait_ms,
            )
        )

    async def renew(self, handle: Handle) -> LeaseRenewal:
        """Extend the lease by its own length."""
        return await self.call(Renew(handle=handle))

    async def renew_lease(
        self, *, execution_id: str, fence: Fence | None, lease_ttl_ms: int
    ) -> LeaseRenewal:
        """Extend a lease named by its fence."""
        return await self.call(
            RenewLease(execution_id=execution_id, fence=fence, lease_ttl_ms=lease_ttl_ms)
        )

    async def progress(
        self, handle: Handle, *, percent: int | None = None, message: str | None = None
    ) -> Progressed:
        """How far the work is: 0 to 100, and a line of text; what is absent stays."""
        return await self.call(Progress(handle=handle, percent=percent, message=message))

    async def delay(self, handle: Handle, *, delay_until: int) -> Delayed:
        """Park the attempt until an instant; the same attempt is claimed again then."""
        return await self.call(Delay(handle=handle, delay_until=delay_until))

    async def complete(
        self, handle: Handle, *, result: bytes | None = None, result_encoding: str | None = None
    ) -> Completed:
        """The work succeeded. Repeating the call with the same handle answers the same."""
        return await self.call(
            Complete(handle=handle, result=result, result_encoding=result_encoding)
        )

    async def complete_execution(
        self,
        *,
        execution_id: str,
        source: str,
        fence: Fence | None = None,
        result_payload: bytes | None = None,
        result_encoding: str | None = None,
    ) -> Completed:
        """Complete by fence, or without one as `source="operator_override"`."""
        return await self.call(
            CompleteExecution(
                execution_id=execution_id,
                source=source,
                fence=fence,
                result_payload=result_payload,
                result_encoding=result_encoding,
            )
        )

    async def fail(
        self,
        handle: Handle,
        *,
        reason: str,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> RetryScheduled | TerminalFailed:
        """The attempt failed; the policy decides whether another follows."""
        return await self.call(
            Fail(
                handle=handle,
                reason=reason,
                failure_class=failure_class,
                category=category,
                retry_after_ms=retry_after_ms,
            )
        )

    async def fail_execution(
        self,
        *,
        execution_id: str,
        source: str,
        failure_reason: str,
        fence: Fence | None = None,
        failure_class: FailureClassGiven = FailureClass.TRANSIENT,
        failure_category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> RetryScheduled | TerminalFailed:
        """Fail by fence, or without one as `source="operator_override"`."""
        return await self.call(
            FailExecution(
                execution_id=execution_id,
                source=source,
                failure_reason=failure_reason,
                fence=fence,
                failure_class=failure_class,
                failure_category=failure_category,
                retry_after_ms=retry_after_ms,
            )
        )

    async def cancel(self, handle: Handle, *, reason: str) -> Cancelled:
        """The owner gives up for good."""
        return await self.call(Cancel(handle=handle, reason=reason))
