"""Only the live owner writes, on every store and in every situation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.leases import Complete
from flowfabric.errors import (
    ExecutionNotActive,
    FenceRequired,
    FlowFabricError,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    PartialFence,
    StaleLease,
)
from flowfabric.ids import new_execution_id
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from flowfabric.model.state import PublicState
from tests.support.lab import TTL_MS, Lab, scenario

Call = Callable[[Lab, Handle], Awaitable[Any]]

CALLS: dict[str, Call] = {
    "renew": lambda lab, handle: lab.engine.renew(handle),
    "progress": lambda lab, handle: lab.engine.progress(handle, percent=5),
    "complete": lambda lab, handle: lab.engine.complete(handle, result=b"late"),
    "fail": lambda lab, handle: lab.engine.fail(handle, reason="late"),
    "cancel": lambda lab, handle: lab.engine.cancel(handle, reason="late"),
    "delay": lambda lab, handle: lab.engine.delay(handle, delay_until=lab.now + 9999),
    "complete_execution": lambda lab, handle: lab.engine.complete_execution(
        execution_id=handle.execution_id, fence=handle.fence, source="lease_holder"
    ),
    "fail_execution": lambda lab, handle: lab.engine.fail_execution(
        execution_id=handle.execution_id,
        fence=handle.fence,
        source="lease_holder",
        failure_reason="late",
    ),
    "renew_lease": lambda lab, handle: lab.engine.renew_lease(
        execution_id=handle.execution_id, fence=handle.fence, lease_ttl_ms=TTL_MS
    ),
    "cancel_execution": lambda lab, handle: lab.engine.cancel_execution(
        execution_id=handle.execution_id, fence=handle.fence, reason="late", source="lease_holder"
    ),
}


async def assert_all_refused(lab: Lab, handle: Handle, error: type[FlowFabricError]) -> None:
    """Every call of an owner meets the same error and leaves no trace."""
    for call in CALLS.values():
        async with lab.refuses(error):
            await call(lab, handle)


@scenario
async def test_a_lapsed_owner_is_refused_before_anybody_noticed(lab: Lab) -> None:
    """At the instant of expiry itself."""
    claimed = await lab.started()
    lab.clock.set(claimed.lease_expires_at)
    await assert_all_refused(lab, claimed.handle, LeaseExpired)


@scenario
async def test_a_lapsed_owner_is_refused_after_the_mark(lab: Lab) -> None:
    claimed = await lab.lapsed()
    await assert_all_refused(lab, claimed.handle, LeaseExpired)


@scenario
async def test_a_lapsed_owner_is_refused_after_the_requeue(lab: Lab) -> None:
    """It is not running, so it has no owner."""
    claimed = await lab.started()
    await lab.after(TTL_MS)
    await assert_all_refused(lab, claimed.handle, ExecutionNotActive)


@scenario
async def test_the_old_owner_cannot_touch_its_successors_run(lab: Lab) -> None:
    """I3: not even cancel it."""
    first = await lab.started("w1")
    await lab.after(TTL_MS)
    second = await lab.claim("w2")
    assert second.execution_id == first.execution_id
    await assert_all_refused(lab, first.handle, StaleLease)
    await lab.engine.complete(second.handle)
    assert await lab.state(first.execution_id) is PublicState.COMPLETED


@scenario
async def test_a_revoked_owner_hears_that_it_was_revoked(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspect")
    await assert_all_refused(lab, claimed.handle, LeaseRevoked)


@pytest.mark.parametrize(
    "change",
    [
        {"lease_id": "00000000-0000-4000-8000-000000000000"},
        {"attempt_id": "00000000-0000-4000-8000-000000000000"},
        {"lease_epoch": 2},
        {"lease_epoch": 99},
    ],
    ids=str,
)
@scenario
async def test_every_part_of_the_fence_is_compared(lab: Lab, change: dict[str, Any]) -> None:
    """I3: a guessed epoch alone opens nothing."""
    claimed = await lab.started()
    await assert_all_refused(lab, replace(claimed.handle, **change), StaleLease)


@scenario
async def test_a_handle_of_an_execution_that_does_not_exist_finds_nothing(lab: Lab) -> None:
    """NotFound, in every form of the call."""
    claimed = await lab.started()
    lost = replace(claimed.handle, execution_id=new_execution_id())
    await assert_all_refused(lab, lost, NotFound)


@scenario
async def test_a_renewal_after_the_end_revives_nothing(lab: Lab) -> None:
    """A background renewal that lands late."""
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.renew(claimed.handle)
    await lab.after(TTL_MS)
    assert await lab.state(claimed.execution_id) is PublicState.COMPLETED
    assert len(await lab.completions(claimed.execution_id)) == 1


@pytest.mark.parametrize("source", ["lease_holder", "worker", "flow_cascade", "x"])
@scenario
async def test_without_fence_and_operator_source_nothing_is_written(lab: Lab, source: str) -> None:
    """Typed, and there is no default source."""
    claimed = await lab.started()
    execution_id = claimed.execution_id
    async with lab.refuses(FenceRequired):
        await lab.engine.complete_execution(execution_id=execution_id, source=source)
    async with lab.refuses(FenceRequired):
        await lab.engine.fail_execution(
            execution_id=execution_id, source=source, failure_reason="x"
        )
    async with lab.refuses(FenceRequired):
        await lab.engine.cancel_execution(execution_id=execution_id, source=source, reason="x")


@scenario
async def test_a_renewal_always_needs_the_fence(lab: Lab) -> None:
    claimed = await lab.started()
    for empty in (None, Fence("", 0, "")):
        async with lab.refuses(FenceRequired):
            await lab.engine.renew_lease(
                execution_id=claimed.execution_id,
                fence=empty,
                lease_ttl_ms=TTL_MS,
            )


@pytest.mark.parametrize("missing", ["lease_id", "lease_epoch", "attempt_id"])
@scenario
async def test_a_fence_is_whole_or_absent(lab: Lab, missing: str) -> None:
    claimed = await lab.started()
    blank = 0 if missing == "lease_epoch" else ""
    fence = replace(claimed.handle.fence, **{missing: blank})
    for source in ("lease_holder", "operator_override"):
        async with lab.refuses(PartialFence):
            await lab.engine.complete_execution(
                execution_id=claimed.execution_id, fence=fence, source=source
            )


@scenario
async def test_an_operator_may_finish_for_a_live_owner(lab: Lab) -> None:
    """Audited."""
    claimed = await lab.started()
    await lab.engine.complete_execution(
        execution_id=claimed.execution_id, source="operator_override", result_payload=b"by hand"
    )
    result = await lab.engine.get_execution_result(execution_id=claimed.execution_id)
    assert result == b"by hand"
    assert [event.event_type for event in await lab.operator_events(claimed.execution_id)] == [
        "completed"
    ]


@scenario
async def test_a_result_larger_than_the_limit_ends_nothing(lab: Lab) -> None:
    claimed = await lab.started()
    limit = lab.config.payload_bytes_max
    async with lab.unchanged():
        (answer,) = await lab.engine.complete_many(
            [Complete(handle=claimed.handle, result=b"x" * (limit + 1))]
        )
        assert isinstance(answer, FlowFabricError)
        assert answer.code == "payload_too_large"
    await lab.engine.complete(claimed.handle, result=b"x" * limit)


@scenario
async def test_one_error_for_one_condition_in_every_form_of_the_call(lab: Lab) -> None:
    """An operator's call about nothing is NotFound, never a transport error."""
    nothing = new_execution_id()
    engine = lab.engine
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: lab.cancel(nothing),
        lambda: engine.change_priority(execution_id=nothing, new_priority=1),
        lambda: engine.replay_execution(execution_id=nothing),
        lambda: engine.revoke_lease(execution_id=nothing, reason="x"),
        lambda: engine.hold_execution(execution_id=nothing),
        lambda: engine.release_execution(execution_id=nothing),
        lambda: engine.unblock_execution(execution_id=nothing),
        lambda: engine.set_execution_tag(execution_id=nothing, key="a.b", value="c"),
        lambda: engine.explain(execution_id=nothing),
        lambda: engine.list_attempts(execution_id=nothing),
        lambda: engine.read_execution_context(execution_id=nothing),
        lambda: engine.read_current_attempt_index(execution_id=nothing),
        lambda: engine.read_total_attempt_count(execution_id=nothing),
        lambda: engine.wait_for_result(execution_id=nothing, wait_ms=10),
    ]
    for call in calls:
        async with lab.refuses(NotFound):
            await call()
    assert await engine.describe_execution(execution_id=nothing) is None
    assert await engine.read_execution_state(execution_id=nothing) is None
    assert await engine.get_execution_result(execution_id=nothing) is None
    assert await engine.get_execution_namespace(execution_id=nothing) is None
    assert await engine.get_execution_tag(execution_id=nothing, key="a.b") is None
