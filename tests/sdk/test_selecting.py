"""Runs are found again by what they have in common, and cancelled or retried together."""

from __future__ import annotations

import asyncio
import gc
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from flowfabric import (
    Context,
    Fabric,
    InvalidInput,
    ManyChanged,
    PublicState,
    Run,
    RunCancelled,
    RunFailed,
    RunFilter,
    StoreUnavailable,
)
from flowfabric.errors import ExecutionNotTerminal
from flowfabric.sdk.selecting import Tally, change_listed
from tests.sdk.workshop import working


def app(url: str) -> Fabric:
    ff = Fabric(url)

    @ff.task(lane="gpu")
    async def render(ctx: Context, frames: int) -> int:
        if frames < 0:
            raise ValueError("no frames")
        return frames

    @ff.task
    async def greet(ctx: Context, name: str) -> str:
        return f"hello, {name}"

    return ff


async def ids(found: Any) -> list[str]:
    return [run.id async for run in found]


def test_runs_are_those_that_fit_every_part_newest_first(url: str) -> None:
    ff = app(url)
    render, greet = ff.tasks["render"], ff.tasks["greet"]

    async def main() -> None:
        async with ff:
            a = await ff.submit(render, 1, tags={"team.name": "a"})
            b = await ff.submit(greet, "x", tags={"team.name": "a"}, delay="1h")
            c = await ff.submit(greet, "y")
            assert await ids(ff.runs()) == [c.id, b.id, a.id]
            assert await ids(ff.runs(kind=greet)) == [c.id, b.id]
            assert await ids(ff.runs(kind="greet", state="waiting")) == [c.id]
            assert await ids(ff.runs(state=["waiting", "delayed"])) == [c.id, b.id, a.id]
            assert await ids(ff.runs(lane="gpu")) == [a.id]
            assert await ids(ff.runs(tag=("team.name", "a"), state="waiting")) == [a.id]
            assert await ids(ff.runs(since="1h")) == [c.id, b.id, a.id]
            assert await ids(ff.runs(before="1h")) == []
            assert await ids(ff.runs(since=datetime.now(UTC) + timedelta(hours=1))) == []
            assert await ids(ff.runs(namespace="other")) == []
            assert await ids(ff.runs(kind="nobody")) == []

    asyncio.run(main())


