"""Operations of a worker: claim, renew, report, finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from flowfabric import limits
from flowfabric.clock import monotonic
from flowfabric.engine.core import EngineCore
from flowfabric.engine.requests import CompleteRequest, FailRequest, check_payload
from flowfabric.engine.wakeups import lane_topic, wait_event
from flowfabric.errors import FenceRequired, FlowFabricError, InvalidInput, PartialFence
from flowfabric.ids import jitter
from flowfabric.kernel.cancel import Cancel
from flowfabric.kernel.claim import Claim
from flowfabric.kernel.complete import Complete
from flowfabric.kernel.fail import Fail
from flowfabric.kernel.fence import LEASE_HOLDER
from flowfabric.kernel.own import Delay, Progress, Renew
from flowfabric.kernel.routing import Offer
from flowfabric.model.attempt import FailureClass
from flowfabric.model.checks import (
    check_capabilities,
    check_instant,
    check_integer,
    check_lane,
    check_lease_ttl,
    check_list,
    check_name,
    check_text,
    clip_text,
)
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.limit_checks import check_word
from flowfabric.model.results import (
    Cancelled,
    Claimed,
    Completed,
    Delayed,
    FailResult,
    LeaseRenewal,
    RetryScheduled,
    TerminalFailed,
)

T = TypeVar("T")


class Working(EngineCore):
    """What a lease holder calls; lists answer each item with its result or its error."""

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
        command = Claim(
            self.offer(lanes, capabilities, kinds, namespace, namespaces),
            check_name(worker_id, field="worker_id"),
            check_name(worker_instance_id, field="worker_instance_id"),
            self.lease_ttl(lease_ttl_ms),
            check_integer(limit, field="limit", least=1, most=limits.CLAIM_MAX),
            self.store.family,
        )
        check_integer(max_wait_ms, field="max_wait_ms", least=0, most=limits.DURATION_MS_MAX)
        until = monotonic() + max_wait_ms / 1000
        with self.wakeups.listening(map(lane_topic, command.offer.lanes)) as woken:
            while True:
                claimed: list[Claimed] = await self.execute(command)
                pause = min(until - monotonic(), self.config.poll_interval_ms / 1000)
                if claimed or pause <= 0:
                    return claimed
                if not await wait_event(woken, pause) and monotonic() >= until:
                    return []

    def offer(
        self,
        lanes: Sequence[str],
        capabilities: Sequence[str],
        kinds: Sequence[str] | None,
        namespace: str | None,
        namespaces: Sequence[str] | None = None,
    ) -> Offer:
        """What a worker offers, checked."""
        if namespaces is None:
            tenants: tuple[str, ...] = (self.namespace(namespace),)
        else:
            several = check_list(namespaces, field="namespaces")
            if not several or namespace is not None:
                raise InvalidInput(
                    "namespaces: a list of at least one, instead of namespace", field="namespaces"
                )
            tenants = tuple(sorted({self.namespace(each) for each in several}))
        served = {check_lane(lane, field="lanes") for lane in check_list(lanes, field="lanes")}
        if not served:
            raise InvalidInput("lanes: name at least one", field="lanes")
        checked_kinds = None
        if kinds is not None:
            named = check_list(kinds, field="kinds")
            checked_kinds = tuple(sorted({check_name(kind, field="kinds") for kind in named}))
        return Offer(
            tenants,
            tuple(sorted(served)),
            check_capabilities(capabilities, field="capabilities"),
            checked_kinds,
        )

    def lease_ttl(self, lease_ttl_ms: int | None) -> int:
        """The lease length of a call."""
        return self.config.lease_ttl_ms if lease_ttl_ms is None else check_lease_ttl(lease_ttl_ms)

    # --- renew ---------------------------------------------------------------------------------

    async def renew(self, handle: Handle) -> LeaseRenewal:
        """Extend the lease by its own length."""
        return _raised((await self.renew_many((handle,)))[0])

    async def renew_many(self, handles: Sequence[Handle]) -> list[LeaseRenewal | FlowFabricError]:
        """Extend many leases in one commit."""
        return await self._run_checked(handles, self._renew_command, field="handles")

    def _renew_command(self, handle: Handle) -> Renew:
        checked = self.check_handle(handle)
        ttl = check_lease_ttl(checked.lease_ttl_ms, field="handle.lease_ttl_ms")
        return Renew(checked.execution_id, checked.fence, ttl)

    async def renew_lease(
        self, *, execution_id: str, fence: Fence, lease_ttl_ms: int
    ) -> LeaseRenewal:
        """Extend a lease named by its fence."""
        checked = check_fence(fence)
        if checked is None:
            raise FenceRequired("renew needs the lease's fence", field="fence")
        command = Renew(self.check_id(execution_id), checked, check_lease_ttl(lease_ttl_ms))
        result: LeaseRenewal = await self.execute(command)
        return result

    # --- progress and parking ------------------------------------------------------------------

    async def progress(
        self, handle: Handle, *, percent: int | None = None, message: str | None = None
    ) -> None:
        """How far the work is: 0 to 100, and a line of text; what is absent stays."""
        checked = self.check_handle(handle)
        if percent is not None:
            percent = check_integer(percent, field="percent", least=0, most=100)
        if message is not None:
            message = check_text(
                message,
                field="message",
                max_bytes=limits.REASON_BYTES,
                empty=True,
                control=True,
            )
        await self.execute(Progress(checked.execution_id, checked.fence, percent, message))

    async def delay(self, handle: Handle, *, delay_until: int) -> Delayed:
        """Park the attempt until an instant; the same attempt is claimed again then."""
        checked = self.check_handle(handle)
        until = check_instant(delay_until, field="delay_until")
        command = Delay(checked.execution_id, checked.fence, until, LEASE_HOLDER)
        result: Delayed = await self.execute(command)
        return result

    # --- finish --------------------------------------------------------------------------------

    async def complete(
        self, handle: Handle, *, result: bytes | None = None, result_encoding: str | None = None
    ) -> Completed:
        """The work succeeded. Repeating the call with the same handle answers the same."""
        request = CompleteRequest(handle, result, result_encoding)
        return _raised((await self.complete_many((request,)))[0])

    async def complete_many(
        self, requests: Sequence[CompleteRequest]
    ) -> list[Completed | FlowFabricError]:
        """Many successes in one commit."""
        return await self._run_checked(requests, self._complete_command)

    def _complete_command(self, request: CompleteRequest) -> Complete:
        if not isinstance(request, CompleteRequest):
            raise InvalidInput("requests: expected each a CompleteRequest", field="requests")
        checked = self.check_handle(request.handle)
        return self.complete_command(
            checked.execution_id,
            checked.fence,
            LEASE_HOLDER,
            request.result,
            request.result_encoding,
        )

    def complete_command(
        self,
        execution_id: str,
        fence: Fence | None,
        source: str,
        result: bytes | None,
        result_encoding: str | None,
        *,
        field: str = "result",
    ) -> Complete:
        """A checked Complete."""
        if result_encoding is not None:
            result_encoding = check_name(result_encoding, field="result_encoding")
        if result is not None:
            result = check_payload(result, result_encoding, self.config, field=field)
        return Complete(execution_id, fence, source, result, result_encoding)

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
        command = self.complete_command(
            self.check_id(execution_id),
            check_fence(fence),
            check_name(source, field="source"),
            result_payload,
            result_encoding,
            field="result_payload",
        )
        reply: Completed = await self.execute(command)
        return reply

    async def fail(
        self,
        handle: Handle,
        *,
        reason: str,
        failure_class: FailureClass = FailureClass.TRANSIENT,
        category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> FailResult:
        """The attempt failed; the policy decides whether another follows."""
        request = FailRequest(handle, reason, failure_class, category, retry_after_ms)
        reply = (await self.fail_many((request,)))[0]
        if isinstance(reply, FlowFabricError):
            raise reply
        return reply

    async def fail_many(
        self, requests: Sequence[FailRequest]
    ) -> list[RetryScheduled | TerminalFailed | FlowFabricError]:
        """Many failures in one commit."""
        return await self._run_checked(requests, self._fail_command)

    def _fail_command(self, request: FailRequest) -> Fail:
        if not isinstance(request, FailRequest):
            raise InvalidInput("requests: expected each a FailRequest", field="requests")
        checked = self.check_handle(request.handle)
        return self.fail_command(
            checked.execution_id,
            checked.fence,
            LEASE_HOLDER,
            request.reason,
            request.failure_class,
            request.category,
            request.retry_after_ms,
        )

    def fail_command(
        self,
        execution_id: str,
        fence: Fence | None,
        source: str,
        reason: str,
        failure_class: FailureClass | str,
        category: str | None,
        retry_after_ms: int | None,
    ) -> Fail:
        """A checked Fail."""
        kind = check_failure_class(failure_class)
        if retry_after_ms is not None:
            check_integer(
                retry_after_ms, field="retry_after_ms", least=0, most=limits.RETRY_DELAY_MS_MAX
            )
        return Fail(
            execution_id,
            fence,
            source,
            clip_text(reason, limits.FAILURE_REASON_BYTES, field="reason"),
            kind,
            kind.value if category is None else check_name(category, field="category"),
            jitter(),
            retry_after_ms,
        )

    async def fail_execution(
        self,
        *,
        execution_id: str,
        source: str,
        failure_reason: str,
        fence: Fence | None = None,
        failure_class: FailureClass | str = FailureClass.TRANSIENT,
        failure_category: str | None = None,
        retry_after_ms: int | None = None,
    ) -> FailResult:
        """Fail by fence, or without one as `source="operator_override"`."""
        if failure_category is not None:
            check_name(failure_category, field="failure_category")
        command = self.fail_command(
            self.check_id(execution_id),
            check_fence(fence),
            check_name(source, field="source"),
            clip_text(failure_reason, limits.FAILURE_REASON_BYTES, field="failure_reason"),
            failure_class,
            failure_category,
            retry_after_ms,
        )
        reply: FailResult = await self.execute(command)
        return reply

    async def cancel(self, handle: Handle, *, reason: str) -> Cancelled:
        """The owner gives up for good."""
        checked = self.check_handle(handle)
        text = clip_text(reason, limits.REASON_BYTES, field="reason")
        command = Cancel(checked.execution_id, text, LEASE_HOLDER, checked.fence)
        reply: Cancelled = await self.execute(command)
        return reply

    async def _run_checked(
        self, requests: Sequence[Any], check: Any, *, field: str = "requests"
    ) -> list[Any]:
        """Run what passes its check; what does not is answered with its error, alone."""
        answers: list[Any] = []
        commands = []
        for request in check_list(requests, field=field):
            try:
                commands.append(check(request))
                answers.append(None)
            except FlowFabricError as error:
                answers.append(error)
        replies = iter(await self.batches.run(commands))
        return [next(replies) if answer is None else answer for answer in answers]


def _raised(reply: T | FlowFabricError) -> T:
    if isinstance(reply, FlowFabricError):
        raise reply
    return reply


def check_failure_class(value: FailureClass | str) -> FailureClass:
    """A known failure class."""
    return check_word(value, FailureClass, field="failure_class")


def check_fence_parts(fence: Fence) -> Fence:
    """Three well-formed parts."""
    check_name(fence.lease_id, field="fence.lease_id")
    check_name(fence.attempt_id, field="fence.attempt_id")
    check_integer(fence.lease_epoch, field="fence.lease_epoch", least=1, most=1 << 62)
    return fence


def check_fence(fence: Fence | None) -> Fence | None:
    """All three parts or none."""
    if fence is None:
        return None
    if not isinstance(fence, Fence):
        raise InvalidInput("fence: expected a Fence", field="fence")
    parts = (fence.lease_id, fence.lease_epoch, fence.attempt_id)
    if not all(parts):
        if any(parts):
            raise PartialFence(field="fence")
        return None
    return check_fence_parts(fence)
