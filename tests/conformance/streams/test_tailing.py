"""Tailing: woken by frames and by the end, late by a second at most when every hint is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from flowfabric import limits
from flowfabric.errors import InvalidInput, ResourceExhausted
from flowfabric.model.stream import ClosedReason, StreamPage
from tests.support.lab import Lab, scenario
from tests.support.streams import append, frame, tail

LONG_MS = 30_000


async def waiting(lab: Lab, ask: Any) -> asyncio.Task[StreamPage]:
    """A tail that has looked and waits."""
    task = asyncio.create_task(ask)
    for _ in range(500):
        await asyncio.sleep(0.01)
        if lab.direct.tails.waiting_count and not task.done():
            break
    await asyncio.sleep(0.05)
    assert not task.done()
    return task


@scenario
async def test_a_frame_wakes_a_tail(lab: Lab) -> None:
    claimed = await lab.started()
    task = await waiting(lab, tail(lab, claimed, wait_ms=LONG_MS))
    await append(lab, claimed, frame(b"news"))
    found = await asyncio.wait_for(task, 10)
    assert [each.payload for each in found.frames] == [b"news"]


@pytest.mark.parametrize("end", ["complete", "fail", "cancel"])
def test_the_end_wakes_a_tail(lab: Lab, end: str) -> None:
    async def check() -> None:
        claimed = await lab.started()
        await append(lab, claimed, frame())
        after = (await tail(lab, claimed)).next_cursor
        task = await waiting(lab, tail(lab, claimed, after=after, wait_ms=LONG_MS))
        if end == "complete":
            await lab.engine.complete(claimed.handle)
        elif end == "fail":
            await lab.engine.fail(claimed.handle, reason="broke")
        else:
            await lab.cancel(claimed.execution_id)
        found = await asyncio.wait_for(task, 10)
        assert found.frames == ()
        assert found.closed_at == lab.now

    lab.run(check())


@scenario
async def test_the_end_of_an_attempt_alone_wakes_a_tail(lab: Lab) -> None:
    backoff = {"type": "fixed", "delay_ms": 60_000}
    claimed = await lab.started(policy={"retry_policy": {"max_retries": 1, "backoff": backoff}})
    task = await waiting(lab, tail(lab, claimed, wait_ms=LONG_MS))
    await lab.engine.fail(claimed.handle, reason="broke")
    assert (await asyncio.wait_for(task, 10)).closed_reason is ClosedReason.FAILED


@scenario
async def test_a_tail_without_news_ends_with_its_time(lab: Lab) -> None:
    claimed = await lab.started()
    await append(lab, claimed, frame())
    after = (await tail(lab, claimed)).next_cursor
    found = await asyncio.wait_for(tail(lab, claimed, after=after, wait_ms=50), 10)
    assert found == StreamPage((), after)


@scenario
async def test_a_peek_does_not_wait(lab: Lab) -> None:
    claimed = await lab.started()
    assert (await asyncio.wait_for(tail(lab, claimed), 10)).frames == ()


@scenario
async def test_hidden_frames_do_not_end_a_wait(lab: Lab) -> None:
    claimed = await lab.started()
    ask = tail(lab, claimed, wait_ms=LONG_MS, visibility="exclude_best_effort")
    task = await waiting(lab, ask)
    await append(lab, claimed, frame(mode="best_effort"))
    await asyncio.sleep(0.05)
    await append(lab, claimed, frame(b"kept"))
    assert [each.payload for each in (await asyncio.wait_for(task, 10)).frames] == [b"kept"]


@scenario
async def test_losing_every_hint_costs_a_second(lab: Lab) -> None:
    """The shared look finds frames and ends, of one attempt and of all."""
    claimed, other = await lab.started(), await lab.started()
    hints = lab.direct.store.hints

    def lose(_topics: Mapping[str, int]) -> None:
        return None

    whole = lab.engine.read_execution_stream
    first = await waiting(lab, tail(lab, claimed, wait_ms=LONG_MS))
    second = asyncio.create_task(whole(execution_id=claimed.execution_id, wait_ms=LONG_MS))
    third = asyncio.create_task(whole(execution_id=other.execution_id, wait_ms=LONG_MS))
    await asyncio.sleep(0.1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hints, "publish", lose)
        await append(lab, claimed, frame(b"news"))
        await lab.engine.complete(other.handle)
        pages = await asyncio.wait_for(asyncio.gather(first, second, third), 10)
    assert [len(page.frames) for page in pages] == [1, 1, 0]
    assert pages[2].closed_reason is ClosedReason.COMPLETED


@scenario
async def test_idle_tails_share_one_look(lab: Lab) -> None:
    """Two queries a second, however many wait."""
    claims = [await lab.started() for _ in range(5)]
    reads = 0
    engine = lab.direct
    plain = engine.store.read

    async def counted(work: Any) -> Any:
        nonlocal reads
        reads += 1
        return await plain(work)

    tasks = [
        asyncio.create_task(tail(lab, claims[number % 5], wait_ms=LONG_MS)) for number in range(200)
    ]
    for _ in range(1_000):
        await asyncio.sleep(0.01)
        if engine.tails.waiting_count == 200:
            break
    await asyncio.sleep(0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.store, "read", counted)
        await engine.tails.look()
        assert reads == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@scenario
async def test_a_tail_too_many_is_told_to_come_back(lab: Lab) -> None:
    await lab.configure(tails_max=1)
    claimed = await lab.started()
    task = await waiting(lab, tail(lab, claimed, wait_ms=LONG_MS))
    with pytest.raises(ResourceExhausted) as caught:
        await tail(lab, claimed, wait_ms=LONG_MS)
    assert caught.value.fields["retry_after_ms"] > 0
    assert (await tail(lab, claimed)).frames == ()  # a peek is no tail
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await tail(lab, claimed, wait_ms=1)).frames == ()


@scenario
async def test_a_wait_has_bounds(lab: Lab) -> None:
    claimed = await lab.started()
    for wait_ms in (-1, limits.TAIL_MS_MAX + 1):
        with pytest.raises(InvalidInput, match="wait_ms"):
            await tail(lab, claimed, wait_ms=wait_ms)


@scenario
async def test_a_reader_over_all_attempts_sees_every_frame_once(lab: Lab) -> None:
    """It follows the execution through a retry, and ends with it."""
    backoff = {"type": "fixed", "delay_ms": 0}
    execution_id = await lab.create(policy={"retry_policy": {"max_retries": 3, "backoff": backoff}})
    seen: list[bytes] = []

    async def follow() -> StreamPage:
        after = None
        while True:
            found = await lab.engine.read_execution_stream(
                execution_id=execution_id, after=after, limit=2, wait_ms=LONG_MS
            )
            seen.extend(each.payload for each in found.frames)
            if found.closed_at is not None:
                return found
            after = found.next_cursor

    reader = asyncio.create_task(follow())
    wanted = []
    for attempt in range(3):
        claimed = await lab.claim()
        for number in range(5):
            wanted.append(f"{attempt}/{number}".encode())
            await append(lab, claimed, frame(wanted[-1]))
            await asyncio.sleep(0.002)
        if attempt < 2:
            await lab.engine.fail(claimed.handle, reason="broke")
        else:
            await lab.engine.complete(claimed.handle)
    last = await asyncio.wait_for(reader, 20)
    assert seen == wanted
    assert last.closed_reason is ClosedReason.COMPLETED
