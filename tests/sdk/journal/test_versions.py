"""Versions of tasks: recorded, shown, and, if a run is pinned, a condition for its worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric import Context, Fabric, InvalidInput, Run
from flowfabric.model.code import pin_of
from flowfabric.sdk.worker.worker import Worker
from tests.sdk.journal.bench import journal, worked
from tests.sdk.workshop import until, within, working


def app(url: str, **options: Any) -> tuple[Fabric, Any]:
    ff = Fabric(url)

    @ff.task(**options)
    async def brief(ctx: Context, topic: str = "x") -> str:
        return str(await ctx.step("say", str.upper, topic))

    return ff, brief


def test_the_version_is_recorded_with_the_first_entry(url: str) -> None:
    ff, brief = app(url, version="3")

    async def main(ff: Fabric) -> None:
        run = await ff.submit(brief)
        await run.result()
        first, *_ = await journal(ff, run)
        assert first.code is not None
        assert first.code.version == "3"

    worked(ff, main)


def test_a_pinned_run_waits_for_a_worker_with_its_version(durable_url: str) -> None:
    """7.1.29."""
    old, brief = app(durable_url, version="2", pin=True)
    new, _ = app(durable_url, version="3", pin=True)
    heir, _ = app(durable_url, version="4", accepts=["3", "2"])

    async def main() -> None:
        async with old, new, heir:
            run = await old.submit(brief, "solar")
            async with working(new):

                async def is_known() -> bool:
                    return "brief@2" in (await run.explain()).summary

                await until(is_known)
                why = await run.explain()
                assert why.summary == "no live worker has brief@2; 1 wait for it"
                assert "ff code move brief 2 TO" in why.hints[1]
                other = await new.submit(new.tasks["brief"], "wind")
                assert await within(other.result()) == "WIND"
            async with working(heir):
                assert await within(run.result()) == "SOLAR"

    asyncio.run(main())


def test_an_unpinned_run_is_claimed_by_every_version(url: str) -> None:
    ff, brief = app(url, version="2")

    async def main(ff: Fabric) -> None:
        run: Run[Any] = await ff.submit(brief)
        assert await run.result() == "X"
        assert (await run.info()).required_capabilities == ()

    worked(ff, main)


def test_children_and_nodes_are_pinned_too() -> None:
    ff, brief = app("memory://", version="2", pin=True, needs=["gpu"])
    assert brief.call().request().policy.routing_requirements.required_capabilities == (
        "gpu",
        pin_of("brief", "2"),
    )
    worker = Worker(ff, capabilities=["gpu"])
    assert worker.settings.capabilities == ("gpu", pin_of("brief", "2"))


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("version", {"version": "a b"}),
        ("version", {"version": ""}),
        ("version", {"version": 3}),
        ("version", {"version": "a,b"}),
        ("version", {"version": "x" * 129}),
        ("pin", {"pin": True}),
        ("pin", {"pin": "yes", "version": "1"}),
        ("accepts", {"accepts": ["2"]}),
        ("accepts", {"version": "3", "accepts": "2"}),
        ("accepts", {"version": "3", "accepts": [2]}),
        ("accepts", {"version": "3", "accepts": ["a b"]}),
        ("accepts", {"version": "3", "accepts": 7}),
        ("on_mismatch", {"on_mismatch": "ignore"}),
    ],
)
def test_wrong_options_are_refused_where_they_are_written(
    field: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        app("memory://", **options)
    assert caught.value.fields["field"] == field
