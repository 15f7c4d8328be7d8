"""Calls of a worker: claim, renew, report, finish."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api import leases as api
from flowfabric.api.hints import lane_topic, wait_event
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.frames import with_output
from flowfabric.engine.operations.new_entries import check_key
from flowfabric.engine.operations.performing import answers, at_once, commands
from flowfabric.engine.operations.requests import check_payload
from flowfabric.engine.operations.waiting import left_s, wait_until
from flowfabric.errors import FenceRequired, InvalidInput, PartialFence
from flowfabric.ids import jitter
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import Claim, GiveBack, Recalled
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.fence import LEASE_HOLDER
from flowfabric.kernel.execution.own import Delay, Progress, Renew
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.stream.append import EndWithOutput
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
from flowfabric.model.failure import FailureOrigin
from flowfabric.model.limit_checks import check_word
from flowfabric.model.results import Claimed

# --- claim ---------------------------------------------------------------------------------------


@at_once(api.Claim)
def claim_command(machine: Machine, request: api.Claim) -> Claim:
    """One look for work."""
    return Claim(
        offer=offer(
            machine,
            request.lanes,
            request.capabilities,
            request.kinds,
            request.namespace,
            request.namespaces,
        ),
        worker_id=check_name(request.worker_id, field="worker_id"),
        worker_instance_id=check_name(request.worker_instance_id, field="worker_instance_id"),
        lease_ttl_ms=lease_ttl(machine, request.lease_ttl_ms),
        limit=check_integer(request.limit, field="limit", least=1, most=limits.CLAIM_MAX),
        backend=machine.store.family,
        claim_id=None
        if request.claim_id is None
        else check_name(request.claim_id, field="claim_id"),
    )


@answers(api.Claim)
async def claim(machine: Machine, request: api.Claim) -> list[Claimed]:
    """Claim, and claim again after each hint, until there is work or the wait is over."""
    command = claim_command(machine, request)
    until = wait_until(request.wait_ms, is_bounded=True)
    with machine.wakeups.listening(map(lane_topic, command.offer.lanes)) as woken:
        while True:
            claimed = await _look(machine, command)
            pause = min(left_s(until), machine.config.poll_interval_ms / 1000)
            if claimed or pause <= 0 or isinstance(claimed, Recalled):
                return claimed
            if not await wait_event(woken, pause) and left_s(until) <= 0:
                return []


async def _look(machine: Machine, command: Claim) -> list[Claimed]:
    """One look. A caller that goes away meanwhile leaves no lease without a worker."""
    if command.claim_id is None:
        return await machine.execute(command)
    look = asyncio.ensure_future(machine.execute(command))
    try:
        return await asyncio.shield(look)
    except asyncio.CancelledError:
        if await look:
            await machine.execute(_giving_back(command.worker_instance_id, command.claim_id))
        raise


@commands(api.GiveBackClaim)
def give_back_claim(machine: Machine, request: api.GiveBackClaim) -> GiveBack:
    """By the id of the claim."""
    instance = check_name(request.worker_instance_id, field="worker_instance_id")
    return _giving_back(instance, check_name(request.claim_id, field="claim_id"))


def _giving_back(worker_instance_id: str, claim_id: str) -> GiveBack:
    return GiveBack(worker_instance_id=worker_instance_id, claim_id=claim_id)


def offer(
    machine: Machine,
    lanes: Sequence[str],
    capabilities: Sequence[str],
    kinds: Sequence[str] | None,
    namespace: str | None,
    namespaces: Sequence[str] | None = None,
) -> Offer:
    """The routes a worker can run, checked."""
    if namespaces is None:
        tenants: tuple[str, ...] = (machine.namespace(namespace),)
    else:
        several = check_list(namespaces, field="namespaces")
        if not several or namespace is not None:
            raise InvalidInput(
                "namespaces: a list of at least one, instead of namespace", field="namespaces"
            )
        tenants = tuple(sorted({machine.namespace(each) for each in several}))
    served = {check_lane(lane, field="lanes") for lane in check_list(lanes, field="lanes")}
    if not served:
        raise InvalidInput("lanes: give at least one", field="lanes")
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


def lease_ttl(machine: Machine, lease_ttl_ms: int | None) -> int:
    """The lease duration of a call."""
    return machine.config.lease_ttl_ms if lease_ttl_ms is None else check_lease_ttl(lease_ttl_ms)


# --- renew ---------------------------------------------------------------------------------------


@commands(api.Renew)
def renew(machine: Machine, request: api.Renew) -> Renew:
    """Renew by the lease's own duration."""
    handle = machine.check_handle(request.handle)
    ttl = check_lease_ttl(handle.lease_ttl_ms, field="handle.lease_ttl_ms")
    if request.next_key is None:
        return Renew(execution_id=handle.execution_id, fence=handle.fence, lease_ttl_ms=ttl)
    most = limits.DURATION_MS_MAX
    return Renew(
        execution_id=handle.execution_id,
        fence=handle.fence,
        lease_ttl_ms=ttl,
        running=check_key(request.next_key, field="next_key"),
        running_ms=check_integer(request.next_key_ms, field="next_key_ms", least=0, most=most),
    )


@commands(api.RenewLease)
def renew_lease(machine: Machine, request: api.RenewLease) -> Renew:
    """Renew by fence."""
    fence = check_fence(request.fence)
    if fence is None:
        raise FenceRequired("renew needs the lease's fence", field="fence")
    ttl = check_lease_ttl(request.lease_ttl_ms)
    return Renew(execution_id=machine.check_id(request.execution_id), fence=fence, lease_ttl_ms=ttl)


# --- progress and parking ------------------------------------------------------------------------


