"""How a handler with many entries ends, and what its end must not do to others."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from flowfabric import Context, Fabric, PublicState, RunCancelled
from tests.sdk.journal.bench import worked
from tests.sdk.workshop import until

MANY = 150  # entries, more than one report carries


def test_coroutines_that_never_began_are_closed(url: str) -> None:
    """They would warn that they were never awaited, which is not the handler's fault."""
    ff, given = Fabric(url), list[Coroutine[Any, Any, None]]()

    async def side() -> None:
        return None

    @ff.task(retries=1, backoff="1ms")
    async def gathering(ctx: Context) -> None:
        if ctx.attempt == 2:  # changed code: it is held
            given.extend(side() for _ in range(3))
            await ctx.gather(*given)
        await ctx.step("work", lambda: 1)
        raise ValueError("again")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(gathering)

        async def is_held() -> bool:
            return (await run.info()).public_state is PublicState.SUSPENDED

        await until(is_held)
        assert [inspect.getcoroutinestate(each) for each in given] == [inspect.CORO_CLOSED] * 3

    worked(ff, main)


@pytest.mark.parametrize("is_caught", [False, True])
def test_an_end_that_comes_too_late_keeps_no_other_from_being_reported(
    url: str, is_caught: bool
) -> None:
    """The rest of its entries is refused, because it was cancelled meanwhile."""
    ff = Fabric(url)

    @ff.task(retries=0)
    async def cancelled(ctx: Context) -> int:
        async def fail(number: int) -> None:
            if number == MANY - 1:
                engine = await ff.start()
                await engine.cancel_execution(
                    execution_id=ctx.execution_id, reason="x", source="operator_override"
                )
            raise ValueError(number)

        calls = [ctx.step("fail", fail, number) for number in range(MANY)]
        found = await ctx.gather(*calls, return_exceptions=is_caught)
        return len(found)

    @ff.task
    async def other() -> str:
        return "done"

    async def main(ff: Fabric) -> None:
        run = await ff.submit(cancelled)
        with pytest.raises(RunCancelled):
            await run.result()
        assert await (await ff.submit(other)).result() == "done"

    worked(ff, main)
