"""Reading logs: pages that skip nothing, woken by lines and by the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.ids import new_execution_id
from flowfabric.limits import PAGE_MAX, TAIL_MS_MAX
from flowfabric.model.log_lines import LogPage
from flowfabric.model.stream import ClosedReason
from tests.support.lab import Lab, scenario
from tests.support.logs import batch, log, messages, page
from tests.support.streams import append, frame

LONG_MS = 30_000
ONE_RETRY = {"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 0}}}


async def whole(lab: Lab, execution_id: str, limit: int) -> tuple[list[str], LogPage]:
    """All lines, page by page, and the last page."""
    seen, after = [], None
    while True:
        found = await lab.engine.read_logs(execution_id=execution_id, after=after, limit=limit)
        seen += [each.message for each in found.lines]
        if found.closed_at is not None or found.next_cursor == after:
            return seen, found
        after = found.next_cursor


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_pages_follow_each_other_without_gap_or_overlap(lab: Lab, size: int) -> None:
    async def check() -> None:
        claimed = await lab.started()
        await log(lab, claimed, "0", "1", "2")
        await log(lab, claimed, "3")
        await log(lab, claimed, "4", "5", "6", "7")
        seen, after = [], None
        while (found := await page(lab, claimed, after=after, limit=size)).lines:
            assert len(found.lines) <= size
            seen += [each.message for each in found.lines]
            after = found.next_cursor
        assert seen == list("01234567")

    lab.run(check())


@scenario
async def test_more_rows_than_one_search_reads_are_one_page(lab: Lab) -> None:
    claimed = await lab.started()
    for number in range(40):
        await log(lab, claimed, str(number))
    assert await messages(lab, claimed) == list(map(str, range(40)))
    assert await messages(lab, claimed, after="0:35") == list(map(str, range(35, 40)))


@scenario
async def test_a_log_without_lines_is_empty_and_open(lab: Lab) -> None:
    claimed = await lab.started()
    assert await page(lab, claimed) == LogPage((), "0:0")
    assert await lab.engine.read_logs(execution_id=claimed.execution_id) == LogPage((), "0:0")


@scenario
async def test_the_last_page_alone_says_that_the_log_is_closed(lab: Lab) -> None:
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle, logs=batch("a", "b", "c", "d"))
    first = await page(lab, claimed, limit=3)
    assert (len(first.lines), first.closed_at) == (3, None)
    second = await page(lab, claimed, after=first.next_cursor, limit=3)
    assert (len(second.lines), second.closed_reason) == (1, ClosedReason.COMPLETED)
    exact = await page(lab, claimed, limit=4)
    assert (len(exact.lines), exact.closed_at) == (4, lab.now)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_all_attempts_are_read_as_one(lab: Lab, limit: int) -> None:
    async def check() -> None:
        claimed = await lab.started(policy=ONE_RETRY)
        await log(lab, claimed, "a", "b", "c")
        await lab.engine.fail(claimed.handle, reason="broke")
        again = await lab.claim()
        await log(lab, again, "d", "e")
        seen, last = await whole(lab, claimed.execution_id, limit)
        assert seen == list("abcde")
        assert last.closed_at is None
        assert (await page(lab, claimed)).closed_reason is ClosedReason.FAILED
        assert await messages(lab, again) == ["d", "e"]
        await lab.engine.complete(again.handle, logs=batch("f"))
        seen, last = await whole(lab, claimed.execution_id, limit)
        assert seen == list("abcdef")
        assert (last.closed_at, last.closed_reason) == (lab.now, ClosedReason.COMPLETED)

    lab.run(check())


@scenario
async def test_an_attempt_that_logged_nothing_is_passed_over(lab: Lab) -> None:
    claimed = await lab.started(policy=ONE_RETRY)
    await lab.engine.fail(claimed.handle, reason="broke")
    again = await lab.claim()
    await lab.engine.complete(again.handle, logs=batch("b"))
    found = await lab.engine.read_logs(execution_id=claimed.execution_id)
    assert [(each.attempt_index, each.message) for each in found.lines] == [(1, "b")]


@scenario
async def test_an_execution_that_never_ran_has_an_end_too(lab: Lab) -> None:
    execution_id = await lab.create()
    await lab.cancel(execution_id)
    found = await lab.engine.read_logs(execution_id=execution_id)
    assert (found.lines, found.closed_reason) == ((), ClosedReason.CANCELLED)


@scenario
async def test_a_purged_execution_takes_its_logs_along(lab: Lab) -> None:
    claimed = await lab.started(policy={"retention_ttl_ms": 10})
    other = await lab.started()
    await log(lab, other, "stays")
    await lab.engine.complete(claimed.handle, logs=batch("goes"))
    await lab.after(11)
    stored = await lab.dump()
    for table in ("ff_run_log", "ff_run_log_chunk"):
        assert [each.execution_id for each in stored[table]] == [other.execution_id]
    with pytest.raises(NotFound):
        await page(lab, claimed)


# --- namespaces ----------------------------------------------------------------------------------


@scenario
async def test_executions_of_two_tenants_have_logs_of_their_own(lab: Lab) -> None:
    for name in ("a", "b"):
        await lab.create(namespace=name)
    one, other = await lab.claim(namespace="a"), await lab.claim(namespace="b")
    await log(lab, one, "of a", first=1)
    await log(lab, other, "of b", first=1)
    assert (await messages(lab, one), await messages(lab, other)) == (["of a"], ["of b"])


# --- bad input -----------------------------------------------------------------------------------


@scenario
async def test_a_reader_needs_an_execution(lab: Lab) -> None:
    for index in (None, 0):
        with pytest.raises(NotFound):
            await lab.engine.read_logs(execution_id=new_execution_id(), attempt_index=index)


@pytest.mark.parametrize(
    "cursor", ["", ":", "1", "1:", ":1", "x:1", "1:x", "-1:1", "1:-1", "1:2:3", "1" * 11 + ":1"]
)
def test_a_malformed_place_is_refused(lab: Lab, cursor: str) -> None:
    async def check() -> None:
        claimed = await lab.started()
        for index in (None, 0):
            with pytest.raises(InvalidCursor, match="after"):
                await lab.engine.read_logs(
                    execution_id=claimed.execution_id, attempt_index=index, after=cursor
                )

    lab.run(check())


@scenario
async def test_a_place_in_another_attempt_is_refused(lab: Lab) -> None:
    claimed = await lab.started()
    with pytest.raises(InvalidCursor, match="attempt 0"):
        await page(lab, claimed, after="1:0")


@scenario
async def test_a_place_beyond_the_end_is_only_waited_for(lab: Lab) -> None:
    claimed = await lab.started()
    await log(lab, claimed, "a")
    assert await page(lab, claimed, after="0:9") == LogPage((), "0:9")


@scenario
async def test_numbers_out_of_bounds_are_refused(lab: Lab) -> None:
    claimed = await lab.started()
    for field, wrong in (
        ("limit", 0),
        ("limit", PAGE_MAX + 1),
        ("wait_ms", -1),
        ("wait_ms", TAIL_MS_MAX + 1),
        ("attempt_index", -1),
    ):
        with pytest.raises(InvalidInput, match=field):
            await lab.engine.read_logs(execution_id=claimed.execution_id, **{field: wrong})  # type: ignore[arg-type]


# --- waiting -------------------------------------------------------------------------------------


async def waiting(lab: Lab, ask: Any) -> asyncio.Task[LogPage]:
    """A reader that has looked and waits."""
    task = asyncio.create_task(ask)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if lab.direct.tails.waiting_count and not task.done():
            break
    await asyncio.sleep(0.05)
    assert not task.done()
    return task


@pytest.mark.parametrize("is_whole", [False, True])
def test_a_line_wakes_a_reader(lab: Lab, is_whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a hint: the look that finds lost ones is left out."""

    async def no_look() -> None:
        return None

    async def check() -> None:
        monkeypatch.setattr(lab.direct.tails, "look", no_look)
        claimed = await lab.started()
        index = None if is_whole else 0
        ask = lab.engine.read_logs(
            execution_id=claimed.execution_id, attempt_index=index, wait_ms=LONG_MS
        )
        task = await waiting(lab, ask)
        await log(lab, claimed, "news")
        found = await asyncio.wait_for(task, 10)
        assert [each.message for each in found.lines] == ["news"]

    lab.run(check())


