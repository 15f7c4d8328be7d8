"""`@ff.on`: functions that a worker calls with events."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from flowfabric import Context, Event, Fabric, Worker
from flowfabric.errors import FlowFabricError
from flowfabric.sdk.errors import InvalidTask
from flowfabric.sdk.worker import listening
from tests.sdk.workshop import until, within, working


def fabric(url: str) -> Fabric:
    ff = Fabric(url)

    @ff.task
    async def brief(ctx: Context, topic: str) -> str:
        if topic == "bad":
            raise ValueError(topic)
        return topic

    @ff.task
    async def other(ctx: Context) -> None: ...

    return ff


async def submitted(ff: Fabric, *topics: str) -> list[str]:
    return [(await ff.submit(ff.tasks["brief"], each)).id for each in topics]


async def group_of(ff: Fabric, name: str) -> Any:
    engine = await ff.start()
    found = {each.group_id: each for each in (await engine.list_consumer_groups()).items}
    return found.get(name)


def test_a_handler_is_called_with_each_event_it_asked_for(url: str) -> None:
    async def story() -> None:
        ff, heard, failed = fabric(url), [], []

        @ff.on("completed", kind="brief")
        async def announce(event: Event) -> None:
            heard.append(event.subject)

        @ff.on("failed")
        def complain(event: Event) -> None:  # in a thread
            assert threading.current_thread() is not threading.main_thread()
            failed.append(event.subject)

        async with ff, working(ff):
            ids = await submitted(ff, "a", "b", "bad", "c")
            await ff.submit(ff.tasks["other"])

            async def is_done() -> bool:
                return len(heard) == 3 and len(failed) == 1

            await until(is_done)
            assert sorted(heard) == sorted([ids[0], ids[1], ids[3]])
            assert failed == [ids[2]]

            async def is_acknowledged() -> bool:
                group = await group_of(ff, "announce")
                return bool(group.outstanding == 0 and group.lag_ms == 0)

            await until(is_acknowledged)

    asyncio.run(story())


def test_events_that_came_while_no_worker_ran_are_handled_later(durable_url: str) -> None:
    async def story() -> None:
        ff, heard = fabric(durable_url), []

        @ff.on("completed", group="later")
        async def announce(event: Event) -> None:
            heard.append(event.subject)

        async with ff:
            async with working(ff):
                await until(lambda: _exists(ff, "later"))  # it begins now
            silent = fabric(durable_url)
            async with silent, working(silent):
                (run_id,) = await submitted(ff, "a")
                await ff.run(run_id).result()
            assert heard == []
            async with working(ff):
                await until(lambda: _has(heard, [run_id]))

    asyncio.run(story())


async def _exists(ff: Fabric, group: str) -> bool:
    return await group_of(ff, group) is not None


async def _has(heard: list[str], wanted: list[str]) -> bool:
    return heard == wanted


def test_a_program_may_do_nothing_but_listen(durable_url: str) -> None:
    async def story() -> None:
        listening_only, heard = Fabric(durable_url), []

        @listening_only.on("ended", after=None)
        async def announce(event: Event) -> None:
            heard.append(event.event_type)

        ff = fabric(durable_url)
        async with ff, listening_only, working(ff), working(listening_only):
            await submitted(ff, "a")
            await until(lambda: _has(heard, ["success"]))

    asyncio.run(story())


def test_an_event_is_tried_again_and_then_given_up(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Events of other executions do not wait for it for ever, and may overtake it."""
    caplog.set_level(logging.ERROR, "flowfabric.worker")
    join = listening.Ear.join

    async def join_hastily(ear: Any) -> None:
        await join(ear)
        group = ear._listener
        await ear._engine.create_consumer_group(
            group_id=group.group, kinds=(group.kind,), filter=group.filter, redeliver_ms=1_000
        )

    monkeypatch.setattr(listening.Ear, "join", join_hastily)

    async def story() -> None:
        ff, calls = fabric(url), []

        @ff.on("completed", tries=2)
        async def announce(event: Event) -> None:
            calls.append(event.subject)
            if event.subject == calls[0]:
                raise ValueError("not this one")

        async with ff, working(ff):
            first, second = await submitted(ff, "a", "b")
            await until(lambda: _ended(calls, {first, second}))

            async def is_dropped() -> bool:
                return bool((await group_of(ff, "announce")).dropped == 1)

            await until(is_dropped)
            assert calls.count(calls[0]) >= 2  # once more where it was not alone at first

    asyncio.run(story())
    assert "and is given up" in caplog.text


async def _ended(calls: list[str], wanted: set[str]) -> bool:
    return set(calls) == wanted


def test_a_handler_under_way_is_finished_when_its_worker_stops(url: str) -> None:
    async def story() -> None:
        ff, steps = fabric(url), []
        entered, release = asyncio.Event(), asyncio.Event()

        @ff.on("completed")
        async def announce(event: Event) -> None:
            entered.set()
            await release.wait()
            steps.append("done")

        async with ff:
            async with working(ff) as worker:
                await submitted(ff, "a")
                await within(entered.wait())
                worker.stop()
                await asyncio.sleep(0)
                release.set()
            assert steps == ["done"]
            assert (await group_of(ff, "announce")).outstanding == 0

    asyncio.run(story())


def unknown_word(ff: Fabric) -> None:
    ff.on("sunny")(lambda event: None)


def no_function(ff: Fabric) -> None:
    ff.on("completed")(5)  # type: ignore[type-var]


def no_argument(ff: Fabric) -> None:
    @ff.on("completed")
    def nothing() -> None: ...


def two_of_a_name(ff: Fabric) -> None:
    @ff.on("completed", group="g")
    def one(event: Event) -> None: ...

    @ff.on("completed", group="g")
    def two(event: Event) -> None: ...


WRONG = [(unknown_word, "what"), (no_function, "function"), (no_argument, "function")]


@pytest.mark.parametrize(("call", "field"), [*WRONG, (two_of_a_name, "group")])
def test_a_wrong_handler_is_refused_where_it_is_written(
    call: Callable[[Fabric], None], field: str
) -> None:
    with pytest.raises(InvalidTask) as caught:
        call(Fabric("memory://"))
    assert caught.value.fields["field"] == field


def test_a_wrong_filter_ends_the_worker_that_would_use_it() -> None:
    async def story() -> None:
        ff = fabric("memory://")

        @ff.on("completed", lane="")
        def announce(event: Event) -> None: ...

        async with ff:
            with pytest.raises(FlowFabricError, match="lane_id"):
                await within(Worker(ff).run(handle_signals=False))

    asyncio.run(story())
