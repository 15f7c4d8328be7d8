"""A reply can be lost: the same call with the same fence or key hears its first answer, however far
the execution has gone on since."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.api.executions import NewExecution
from flowfabric.api.leases import Fail
from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.clock import ManualClock
from flowfabric.errors import ExecutionNotActive, FlowFabricError, StaleLease
from flowfabric.limits import ANSWER_TTL_MS, TIMEOUT_SKEW_MS
from flowfabric.model.attempt import FailureClass
from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, Delayed, RetryScheduled
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import AlreadyMet, Single
from flowfabric.stores.tables import ANSWERS
from tests.support.budgets import make_budget, reserve
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario
from tests.support.waits import early, pending

START: Final = ManualClock().now_ms()
Call = Callable[[Lab, Handle], Awaitable[Any]]
GO: Final = SuspendRequest(resume_condition=Single("a", "go"), idempotency_key="k")
CHILDREN: Final = (
    NewExecution(execution_kind="child", lane_id="children", idempotency_key="c1"),
    NewExecution(execution_kind="child", lane_id="children", idempotency_key="c2"),
)


async def complete(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.complete(handle, result=b"done")


async def complete_by_fence(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.complete_execution(
        execution_id=handle.execution_id, source="lease_holder", fence=handle.fence
    )


async def fail(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.fail(handle, reason="no luck")


async def fail_for_good(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.fail(handle, reason="no", failure_class=FailureClass.PERMANENT)


async def fail_by_fence(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.fail_execution(
        execution_id=handle.execution_id,
        source="lease_holder",
        failure_reason="no luck",
        fence=handle.fence,
    )


async def cancel(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.cancel(handle, reason="not needed")


async def cancel_by_fence(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.cancel_execution(
        execution_id=handle.execution_id,
        reason="not needed",
        source="lease_holder",
        fence=handle.fence,
    )


async def delay(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.delay(handle, delay_until=START + 500)


async def wait_children(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.wait_children(handle)


async def suspend(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.suspend(handle, GO)


async def suspend_by_triple(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.suspend_by_triple(
        execution_id=handle.execution_id, fence=handle.fence, request=GO
    )


async def spawn(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.spawn_children(handle, CHILDREN)


async def report_usage(lab: Lab, handle: Handle) -> Any:
    usage = Usage(custom={"tokens": 3}, dedup_key="r")
    return await lab.engine.report_usage(handle, budget_id="b", usage=usage)


async def settle(lab: Lab, handle: Handle) -> Any:
    return await lab.engine.settle_budget(handle, budget_id="b", hold_id="h", amounts={"tokens": 3})


CALLS: Final[dict[str, Call]] = {
    call.__name__: call
    for call in (
        complete,
        complete_by_fence,
        fail,
        fail_for_good,
        fail_by_fence,
        cancel,
        cancel_by_fence,
        delay,
        wait_children,
        suspend,
        suspend_by_triple,
        spawn,
        report_usage,
        settle,
    )
}
# These let the lease live on; another call ends it.
LEAVING_THE_LEASE: Final = (spawn, report_usage, settle)


async def started(lab: Lab) -> Claimed:
    """An execution that runs and may be tried again, with something to settle."""
    claimed = await lab.started(policy=policy(retry_policy=retries(3, 1000)))
    await make_budget(lab, hard={"tokens": 1000})
    await reserve(lab, claimed, {"tokens": 10})
    return claimed


async def carried_on(lab: Lab, execution_id: str) -> PublicState:
    """One more step in the life of an execution that nobody runs; how it stands then."""
    match await lab.state(execution_id):
        case PublicState.SUSPENDED:
            await lab.engine.resume_execution(execution_id=execution_id)
        case PublicState.COMPLETED | PublicState.FAILED | PublicState.CANCELLED:
            await lab.engine.replay_execution(execution_id=execution_id)
        case PublicState.DELAYED:
            await lab.after(1000)
        case PublicState.WAITING:
            assert (await lab.claim("other")).execution_id == execution_id
        case state:
            assert state is PublicState.ACTIVE
            await lab.engine.complete_execution(
                execution_id=execution_id, source="operator_override"
            )
    return await lab.state(execution_id)


@pytest.mark.parametrize("name", CALLS)
@scenario
async def test_every_fenced_call_repeated_after_the_execution_went_on_gives_its_first_answer(
    lab: Lab, name: str
) -> None:
    """Issue 10 A5: at every later moment of its life, and nothing is done a second time."""
    call, claimed = CALLS[name], await started(lab)
    first = await call(lab, claimed.handle)
    if call in LEAVING_THE_LEASE:
        await fail(lab, claimed.handle)
    ways: list[PublicState] = []
    for _ in range(10):
        async with lab.unchanged():
            assert await call(lab, claimed.handle) == first, ways
        ways.append(await carried_on(lab, claimed.execution_id))
    assert ways.count(PublicState.ACTIVE) >= 2, "others ran it"
    assert PublicState.COMPLETED in ways


@pytest.mark.parametrize("part", ["lease_id", "attempt_id", "lease_epoch"])
@pytest.mark.parametrize(
    "name", [name for name, call in CALLS.items() if call not in LEAVING_THE_LEASE]
)
@scenario
async def test_a_fence_that_never_existed_gets_no_first_reply(
    lab: Lab, name: str, part: str
) -> None:
    """Keys alone prove nothing where a lease is let go, and tokens are told to its owner only."""
    call, claimed = CALLS[name], await started(lab)
    await call(lab, claimed.handle)
    while (await lab.state(claimed.execution_id)) is not PublicState.ACTIVE:
        await carried_on(lab, claimed.execution_id)
    other = claimed.lease_epoch + 1 if part == "lease_epoch" else "0" * 36
    async with lab.refuses(StaleLease):
        await call(lab, replace(claimed.handle, **{part: other}))


@scenario
async def test_another_call_under_an_old_lease_is_no_repetition(lab: Lab) -> None:
    """Who failed is not told that it completed, was delayed, or was cancelled."""
    claimed = await started(lab)
    await fail(lab, claimed.handle)
    await lab.after(1000)
    await lab.claim("other")
    for call in (complete, cancel, delay, wait_children, suspend):
        async with lab.refuses(StaleLease):
            await call(lab, claimed.handle)
    for refused in (lab.engine.renew(claimed.handle), lab.engine.progress(claimed.handle)):
        async with lab.refuses(StaleLease):
            await refused


@scenario
async def test_a_failure_reported_after_the_timeout_gets_no_first_reply(lab: Lab) -> None:
    """The attempt ran out: the call that comes late was never heard."""
    timed = policy(retry_policy=retries(3, 1000), attempt_timeout_ms=5000)
    claimed = await lab.started(policy=timed)
    await lab.after(5000)
    async with lab.refuses(ExecutionNotActive):
        await fail(lab, claimed.handle)


@scenario
async def test_repetitions_in_one_batch_and_across_it_agree(lab: Lab) -> None:
    """Many repeats at once, between them what lets another worker go on."""
    claimed = await started(lab)
    requests = [Fail(handle=claimed.handle, reason="no luck", retry_after_ms=0)] * 3
    answers = await lab.engine.fail_many(requests)
    assert answers == [RetryScheduled(lab.now, 1)] * 3
    second = await lab.claim("other")
    assert second.attempt_index == 1
    await lab.engine.delay(second.handle, delay_until=lab.now + 1)
    later = lab.now + 99
    assert await lab.engine.delay(second.handle, delay_until=later) == Delayed(
        claimed.execution_id, lab.now + 1
    )
    assert await lab.engine.fail_many(requests) == answers


@scenario
async def test_a_suspend_met_at_once_is_answered_again_after_the_lease(lab: Lab) -> None:
    """The signals that met it are told too."""
    claimed = await started(lab)
    details = await pending(lab, claimed)
    await early(lab, claimed, details)
    use = (UsePending(details.waitpoint_id, "a"),)
    request = SuspendRequest(
        resume_condition=Single("a"), waitpoints=use, idempotency_key="k", timeout_at=lab.now + 9
    )
    first = await lab.engine.suspend(claimed.handle, request)
    assert isinstance(first, AlreadyMet)
    await fail(lab, claimed.handle)
    await lab.after(TIMEOUT_SKEW_MS + 10)  # by now nobody could ask for that timeout
    await lab.claim("other")
    async with lab.unchanged():
        assert await lab.engine.suspend(claimed.handle, request) == first


@scenario
async def test_answers_are_forgotten_in_time(lab: Lab) -> None:
    """The table does not grow with the life of an execution that parks itself for ever."""
    await lab.configure(retention_ms=10 * ANSWER_TTL_MS)
    claimed = await lab.started()
    await lab.engine.delay(claimed.handle, delay_until=lab.now + 1)
    assert len((await lab.dump())[ANSWERS.name]) == 1
    await lab.after(ANSWER_TTL_MS - 1)
    again = await lab.engine.delay(claimed.handle, delay_until=START + 99)
    assert again == Delayed(claimed.execution_id, START + 1)
    await lab.after(1)
    assert (await lab.dump())[ANSWERS.name] == []
    with pytest.raises(FlowFabricError):
        await lab.engine.delay(claimed.handle, delay_until=START + 1)


@scenario
async def test_answers_go_with_their_execution(lab: Lab) -> None:
    claimed = await started(lab)
    await fail(lab, claimed.handle)
    await lab.cancel(claimed.execution_id)
    await lab.after(lab.config.retention_ms)
    assert (await lab.dump())[ANSWERS.name] == []