def test_a_found_run_knows_its_task(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff, working(ff):
            await (await ff.submit("greet", {"name": "ada"})).result("60s")
            [run] = [run async for run in ff.runs(kind="greet")]
            assert isinstance(run, Run)
            assert run.task is ff.tasks["greet"]
            assert await run.result() == "hello, ada"

    asyncio.run(main())


def test_runs_are_those_of_the_fabrics_own_namespace(durable_url: str) -> None:
    ff, other = app(durable_url), Fabric(durable_url, namespace="other")

    async def main() -> None:
        async with ff, other:
            mine = await ff.submit("greet", {"name": "a"})
            theirs = await other.submit("greet", {"name": "b"})
            assert await ids(ff.runs()) == [mine.id]
            assert await ids(other.runs()) == [theirs.id]
            assert await ids(ff.runs(namespace="other")) == [theirs.id]
            assert await ff.cancel_many(RunFilter()) == ManyChanged(1, {})
            assert await theirs.state() == "waiting"

    asyncio.run(main())


def test_pages_are_read_as_they_are_needed(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff:
            runs = await ff.submit_many(ff.tasks["render"], list(range(250)))
            assert await ids(ff.runs()) == [run.id for run in reversed(runs)]
            async for run in ff.runs():
                assert run.id == runs[-1].id
                break

    asyncio.run(main())


def test_states_given_by_an_iterator_hold_for_every_page(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff:
            runs = await ff.submit_many(ff.tasks["render"], list(range(250)))
            await ff.cancel_many(RunFilter())
            delayed = await ff.tasks["render"].options(delay="1h").submit(1)
            chosen = RunFilter(state=(each for each in ["delayed"]))
            for _ in range(2):
                assert await ids(ff.runs(state=iter(["delayed"]))) == [delayed.id]
                assert chosen.listing(0)["states"] == ("delayed",)
            assert len(await ids(ff.runs(state=iter(["cancelled"])))) == len(runs)

    asyncio.run(main())


def test_a_failed_run_is_run_again(url: str) -> None:
    ff = Fabric(url)
    tries: list[int] = []

    @ff.task
    async def flaky(ctx: Context) -> int:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            raise ValueError("the first time")
        return len(tries)

    async def main() -> None:
        async with ff, working(ff):
            run = await flaky.submit()
            with pytest.raises(RunFailed, match="the first time"):
                await run.result("60s")
            await run.retry("once more")
            assert await run.result("60s") == 2
            waiting = await ff.submit("nobody")
            with pytest.raises(ExecutionNotTerminal):
                await waiting.retry()

    asyncio.run(main())


def test_a_run_that_is_retried_can_be_cancelled_again(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff:
            run = await ff.submit("greet", {"name": "ada"})
            for _ in range(3):
                await run.cancel("not now")
                assert await run.state() is PublicState.CANCELLED
                await run.retry()
                assert await run.state() is PublicState.WAITING
            await run.cancel("never")
            with pytest.raises(RunCancelled, match="never"):
                await run.result("60s")

    asyncio.run(main())


def test_many_are_cancelled_and_those_that_ended_are_left_alone(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff:
            async with working(ff, lanes=["default"]):
                done = await ff.submit("greet", {"name": "x"})
                await done.result("60s")
            runs = await ff.submit_many(ff.tasks["render"], list(range(450)))
            changed = await ff.cancel_many(RunFilter(), reason="stop")
            assert (changed.done, changed.refused, changed.matched) == (450, {}, 450)
            assert (await runs[7].info()).cancellation_reason == "stop"
            assert await done.state() == "completed"
            both = await ff.cancel_many(RunFilter(state=["completed", "cancelled"]))
            assert both.done == 450  # cancelling twice is no error
            assert both.refused == {"execution_not_active": 1}
            assert both.matched == 451

    asyncio.run(main())


def test_many_that_failed_are_run_again_once_each(url: str) -> None:
    ff = app(url)

    async def main() -> None:
        async with ff, working(ff):
            runs = await ff.submit_many(ff.tasks["render"], [-1] * 20)
            good = await ff.submit("greet", {"name": "x"})
            await good.result("60s")
            for run in runs:
                with pytest.raises(RunFailed, match="no frames"):
                    await run.result("60s")
            assert await ff.retry_many(RunFilter(since="1h")) == ManyChanged(20, {})
            for run in runs:
                with pytest.raises(RunFailed, match="no frames"):
                    await run.result("60s")
                assert (await run.info()).replay_count == 1
            assert (await good.info()).replay_count == 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ({"state": "faild"}, "states"),
        ({"state": 5}, "states"),
        ({"kind": 5}, "execution_kind"),
        ({"lane": 5}, "lane_id"),
        ({"tag": "a=b"}, "tag"),
        ({"since": "soon"}, "since"),
        ({"before": datetime(2026, 1, 1)}, "before"),  # noqa: DTZ001 - what a user might write
        ({"namespace": 5}, "namespace"),
    ],
)
def test_a_wrong_part_is_refused_by_its_name(parts: dict[str, Any], named: str) -> None:
    ff = app("memory://")

    async def main() -> None:
        async with ff:
            with pytest.raises(InvalidInput, match=named):
                await ids(ff.runs(**parts))
            with pytest.raises(InvalidInput, match=named):
                await ff.cancel_many(RunFilter(**parts))
            with pytest.raises(InvalidInput, match="chosen"):
                await ff.cancel_many(parts)  # type: ignore[arg-type]

    asyncio.run(main())


def test_without_asyncio_it_is_the_same(durable_url: str) -> None:
    ff = app(durable_url)
    with ff.sync as sync:
        runs = [sync.submit(ff.tasks["greet"], "x") for _ in range(3)]
        assert [run.id for run in sync.runs(kind=ff.tasks["greet"])] == [
            run.id for run in reversed(runs)
        ]
        assert sync.cancel_many(RunFilter(state="waiting")).done == 3
        assert sync.retry_many(RunFilter(state="cancelled")).done == 3
        runs[0].cancel()
        runs[0].retry()
        assert runs[0].state() == "waiting"
        assert next(iter(sync.runs(state="waiting"))).id == runs[-1].id


def test_trouble_of_the_store_ends_it_and_the_tally_tells_how_far_it_came() -> None:
    ff = app("memory://")

    async def main() -> None:
        async with ff:
            runs = await ff.submit_many(ff.tasks["render"], list(range(5)))
            tally = Tally()

            async def change(execution_id: str) -> None:
                if execution_id == runs[2].id:
                    raise StoreUnavailable("gone")

            with pytest.raises(StoreUnavailable):
                await change_listed(await ff.start(), {}, change, tally)
            assert tally.done == 4

    asyncio.run(main())


def test_cancelled_it_finishes_the_page_in_hand() -> None:
    ff = app("memory://")

    async def main() -> None:
        async with ff:
            await ff.submit_many(ff.tasks["render"], list(range(500)))
            engine, tally = await ff.start(), Tally()
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def change(execution_id: str) -> None:
                begun.set()
                await go_on.wait()

            work = asyncio.create_task(change_listed(engine, {}, change, tally))
            await begun.wait()
            work.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert tally.done == 200

    asyncio.run(main())


def test_cancelled_it_leaves_no_trouble_of_the_last_page_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncio complains of an error that was never looked at."""
    ff = app("memory://")

    async def main() -> None:
        async with ff:
            await ff.submit_many(ff.tasks["render"], [1])
            begun, go_on = asyncio.Event(), asyncio.Event()

            async def change(execution_id: str) -> None:
                begun.set()
                await go_on.wait()
                raise StoreUnavailable("gone")

            work = asyncio.create_task(change_listed(await ff.start(), {}, change, Tally()))
            await begun.wait()
            work.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(main())
    gc.collect()
    assert [each for each in caplog.records if each.name == "asyncio"] == []
