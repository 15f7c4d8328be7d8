"""The same store for another event loop: what `engine.again()` promises a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from flowfabric.errors import FlowFabricError
from flowfabric.model.results import LeaseRenewal
from flowfabric.model.state import PublicState
from tests.support.lab import LANE, TTL_MS, Lab

MANY = 60


def in_a_thread(work: Callable[[], Coroutine[Any, Any, None]]) -> threading.Thread:
    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    return thread


def test_another_thread_renews_the_leases_of_a_loop_that_does_not_run(lab: Lab) -> None:
    claimed = lab.run(lab.started())
    lab.clock.advance(TTL_MS - 1)
    answers: list[LeaseRenewal | FlowFabricError] = []

    async def renew() -> None:
        twin = lab.engine.again()
        await twin.start(migrate=False)
        answers.extend(await twin.renew_many([claimed.handle]))
        await twin.close()

    in_a_thread(renew).join()  # the lab's own loop stands still meanwhile
    (renewed,) = answers
    assert isinstance(renewed, LeaseRenewal)
    assert renewed.expires_at_ms == lab.now + TTL_MS
    lab.run(lab.engine.complete(claimed.handle))


def test_two_threads_that_work_at_once_leave_a_sound_store(lab: Lab) -> None:
    async def work(engine: Any, worker: str) -> None:
        done = 0
        while done < MANY:
            await engine.create_execution(execution_kind="work")
            for claimed in await engine.claim(
                lanes=(LANE,), worker_id=worker, worker_instance_id=worker, limit=3
            ):
                await engine.renew(claimed.handle)
                await engine.complete(claimed.handle, result=worker.encode())
            done += 1

    async def beside() -> None:
        twin = lab.engine.again()
        await twin.start(migrate=False)
        await work(twin, "beside")
        await twin.close()

    thread = in_a_thread(beside)
    lab.run(work(lab.engine, "here"))
    thread.join()

    async def finish() -> None:
        while found := await lab.claims(limit=100):
            for claimed in found:
                await lab.engine.complete(claimed.handle)
        assert (await lab.engine.doctor()).problems == ()

    lab.run(finish())
    stored = lab.run(lab.engine.dump())
    assert len(stored["executions"]) == 2 * MANY
    states = {execution.public_state for execution in stored["executions"]}
    assert states == {PublicState.COMPLETED}
    assert len(stored["attempts"]) == len(stored["completion_events"]) == 2 * MANY


def test_a_twin_starts_though_the_configured_secret_was_rotated_away(lab: Lab) -> None:
    async def story() -> None:
        await lab.configure(waitpoint_secret="ab" * 32, waitpoint_kid="first")
        await lab.engine.rotate_waitpoint_hmac_secret_all(new_kid="second", grace_ms=0)
        lab.clock.advance(1)
        await lab.engine.sweep()
        kids = [each.kid for each in await lab.engine.list_waitpoint_hmac_kids()]
        assert "second" in kids
        assert "first" not in kids
        twin = lab.engine.again()
        await twin.start(migrate=False)
        await twin.close()

    lab.run(story())