@scenario
async def test_lines_that_come_with_the_end_wake_a_reader(lab: Lab) -> None:
    claimed = await lab.started()
    task = await waiting(lab, page(lab, claimed, wait_ms=LONG_MS))
    await lab.engine.complete(claimed.handle, logs=batch("last"))
    found = await asyncio.wait_for(task, 10)
    assert [each.message for each in found.lines] == ["last"]
    assert found.closed_at == lab.now


@scenario
async def test_frames_do_not_end_the_wait_for_a_line(lab: Lab) -> None:
    claimed = await lab.started()
    task = await waiting(lab, page(lab, claimed, wait_ms=LONG_MS))
    await append(lab, claimed, frame())
    await asyncio.sleep(0.05)
    assert not task.done()
    await log(lab, claimed, "news")
    assert [each.message for each in (await asyncio.wait_for(task, 10)).lines] == ["news"]


@scenario
async def test_a_wait_without_news_ends_with_its_time(lab: Lab) -> None:
    claimed = await lab.started()
    await log(lab, claimed, "a")
    assert await page(lab, claimed, after="0:1", wait_ms=50) == LogPage((), "0:1")


@scenario
async def test_losing_every_hint_costs_a_second(lab: Lab) -> None:
    """The shared look finds lines and ends, of one attempt and of all, beside tails of streams."""
    claimed, other = await lab.started(), await lab.started()

    def lose(_topics: Mapping[str, int]) -> None:
        return None

    read = lab.engine.read_logs
    first = await waiting(lab, page(lab, claimed, wait_ms=LONG_MS))
    second = asyncio.create_task(read(execution_id=claimed.execution_id, wait_ms=LONG_MS))
    third = asyncio.create_task(read(execution_id=other.execution_id, wait_ms=LONG_MS))
    stream = asyncio.create_task(
        lab.engine.read_execution_stream(execution_id=claimed.execution_id, wait_ms=LONG_MS)
    )
    await asyncio.sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lab.direct.store.hints, "publish", lose)
        await log(lab, claimed, "news")
        await lab.engine.complete(other.handle)
        pages = await asyncio.wait_for(asyncio.gather(first, second, third), 10)
        assert not stream.done()
        await append(lab, claimed, frame(b"shown"))
        assert len((await asyncio.wait_for(stream, 10)).frames) == 1
    assert [len(each.lines) for each in pages] == [1, 1, 0]
    assert pages[2].closed_reason is ClosedReason.COMPLETED


@scenario
async def test_a_reader_that_goes_on_where_it_waited_in_vain_gets_the_next_line(lab: Lab) -> None:
    """It begins with its last, empty page, and the shared look finds what came in between."""
    claimed = await lab.started()
    await log(lab, claimed, "a")
    assert (await page(lab, claimed, after="0:1", wait_ms=300)).lines == ()
    await log(lab, claimed, "b")
    found = await asyncio.wait_for(page(lab, claimed, after="0:1", wait_ms=LONG_MS), 10)
    assert [each.message for each in found.lines] == ["b"]
