"""Forks of runs with children: those of the copied part are not spawned again."""

from __future__ import annotations

import asyncio

from flowfabric import Context, Fabric, PublicState
from tests.sdk.journal.bench import worked
from tests.sdk.workshop import until


def test_a_fork_waits_for_the_children_of_the_run_it_came_from(url: str) -> None:
    ff, gate, ran = Fabric(url), asyncio.Event(), []

    @ff.task
    async def child(number: int) -> int:
        ran.append(number)
        await gate.wait()
        return number

    @ff.step
    async def mark(name: str) -> str:
        return name

    @ff.task
    async def handle(ctx: Context) -> list[int]:
        spawned = await ctx.spawn_many(child, [1, 2])
        await mark("after the spawn")
        return list(await ctx.gather(*spawned))

    async def main(ff: Fabric) -> None:
        run = await ff.submit(handle)

        async def is_waiting() -> bool:
            return await run.state() is PublicState.WAITING_CHILDREN

        await until(is_waiting)
        fork = await run.fork(before="mark")

        async def is_suspended() -> bool:
            return await fork.state() is PublicState.SUSPENDED

        await until(is_suspended)  # they are not its own: it watches them
        gate.set()
        assert await fork.result() == [1, 2]
        assert await run.result() == [1, 2]
        assert sorted(ran) == [1, 2]

    worked(ff, main)