@commands(api.Progress)
def progress(machine: Machine, request: api.Progress) -> Progress:
    """Report progress."""
    handle, percent, message = (
        machine.check_handle(request.handle),
        request.percent,
        request.message,
    )
    if percent is not None:
        percent = check_integer(percent, field="percent", least=0, most=100)
    if message is not None:
        message = check_text(
            message, field="message", max_bytes=limits.REASON_BYTES, empty=True, control=True
        )
    return Progress(
        execution_id=handle.execution_id, fence=handle.fence, percent=percent, message=message
    )


@commands(api.Delay)
def delay(machine: Machine, request: api.Delay) -> Delay | EndWithOutput:
    """Pause until an instant."""
    handle = machine.check_handle(request.handle)
    until = check_instant(request.delay_until, field="delay_until")
    end = Delay(
        execution_id=handle.execution_id, fence=handle.fence, delay_until=until, source=LEASE_HOLDER
    )
    if request.entries == ():
        return end
    return with_output(end, handle, machine.config, entries=request.entries)


# --- finish --------------------------------------------------------------------------------------


@commands(api.Complete)
def complete(machine: Machine, request: api.Complete) -> Complete | EndWithOutput:
    """Complete by the owner."""
    handle = machine.check_handle(request.handle)
    result, encoding = _result(machine, request.result, request.result_encoding, "result")
    end = Complete(
        execution_id=handle.execution_id,
        fence=handle.fence,
        source=LEASE_HOLDER,
        result=result,
        result_encoding=encoding,
    )
    if request.logs is None and request.frames == () and request.entries == ():
        return end
    return with_output(
        end,
        handle,
        machine.config,
        frames=request.frames,
        logs=request.logs,
        entries=request.entries,
    )


@commands(api.CompleteExecution)
def complete_execution(machine: Machine, request: api.CompleteExecution) -> Complete:
    """Complete by fence, or by an operator."""
    execution_id, fence = machine.check_id(request.execution_id), check_fence(request.fence)
    source = check_name(request.source, field="source")
    given, encoding = request.result_payload, request.result_encoding
    result, encoding = _result(machine, given, encoding, "result_payload")
    return Complete(
        execution_id=execution_id,
        fence=fence,
        source=source,
        result=result,
        result_encoding=encoding,
    )


def _result(
    machine: Machine, result: bytes | None, encoding: str | None, field: str
) -> tuple[bytes | None, str | None]:
    if encoding is not None:
        encoding = check_name(encoding, field="result_encoding")
    if result is not None:
        result = check_payload(result, encoding, machine.config, field=field)
    return result, encoding


@commands(api.Fail)
def fail(machine: Machine, request: api.Fail) -> Fail | EndWithOutput:
    """Fail by the owner."""
    handle = machine.check_handle(request.handle)
    kind = check_failure_class(request.failure_class)
    category = request.category
    end = Fail(
        execution_id=handle.execution_id,
        fence=handle.fence,
        source=LEASE_HOLDER,
        reason=clip_text(request.reason, limits.FAILURE_REASON_BYTES, field="reason"),
        failure_class=kind,
        category=kind.value if category is None else check_name(category, field="category"),
        jitter=jitter(),
        retry_after_ms=_retry_after(request.retry_after_ms),
        origin=None if request.origin is None else _origin(request.origin),
    )
    if request.logs is None and request.frames == () and request.entries == ():
        return end
    return with_output(
        end,
        handle,
        machine.config,
        frames=request.frames,
        logs=request.logs,
        entries=request.entries,
    )


@commands(api.FailExecution)
def fail_execution(machine: Machine, request: api.FailExecution) -> Fail:
    """Fail by fence, or by an operator."""
    execution_id, fence = machine.check_id(request.execution_id), check_fence(request.fence)
    kind = check_failure_class(request.failure_class)
    category = request.failure_category
    return Fail(
        execution_id=execution_id,
        fence=fence,
        source=check_name(request.source, field="source"),
        reason=clip_text(
            request.failure_reason, limits.FAILURE_REASON_BYTES, field="failure_reason"
        ),
        failure_class=kind,
        category=kind.value if category is None else check_name(category, field="failure_category"),
        jitter=jitter(),
        retry_after_ms=_retry_after(request.retry_after_ms),
    )


def _origin(given: object) -> FailureOrigin:
    """Where a failure comes from; texts that are too long are cut."""
    if not isinstance(given, FailureOrigin):
        detail = f"origin: expected a FailureOrigin, got {type(given).__name__}"
        raise InvalidInput(detail, field="origin")
    line, most = given.line, limits.FAILURE_LINE_MAX
    return FailureOrigin(
        exception=clip_text(given.exception, limits.NAME_BYTES, field="origin.exception"),
        frame=_clipped(given.frame, "frame"),
        line=None if line is None else check_integer(line, field="origin.line", least=0, most=most),
        version=_clipped(given.version, "version"),
    )


def _clipped(given: object, name: str) -> str | None:
    return None if given is None else clip_text(given, limits.NAME_BYTES, field=f"origin.{name}")


def _retry_after(retry_after_ms: int | None) -> int | None:
    if retry_after_ms is None:
        return None
    most = limits.RETRY_DELAY_MS_MAX
    return check_integer(retry_after_ms, field="retry_after_ms", least=0, most=most)


@commands(api.Cancel)
def cancel(machine: Machine, request: api.Cancel) -> Cancel:
    """Cancel by the owner."""
    handle = machine.check_handle(request.handle)
    text = clip_text(request.reason, limits.REASON_BYTES, field="reason")
    return Cancel(
        execution_id=handle.execution_id, reason=text, source=LEASE_HOLDER, fence=handle.fence
    )


# --- checks --------------------------------------------------------------------------------------


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
