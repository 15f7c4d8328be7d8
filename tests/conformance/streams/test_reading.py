"""Reading: pages that skip nothing, places as text, and the end of a stream with its reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.ids import new_execution_id
from flowfabric.limits import READ_FRAMES_MAX
from flowfabric.model.results import Claimed
from flowfabric.model.stream import ClosedReason
from flowfabric.model.words import StreamMode
from tests.support.lab import TTL_MS, Lab, scenario
from tests.support.streams import append, frame, page, payloads, summary, tail

ONE_RETRY = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 0}}}


async def written(lab: Lab, count: int, **fields: Any) -> Claimed:
    """A running execution with frames 0, 1, 2 … in several milliseconds."""
    claimed = await lab.started(**fields)
    for number in range(count):
        await append(lab, claimed, frame(str(number).encode()))
        lab.clock.advance(number % 2)
    return claimed


@scenario
async def test_pages_follow_each_other_without_gap_or_overlap(lab: Lab) -> None:
    claimed = await written(lab, 10)
    seen, after = [], "0-0"
    for size in (3, 3, 3, 3):
        found = await tail(lab, claimed, after=after, count_limit=size)
        seen += [each.payload for each in found.frames]
        after = found.next_cursor
    assert seen == [str(n).encode() for n in range(10)]


@scenario
async def test_both_bounds_of_a_read_are_included(lab: Lab) -> None:
    claimed = await written(lab, 5)
    ids = [each.id for each in (await page(lab, claimed)).frames]
    assert await payloads(lab, claimed, from_cursor=ids[1], to_cursor=ids[3]) == [b"1", b"2", b"3"]
    assert await payloads(lab, claimed, from_cursor=ids[4]) == [b"4"]
    assert await payloads(lab, claimed, to_cursor=ids[0]) == [b"0"]


@scenario
async def test_milliseconds_alone_mean_their_first_frame(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, frame(b"a"), frame(b"b"))
    at = str(lab.now)
    assert await payloads(lab, claimed, from_cursor=at) == [b"a", b"b"]
    assert await payloads(lab, claimed, to_cursor=at) == [b"a"]


@scenario
async def test_a_stream_without_frames_is_empty_and_open(lab: Lab) -> None:
    claimed = await lab.started()
    found = await page(lab, claimed)
    assert (found.frames, found.next_cursor, found.closed_at) == ((), "0-0", None)


@scenario
async def test_the_last_page_alone_says_that_the_stream_is_closed(lab: Lab) -> None:
    """So a reader that stops at `closed_at` has seen everything."""
    claimed = await written(lab, 4)
    await lab.engine.complete(claimed.handle)
    first = await tail(lab, claimed, count_limit=3)
    assert (len(first.frames), first.closed_at) == (3, None)
    second = await tail(lab, claimed, after=first.next_cursor, count_limit=3)
    assert (len(second.frames), second.closed_reason) == (1, ClosedReason.COMPLETED)
    exact = await tail(lab, claimed, count_limit=4)
    assert (len(exact.frames), exact.closed_at) == (4, second.closed_at)


@scenario
async def test_best_effort_frames_are_left_out_before_the_page_is_cut(lab: Lab) -> None:
    claimed = await lab.started()
    for number in range(6):
        mode = "best_effort" if number < 5 else "durable"
        await append(lab, claimed, frame(str(number).encode(), mode=mode))
    found = await page(lab, claimed, count_limit=1, visibility="exclude_best_effort")
    assert [each.payload for each in found.frames] == [b"5"]
    await append(lab, claimed, frame(b"6", mode="best_effort"))
    rest = await tail(lab, claimed, after=found.next_cursor, visibility="exclude_best_effort")
    assert rest.frames == ()
    assert rest.next_cursor > found.next_cursor  # it does not look at the same frames again


@scenario
async def test_modes_are_read_in_one_order(lab: Lab) -> None:
    claimed = await lab.started()
    modes = [each for _ in range(5) for each in StreamMode]
    for number, mode in enumerate(modes):
        await append(lab, claimed, frame(f'{{"n":{number}}}'.encode(), mode=mode))
    seen, after = [], "0-0"
    while (found := await tail(lab, claimed, after=after, count_limit=4)).frames:
        seen += [each.mode for each in found.frames]
        after = found.next_cursor
    assert seen == modes


@scenario
async def test_every_reader_needs_an_execution(lab: Lab) -> None:
    missing = new_execution_id()
    for ask in (
        lab.engine.read_stream(execution_id=missing, attempt_index=0),
        lab.engine.tail_stream(execution_id=missing, attempt_index=0),
        lab.engine.read_summary(execution_id=missing, attempt_index=0),
        lab.engine.read_execution_stream(execution_id=missing),
    ):
        with pytest.raises(NotFound):
            await ask


@pytest.mark.parametrize(
    "cursor", ["", "-", "+", "x", "1-", "-1", "1-2-3", "1.5", "1" * 20, "\uff19"]
)
def test_a_malformed_place_is_refused(lab: Lab, cursor: str) -> None:
    async def check() -> None:
        claimed = await lab.started()
        for name in ("from_cursor", "to_cursor"):
            with pytest.raises(InvalidCursor, match=name):
                await page(lab, claimed, **{name: cursor})
        with pytest.raises(InvalidCursor, match="after"):
            await tail(lab, claimed, after=cursor)
        with pytest.raises(InvalidCursor, match="after"):
            await lab.engine.read_execution_stream(execution_id=claimed.execution_id, after=cursor)

    lab.run(check())


@scenario
async def test_a_tail_needs_a_concrete_place(lab: Lab) -> None:
    claimed = await lab.started()
    for marker in ("start", "end"):
        with pytest.raises(InvalidCursor, match=marker):
            await tail(lab, claimed, after=marker)


@scenario
async def test_a_page_has_at_least_one_and_at_most_ten_thousand_frames(lab: Lab) -> None:
    claimed = await lab.started()
    for count in (0, READ_FRAMES_MAX + 1):
        with pytest.raises(InvalidInput, match="count_limit"):
            await page(lab, claimed, count_limit=count)
        with pytest.raises(InvalidInput, match="limit"):
            await lab.engine.read_execution_stream(execution_id=claimed.execution_id, limit=count)


# --- the end of a stream -------------------------------------------------------------------------

End = Callable[[Lab, Claimed], Awaitable[Any]]


async def _lease_runs_out(lab: Lab, claimed: Claimed) -> None:
    await lab.after(TTL_MS)
    await lab.after(0)


async def _lease_is_revoked(lab: Lab, claimed: Claimed) -> None:
    await lab.engine.revoke_lease(execution_id=claimed.execution_id, reason="suspicious")
    await lab.after(0)


async def _time_passes(lab: Lab, claimed: Claimed) -> None:
    await lab.after(5_000)


ENDS: dict[str, tuple[ClosedReason, dict[str, Any], End]] = {
    "complete": (
        ClosedReason.COMPLETED,
        {},
        lambda lab, claimed: lab.engine.complete(claimed.handle),
    ),
    "fail": (
        ClosedReason.FAILED,
        {},
        lambda lab, claimed: lab.engine.fail(claimed.handle, reason="broke"),
    ),
    "fail and retry": (
        ClosedReason.FAILED,
        ONE_RETRY,
        lambda lab, claimed: lab.engine.fail(claimed.handle, reason="broke"),
    ),
    "cancel by the owner": (
        ClosedReason.CANCELLED,
        {},
        lambda lab, claimed: lab.engine.cancel(claimed.handle, reason="enough"),
    ),
    "cancel by an operator": (
        ClosedReason.CANCELLED,
        {},
        lambda lab, claimed: lab.cancel(claimed.execution_id),
    ),
    "attempt timeout": (
        ClosedReason.TIMED_OUT,
        {"timeout_policy": {"attempt_timeout_ms": 5_000}},
        _time_passes,
    ),
    "deadline": (
        ClosedReason.EXPIRED,
        {"timeout_policy": {"execution_deadline_ms": 5_000}},
        _time_passes,
    ),
    "lease expired": (ClosedReason.LEASE_EXPIRED, {}, _lease_runs_out),
    "lease revoked": (ClosedReason.LEASE_REVOKED, {}, _lease_is_revoked),
    "lease expired for good": (
        ClosedReason.LEASE_EXPIRED,
        {"max_reclaim_count": 0},
        _lease_runs_out,
    ),
}


@pytest.mark.parametrize("how", ENDS)
def test_every_end_of_an_attempt_closes_its_stream(lab: Lab, how: str) -> None:
    async def check() -> None:
        reason, policy, end = ENDS[how]
        claimed = await lab.started(policy=policy)
        await append(lab, claimed, frame(b"seen"))
        assert (await page(lab, claimed)).closed_at is None
        await end(lab, claimed)
        found = await page(lab, claimed)
        assert [each.payload for each in found.frames] == [b"seen"]
        assert (found.closed_reason, found.closed_at) == (reason, lab.now)

    lab.run(check())


@scenario
async def test_the_next_attempt_has_a_stream_of_its_own(lab: Lab) -> None:
    claimed = await lab.started(policy=ONE_RETRY)
    await append(lab, claimed, frame(b"first"))
    await lab.engine.fail(claimed.handle, reason="broke")
    again = await lab.claim()
    await append(lab, again, frame(b"second"))
    assert await payloads(lab, claimed) == [b"first"]
    assert await payloads(lab, again) == [b"second"]
    assert (await page(lab, claimed)).closed_reason is ClosedReason.FAILED
    assert (await page(lab, again)).closed_at is None


# --- all attempts --------------------------------------------------------------------------------


async def whole(lab: Lab, execution_id: str, limit: int) -> tuple[list[bytes], Any]:
    """All frames, page by page, and the last page."""
    seen, after = [], None
    while True:
        found = await lab.engine.read_execution_stream(
            execution_id=execution_id, after=after, limit=limit
        )
        seen += [each.payload for each in found.frames]
        if found.closed_at is not None or found.next_cursor == after:
            return seen, found
        after = found.next_cursor


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_all_attempts_are_read_as_one(lab: Lab, limit: int) -> None:
    async def check() -> None:
        claimed = await lab.started(policy=ONE_RETRY)
        await append(lab, claimed, *(frame(each) for each in (b"a", b"b", b"c")))
        await lab.engine.fail(claimed.handle, reason="broke")
        again = await lab.claim()
        await append(lab, again, frame(b"d"), frame(b"e"))
        seen, last = await whole(lab, claimed.execution_id, limit)
        assert seen == [b"a", b"b", b"c", b"d", b"e"]
        assert last.closed_at is None
        await lab.engine.complete(again.handle, frames=[frame(b"f")])
        seen, last = await whole(lab, claimed.execution_id, limit)
        assert seen == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert (last.closed_at, last.closed_reason) == (lab.now, ClosedReason.COMPLETED)

    lab.run(check())


@scenario
async def test_an_execution_that_never_ran_has_an_end_too(lab: Lab) -> None:
    execution_id = await lab.create()
    found = await lab.engine.read_execution_stream(execution_id=execution_id)
    assert found.closed_at is None
    await lab.cancel(execution_id)
    found = await lab.engine.read_execution_stream(execution_id=execution_id)
    assert (found.frames, found.closed_reason) == ((), ClosedReason.CANCELLED)


@scenario
async def test_a_purged_execution_takes_its_streams_along(lab: Lab) -> None:
    claimed = await lab.started(policy={"retention_ttl_ms": 10})
    await append(lab, claimed, frame(), summary(b'{"a":1}'), frame(mode="best_effort"))
    await lab.engine.complete(claimed.handle)
    await lab.after(11)
    stored = await lab.dump()
    for table in ("ff_stream_meta", "ff_stream_summary", "ff_stream_frame"):
        assert stored[table] == []
