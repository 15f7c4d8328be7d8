"""What nests too deep for JSON is refused with the reason, once, and never run again and again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Fabric, FlowFailed, InvalidInput, RunFailed
from tests.sdk.workshop import within, working


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


DEPTHS = [65, 500, 5_000]


async def _fails_once(url: str, depth: int, *, named: bool) -> tuple[int, str]:
    ff = Fabric(url)
    calls = []

    @ff.task(retries=3)
    async def dig(n: int) -> Any:
        calls.append(n)
        return nested(n)

    @ff.task
    async def take(found: Any, other: Any = None) -> int:
        return 1

    async with ff, working(ff):
        if named:
            with ff.flow("digging") as f:
                found, flat = f.add(dig, depth), f.add(take, 1)
                f.add(take, found, other=flat)
            with pytest.raises(FlowFailed) as flow_error:
                await within((await f.submit()).result())
            return len(calls), str(flow_error.value)
        with pytest.raises(RunFailed) as error:
            await within((await ff.submit(dig, depth)).result())
        return len(calls), error.value.reason


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_result_that_nests_too_deep_fails_its_execution_once(
    url: str, depth: int, named: bool
) -> None:
    """Also in a join: the report is not dropped and the work not run again until it gives up."""
    calls, reason = asyncio.run(_fails_once(url, depth, named=named))
    assert calls == 1
    assert "nest" in reason or "recursion" in reason


@pytest.mark.parametrize("depth", DEPTHS)
def test_an_argument_that_nests_too_deep_is_refused_at_the_submit(url: str, depth: int) -> None:
    async def story() -> None:
        ff = Fabric(url)

        @ff.task
        async def take(found: Any) -> int:
            return 1

        async with ff:
            with pytest.raises(InvalidInput, match=r"found|input_payload"):
                await ff.submit(take, nested(depth))
            with pytest.raises(InvalidInput):
                await ff.submit_many(take, [nested(depth)])

    asyncio.run(story())
