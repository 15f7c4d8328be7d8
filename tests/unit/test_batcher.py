"""Batches: calls that come together share a commit, and callers that were answered together come
together again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from flowfabric.engine.batch import Batcher, Pending
from flowfabric.kernel.command import Command

CALLERS = 8


class Commits:
    """A store's part: each commit takes a few turns of the loop."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.at_once = 0
        self.most_at_once = 0

    async def __call__(self, batch: Sequence[Pending]) -> None:
        self.sizes.append(len(batch))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        for _ in range(3):
            await asyncio.sleep(0)
        self.at_once -= 1


async def _call(batches: Batcher, times: int) -> None:
    for _ in range(times):
        await batches.run_one(Command[None]())


def _run(batches: Batcher, times: int) -> None:
    async def run() -> None:
        await asyncio.gather(*(_call(batches, times) for _ in range(CALLERS)))
        await batches.idle()

    asyncio.run(run())


@pytest.mark.parametrize("in_flight", [1, 2])
def test_callers_that_are_answered_together_share_the_next_commit(in_flight: int) -> None:
    commits = Commits()
    _run(Batcher(commits, batch_max=100, in_flight=in_flight), 5)
    assert commits.sizes == [CALLERS] * 5


def test_commands_beyond_one_batch_are_committed_at_the_same_time() -> None:
    commits = Commits()
    _run(Batcher(commits, batch_max=CALLERS // 2, in_flight=2), 1)
    assert commits.sizes == [CALLERS // 2] * 2
    assert commits.most_at_once == 2


def test_one_writer_commits_one_batch_after_the_other() -> None:
    commits = Commits()
    _run(Batcher(commits, batch_max=3, in_flight=1), 2)
    assert sum(commits.sizes) == 2 * CALLERS
    assert commits.most_at_once == 1


def test_a_command_that_comes_when_nothing_is_in_flight_goes_at_once() -> None:
    commits = Commits()
    batches = Batcher(commits, batch_max=100, in_flight=1)

    async def run() -> None:
        for _ in range(3):
            await batches.run_one(Command[None]())
            await batches.idle()

    asyncio.run(run())
    assert commits.sizes == [1, 1, 1]
