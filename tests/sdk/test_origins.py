"""A worker tells the class of a failure, and the innermost function of the user's own code."""

from __future__ import annotations

import asyncio
import json

import pytest

from flowfabric import Context, Fabric
from flowfabric.errors import FlowFabricError
from flowfabric.model.failure import FailureOrigin
from flowfabric.sdk.worker.origins import origin_of
from tests.sdk.workshop import within, working


class NoCard(Exception):
    """Ours."""


def charge(text: str) -> None:
    if not text:
        raise NoCard
    json.loads(text)  # fails inside the library


def failed(text: str) -> FailureOrigin:
    with pytest.raises((NoCard, ValueError)) as caught:
        charge(text)
    found = origin_of(caught.value, "2")
    assert found is not None
    return found


def test_the_innermost_own_function_is_told_and_no_frame_of_a_library() -> None:
    own, library = failed(""), failed("{")
    assert own == FailureOrigin(
        exception=f"{__name__}.NoCard", frame=f"{__name__}:charge", line=own.line, version="2"
    )
    assert (library.exception, library.frame) == ("json.decoder.JSONDecodeError", own.frame)
    assert library.line == (own.line or 0) + 1


def test_an_error_without_an_own_frame_has_only_its_class() -> None:
    assert origin_of(ValueError("x"), None) == FailureOrigin(exception="ValueError")
    assert origin_of(None, "2") is None


def test_failures_of_a_worker_are_groups_by_their_place() -> None:
    ff = Fabric("memory://")

    @ff.task(retries=0, version="7")
    async def order(ctx: Context, text: str) -> None:
        await ctx.step("charge", charge, text)

    @ff.task(retries=0)
    def refund(text: str) -> None:
        charge(text)

    async def main() -> None:
        async with ff, working(ff):
            runs = [await order.submit(""), await refund.submit("{"), await refund.submit("[")]
            for run in runs:
                with pytest.raises(FlowFabricError):
                    await within(run.result())
            engine = await ff.start()
            places = {}
            for run in runs:
                told = await engine.describe_failure(execution_id=run.id)
                assert told is not None
                places[run.id] = told.fingerprint
            assert places[runs[1].id] == places[runs[2].id] != places[runs[0].id]

    asyncio.run(main())
