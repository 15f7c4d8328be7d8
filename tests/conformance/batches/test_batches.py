"""Lists and shared commits: batch(c1..cn) is c1; ...; cn, and nobody disturbs a neighbour."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.leases import Complete, Fail
from flowfabric.errors import (
    FlowFabricError,
    HandleFromOtherBackend,
    IdempotencyConflict,
    InvalidInput,
    LaneClosed,
    LeaseExpired,
    PayloadTooLarge,
    StaleLease,
)
from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from flowfabric.model.results import (
    Claimed,
    Completed,
    Created,
    LeaseRenewal,
    RetryScheduled,
    TerminalFailed,
)
from flowfabric.model.state import PublicState
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario


async def running(lab: Lab, number: int, **fields: Any) -> list[Claimed]:
    requests = [NewExecution(execution_kind="work", **fields)] * number
    await lab.engine.create_executions(requests)
    claimed = await lab.claims(limit=number)
    assert len(claimed) == number
    return claimed


def foreign(handle: Handle) -> Handle:
    return replace(handle, backend="another")


def stale(handle: Handle) -> Handle:
    return replace(handle, lease_epoch=handle.lease_epoch + 1)


@scenario
async def test_one_bad_completion_disturbs_no_other(lab: Lab) -> None:
    """I15: each item its own result or its own error."""
    claimed = await running(lab, 6)
    handles = [each.handle for each in claimed]
    answers = await lab.engine.complete_many(
        [
            Complete(handle=handles[0], result=b"a"),
            Complete(handle=foreign(handles[1])),
            Complete(handle=handles[2], result=b"c"),
            Complete(handle=stale(handles[3])),
            Complete(handle=handles[4], result=b"x" * (lab.config.payload_bytes_max + 1)),
            Complete(handle=handles[5]),
            Complete(handle=handles[0], result=b"again"),
        ]
    )
    assert [type(answer) for answer in answers] == [
        Completed,
        HandleFromOtherBackend,
        Completed,
        StaleLease,
        PayloadTooLarge,
        Completed,
        Completed,
    ]
    assert answers[6] == answers[0]
    states = [await lab.state(each.execution_id) for each in claimed]
    assert [state.value for state in states] == [
        "completed",
        "active",
        "completed",
        "active",
        "active",
        "completed",
    ]
    assert len(await lab.completions(claimed[0].execution_id)) == 1


@scenario
async def test_one_bad_failure_disturbs_no_other(lab: Lab) -> None:
    """Invariant I15."""
    claimed = await running(lab, 3, policy=policy(retry_policy=retries(1, 500)))
    answers = await lab.engine.fail_many(
        [
            Fail(handle=claimed[0].handle, reason="x"),
            Fail(handle=stale(claimed[1].handle), reason="x"),
            Fail(handle=claimed[2].handle, reason="x", category="bad\x00category"),
            Fail(handle=claimed[2].handle, reason="x"),
        ]
    )
    kinds = [RetryScheduled, StaleLease, InvalidInput, RetryScheduled]
    assert [type(answer) for answer in answers] == kinds


@scenario
async def test_one_bad_renewal_disturbs_no_other(lab: Lab) -> None:
    """I15: a list never fails as a whole."""
    claimed = await running(lab, 3)
    await lab.after(TTL_MS - 1)
    malformed = replace(claimed[1].handle, execution_id="nonsense")
    answers = await lab.engine.renew_many(
        [claimed[0].handle, foreign(claimed[1].handle), malformed, claimed[2].handle]
    )
    kinds = [LeaseRenewal, HandleFromOtherBackend, InvalidInput, LeaseRenewal]
    assert [type(answer) for answer in answers] == kinds


@scenario
async def test_empty_lists_are_answered_with_empty_lists(lab: Lab) -> None:
    async with lab.unchanged():
        assert await lab.engine.complete_many([]) == []
        assert await lab.engine.fail_many([]) == []
        assert await lab.engine.renew_many([]) == []
        assert await lab.engine.create_executions([]) == []


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"execution_kind": ""}, InvalidInput),
        ({"execution_kind": "w", "priority": "high"}, InvalidInput),
        ({"execution_kind": "w", "input_payload": "text"}, InvalidInput),
        ({"execution_kind": "w", "policy": {"unknown": 1}}, InvalidInput),
        ({"execution_kind": "w", "idempotency_key": "taken", "priority": 1}, IdempotencyConflict),
        ({"execution_kind": "w", "lane_id": "shut"}, LaneClosed),
    ],
    ids=str,
)
@scenario
async def test_a_list_of_creates_is_all_or_nothing_and_names_the_item(
    lab: Lab, bad: dict[str, Any], error: type[FlowFabricError]
) -> None:
    """I15: atomic; the error carries the index."""
    await lab.create("w", idempotency_key="taken")
    await lab.create(lane_id="shut")
    await lab.engine.drain_lane(lane_id="shut")
    good = NewExecution(execution_kind="work")
    async with lab.unchanged():
        with pytest.raises(error, match=r"requests\[1\]") as refusal:
            await lab.engine.create_executions([good, NewExecution(**bad), good])
    assert refusal.value.fields["index"] == 1


@scenario
async def test_concurrent_calls_share_commits_and_keep_their_own_answers(lab: Lab) -> None:
    """I15: coalesced, refusals included."""
    claimed = await running(lab, 40)
    calls = []
    for number, each in enumerate(claimed):
        handle = stale(each.handle) if number % 4 == 0 else each.handle
        calls.append(lab.engine.complete(handle, result=str(number).encode()))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for number, (each, answer) in enumerate(zip(claimed, answers, strict=True)):
        if number % 4 == 0:
            assert isinstance(answer, StaleLease)
            assert await lab.state(each.execution_id) is PublicState.ACTIVE
        else:
            assert isinstance(answer, Completed)
            result = await lab.engine.get_execution_result(execution_id=each.execution_id)
            assert result == str(number).encode()


@scenario
async def test_commands_of_one_batch_see_each_other_in_order(lab: Lab) -> None:
    """I15: about one execution, in the order of the calls."""
    (claimed,) = await running(lab, 1)
    handle, execution_id = claimed.handle, claimed.execution_id
    engine = lab.engine
    answers: tuple[Any, ...] = await asyncio.gather(
        engine.renew(handle),
        engine.complete(handle),
        engine.fail(handle, reason="x"),
        lab.cancel(execution_id),
        return_exceptions=True,
    )
    assert isinstance(answers[0], LeaseRenewal)
    assert isinstance(answers[1], Completed)
    assert isinstance(answers[2], FlowFabricError)
    assert isinstance(answers[3], FlowFabricError)
    assert await lab.state(execution_id) is PublicState.COMPLETED
    assert len(await lab.completions(execution_id)) == 1


@scenario
async def test_a_create_and_a_claim_in_one_batch_find_each_other(lab: Lab) -> None:
    """I15: the search sees what the batch has decided before it."""
    await lab.create("first", lane_id="elsewhere")
    created, claimed = await asyncio.gather(lab.create(), lab.claims())
    if claimed:
        assert claimed[0].execution_id == created
    else:  # the claim travelled in a batch before
        assert (await lab.claim()).execution_id == created


@scenario
async def test_a_failed_batch_leaves_no_trace_of_the_refused(lab: Lab) -> None:
    """Invariants I15 and I2."""
    (live, lost) = await running(lab, 2)
    await lab.engine.revoke_lease(execution_id=lost.execution_id, reason="x")
    before = await lab.record(lost.execution_id)
    answers = await lab.engine.fail_many(
        [Fail(handle=lost.handle, reason="x"), Fail(handle=live.handle, reason="x")]
    )
    assert isinstance(answers[1], TerminalFailed)
    assert await lab.record(lost.execution_id) == before


@pytest.mark.parametrize("late", [False, True])
@scenario
async def test_a_list_is_the_same_as_its_items_one_by_one(lab: Lab, late: bool) -> None:
    """I15: the same answers and the same stored outcome per item."""
    together = await running(lab, 8)
    alone = await running(lab, 8)
    if late:
        lab.clock.advance(TTL_MS)

    def spoil(claimed: list[Claimed]) -> list[Fail]:
        handles = [each.handle for each in claimed]
        handles[2] = stale(handles[2])
        handles[5] = replace(handles[5], lease_id="guess")
        handles[7] = handles[6]
        return [Fail(handle=handle, reason="x") for handle in handles]

    many = await lab.engine.fail_many(spoil(together))
    single = [(await lab.engine.fail_many([request]))[0] for request in spoil(alone)]
    assert [type(answer) for answer in many] == [type(answer) for answer in single]
    if late:
        assert isinstance(many[0], LeaseExpired)
    for one, other in zip(together, alone, strict=True):
        assert await lab.state(one.execution_id) == await lab.state(other.execution_id)


@scenario
async def test_too_long_a_list_of_creates_is_refused(lab: Lab) -> None:
    async with lab.refuses(InvalidInput, field="requests"):
        await lab.engine.create_executions([NewExecution(execution_kind="w")] * 10_001)


@scenario
async def test_every_created_id_is_different_and_in_the_order_asked(lab: Lab) -> None:
    requests = [NewExecution(execution_kind="w", priority=number) for number in range(50)]
    created = await lab.engine.create_executions(requests)
    assert all(isinstance(each, Created) for each in created)
    for number, each in enumerate(created):
        assert (await lab.describe(each.execution_id)).priority == number
