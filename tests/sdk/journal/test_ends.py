"""How a handler with many entries ends, and what its end must not do to others."""

from __future__ import annotations

import pytest

from flowfabric import Context, Fabric, RunCancelled
from tests.sdk.journal.bench import worked

MANY = 150  # entries, more than one report carries


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
