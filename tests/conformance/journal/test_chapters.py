"""Chapters: the owner begins the next one with other arguments, in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.journal import ContinueExecution
from flowfabric.errors import (
    ChildrenNotEnded,
    InvalidInput,
    LeaseExpired,
    LeaseRevoked,
    PayloadTooLarge,
    StaleLease,
)
from flowfabric.limits import NAME_BYTES
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import CONTINUED, LeaseEventType
from flowfabric.model.journal import CodeMark, Continued, EntryKind
from flowfabric.model.results import Claimed
from flowfabric.model.state import AttemptState, PublicState
from tests.support.journal import entry, journal, keys, record
from tests.support.lab import LANE, TTL_MS, Lab, scenario

RETRIES = {"retry_policy": {"max_retries": 3, "backoff": {"type": "fixed", "delay_ms": 10}}}


def child(kind: str) -> NewExecution:
    return NewExecution(lane_id=LANE, execution_kind=kind)


async def go_on(lab: Lab, claimed: Claimed, arguments: bytes = b"[[1],{}]", **more: Any) -> int:
    """Begin the next chapter; its number."""
    reply = await lab.engine.continue_execution(claimed.handle, arguments=arguments, **more)
    assert reply.execution_id == claimed.execution_id
    return reply.chapter_index


@scenario
async def test_the_execution_waits_as_a_new_one_does(lab: Lab) -> None:
    claimed = await lab.started(policy=RETRIES, tags={"a.b": "mine"}, idempotency_key="k")
    await lab.engine.fail(claimed.handle, reason="x")
    await lab.after(10)
    again = await lab.claim("w2")
    await lab.engine.progress(again.handle, percent=40)
    assert await go_on(lab, again, version="3") == 1
    waits = await lab.record(claimed.execution_id)
    assert waits.public_state is PublicState.WAITING
    assert waits.state.attempt_state is AttemptState.PENDING_FIRST_ATTEMPT
    assert (waits.retry_count, waits.reclaim_count, waits.chapter_index) == (0, 0, 1)
    assert (waits.worker_id, waits.failure_reason) == (None, None)
    assert (waits.tags, waits.eligible_at) == ({"a.b": "mine"}, lab.now)
    last = await lab.claim("w3")
    assert (last.attempt_index, last.attempt_type) == (2, AttemptType.CONTINUED)
    assert last.idempotency_key == "k"
    page = await lab.engine.load_journal(last.handle)
    (first,) = page.entries
    assert (page.chapter_index, first.position, first.kind) == (1, 0, EntryKind.CHAPTER)
    assert (first.value, first.code) == (b"[[1],{}]", CodeMark(version="3"))
    ended = (await lab.engine.list_attempts(execution_id=claimed.execution_id)).items
    assert [each.outcome for each in ended][:2] == [
        AttemptOutcome.ENDED_FAILURE,
        AttemptOutcome.ENDED_CONTINUED,
    ]


@scenario
async def test_it_is_told_as_a_lease_that_was_let_go(lab: Lab) -> None:
    claimed = await lab.started()
    await go_on(lab, claimed)
    last = (await lab.lease_events(claimed.execution_id))[-1]
    assert (last.event_type, last.reason) == (LeaseEventType.RELEASED, CONTINUED)


@scenario
async def test_entries_that_come_with_it_belong_to_the_chapter_that_ends(lab: Lab) -> None:
    claimed = await lab.started()
    await record(lab, claimed, entry(0))
    await go_on(lab, claimed, entries=[entry(1), entry(2)])
    assert await keys(lab, claimed.execution_id, chapter_index=0) == ["step#1", "step#2", "step#3"]
    assert await keys(lab, claimed.execution_id) == ["chapter"]


@scenario
async def test_of_the_ended_chapters_the_last_is_kept(lab: Lab) -> None:
    claimed = await lab.started()
    for chapter in range(4):
        await record(lab, claimed, *(entry(at) for at in range(bool(chapter), 5)))
        assert await go_on(lab, claimed) == chapter + 1
        rows = (await lab.dump())["ff_journal"]
        kept = sorted({row.chapter_index for row in rows})
        assert kept == ([0, 1] if chapter == 0 else [chapter, chapter + 1])
        claimed = await lab.claim()
    assert len((await lab.dump())["ff_journal"]) == 6


@scenario
async def test_chapters_that_end_together_each_lose_their_own(lab: Lab) -> None:
    claims = [await lab.started() for _ in range(3)]
    for _ in range(3):
        requests = [ContinueExecution(handle=each.handle, arguments=b"1") for each in claims]
        replies = await lab.engine.call_many(requests)
        assert all(isinstance(reply, Continued) for reply in replies)
        claims = await lab.claims(limit=3)
    found = {(row.execution_id, row.chapter_index) for row in (await lab.dump())["ff_journal"]}
    assert sorted(chapter for _, chapter in found) == [2, 2, 2, 3, 3, 3]


@scenario
async def test_a_repeated_call_is_answered_as_the_first(lab: Lab) -> None:
    claimed = await lab.started()
    request = ContinueExecution(handle=claimed.handle, arguments=b"7", entries=(entry(0),))
    first = await lab.engine.call(request)
    assert await lab.engine.call(request) == first
    await lab.claim("w2")
    assert await lab.engine.call(request) == first == Continued(claimed.execution_id, 1)
    assert len((await lab.dump())["ff_journal"]) == 2


@scenario
async def test_only_the_live_owner_continues(lab: Lab) -> None:
    claimed = await lab.started()
    lab.clock.advance(TTL_MS)
    async with lab.refuses(LeaseExpired):
        await go_on(lab, claimed)
    await lab.after(1)
    await lab.after(60_000)
    again = await lab.claim("w2")
    async with lab.refuses(StaleLease):
        await go_on(lab, claimed)
    await lab.engine.revoke_lease(execution_id=again.execution_id, reason="x")
    async with lab.refuses(LeaseRevoked):
        await go_on(lab, again)
    assert (await lab.record(claimed.execution_id)).chapter_index == 0


@scenario
async def test_children_that_run_are_named(lab: Lab) -> None:
    claimed = await lab.started()
    spawned = await lab.engine.spawn_children(claimed.handle, [child("a"), child("b")])
    async with lab.refuses(ChildrenNotEnded, spawned.execution_ids[0]):
        await go_on(lab, claimed, entries=[entry(0)])
    for claim in await lab.claims("w2", limit=2):
        await lab.engine.complete(claim.handle)
    assert await go_on(lab, claimed) == 1


@scenario
async def test_a_replay_goes_on_in_the_last_chapter_and_a_fresh_one_in_the_first(lab: Lab) -> None:
    claimed = await lab.started()
    await go_on(lab, claimed)
    again = await lab.claim()
    await lab.engine.complete(again.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id)
    again = await lab.claim()
    assert (await lab.engine.load_journal(again.handle)).chapter_index == 1
    await lab.engine.complete(again.handle)
    await lab.engine.replay_execution(execution_id=claimed.execution_id, fresh=True)
    page = await lab.engine.load_journal((await lab.claim()).handle)
    assert (page.journal_index, page.chapter_index, page.entries) == (1, 0, ())


@scenario
async def test_a_member_of_a_flow_stays_one(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.spawn_children(claimed.handle, [child("a")])
    (young,) = await lab.claims("w2")
    await go_on(lab, young)
    again = await lab.claim("w2")
    await lab.engine.complete(again.handle, result=b"1")
    await go_on(lab, claimed)  # the child has ended once, not twice
    assert (await lab.record(again.execution_id)).flow_id is not None


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("arguments", {"arguments": "text"}),
        ("arguments", {"arguments": b"[" * 200 + b"]" * 200}),
        ("version", {"version": ""}),
        ("version", {"version": "x" * (NAME_BYTES + 1)}),
        ("entries", {"entries": [7]}),
        ("frame", {"frames": [7]}),
    ],
)
@scenario
async def test_bad_arguments_are_refused_by_name(
    lab: Lab, field: str, more: dict[str, Any]
) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, field):
        await go_on(lab, claimed, **more)


@scenario
async def test_arguments_that_are_too_large_are_refused(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(PayloadTooLarge):
        await go_on(lab, claimed, b'"' + b"x" * (1 << 20) + b'"')
    assert await journal(lab, claimed.execution_id) == ()
