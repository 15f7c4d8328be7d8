"""`run.retry(input=…)`: a new run with other arguments."""

from __future__ import annotations

import asyncio

import pytest

from flowfabric import Fabric, RunFailed
from flowfabric.errors import InvalidInput
from tests.sdk.workshop import within, working


def test_a_run_is_retried_with_another_argument() -> None:
    ff = Fabric("memory://")

    @ff.task(retries=0)
    async def halve(number: int, note: str) -> str:
        if number % 2:
            raise ValueError(number)
        return f"{number // 2} {note}"

    async def main() -> None:
        async with ff, working(ff):
            run = await halve.submit(7, "x")
            with pytest.raises(RunFailed):
                await within(run.result())
            again = await run.retry(input={"number": 8}, key="k")
            assert await within(again.result()) == "4 x"
            assert (await again.info()).retried_from == run.id
            same = await run.retry(input={"number": 8}, key="k")
            assert (same.id, same.is_new, again.is_new) == (again.id, False, True)
            assert [each.id for each in await run.retries()] == [again.id]
            with pytest.raises(InvalidInput, match="key"):
                await run.retry(key="k")  # type: ignore[call-overload]
            with pytest.raises(InvalidInput, match="fresh"):
                await run.retry(input={"number": 8}, fresh=True)  # type: ignore[call-overload]

    asyncio.run(main())


def test_and_by_a_blocking_program() -> None:
    ff = Fabric("memory://")

    @ff.task
    async def halve(number: int) -> None: ...

    with ff.sync as sync:
        run = sync.submit(halve, 7)
        run.cancel()
        again = run.retry(input={"number": 8})
        assert [each.id for each in run.retries()] == [again.id]
        assert again.info().retried_from == run.id
