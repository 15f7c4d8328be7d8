"""Streams of events: none is missed or told twice, and nothing piles up for a slow reader."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final

import httpx

from flowfabric.assemble import open_engine
from flowfabric.clock import stopwatch
from flowfabric.config import EngineConfig
from flowfabric.engine.due_work import sweep
from flowfabric.errors import Unauthorized
from flowfabric.model.record import replace
from flowfabric.model.session import Session, Way
from flowfabric.model.stream import NewFrame
from flowfabric.model.words import StreamMode
from flowfabric.server.access.caller import UNGUARDED
from flowfabric.server.access.guard import OpenGuard
from flowfabric.server.exchange import Call
from flowfabric.server.routes.values import path_id
from flowfabric.server.serve import Server
from flowfabric.server.settings import ServerSettings
from flowfabric.server.streams import sending
from flowfabric.server.streams.reader import HELD_EVENTS_MAX, Reader
from tests.support.following import Follower
from tests.support.http import Desk
from tests.support.lab import Lab, scenario

if TYPE_CHECKING:
    import pytest

RESUMES: Final = int(os.environ.get("FF_STREAM_RESUMES", "12"))
ENDS: Final = "/v1/events?kinds=completion"


async def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so: the streams are tasks of this loop."""
    while not is_so():  # noqa: ASYNC110 - what is looked at has no event of its own
        await asyncio.sleep(0.001)


def subjects(follower: Follower) -> list[Any]:
    return [each.data["subject"] for each in follower.events if each.name == "message"]


@scenario
async def test_a_stream_tells_what_there_is_and_then_what_comes(lab: Lab, desk: Desk) -> None:
    first = await lab.completed()
    follower = Follower(desk, ENDS)
    await follower.until(1)
    second = await lab.completed()
    await follower.until(2)
    assert subjects(follower) == [first, second]
    assert follower.headers["cache-control"] == "no-store"
    assert follower.headers["x-accel-buffering"] == "no"
    await follower.leave()
    assert desk.service.streams == 0


@scenario
async def test_a_reader_killed_and_resumed_at_random_sees_every_event_once_in_order(
    lab: Lab, desk: Desk
) -> None:
    random = Random(1)
    made: list[str] = []
    seen: list[Any] = []
    last: str | None = None
    for _ in range(RESUMES):
        follower = Follower(desk, ENDS, last)
        for _ in range(random.randrange(4)):
            made.append(await lab.completed())
            if random.random() < 0.5:
                await asyncio.sleep(0)
        if random.random() < 0.5:
            await follower.until(min(1, len(made) - len(seen)))
        await follower.leave()
        seen += subjects(follower)
        last = follower.last_id
    follower = Follower(desk, ENDS, last)
    await follower.until(len(made) - len(seen))
    await follower.leave()
    assert [*seen, *subjects(follower)] == made


@scenario
async def test_readers_that_come_while_much_happens_see_every_event_once(
    lab: Lab, desk: Desk
) -> None:
    """They join a reading that is shared, at a place of their own."""
    made: list[str] = []
    followers: list[Follower] = []
    for number in range(10):
        followers.append(Follower(desk, ENDS))
        if number % 2:
            # Of another kind of event: the feed moves on, and this reading is told nothing.
            await lab.engine.hold_execution(execution_id=await lab.create())
        made.append(await _ended(lab, f"k{number}"))
    for each in followers:
        await each.until(len(made))
    assert len(desk.service.feeds) == 1
    for each in followers:
        await each.leave()
        assert subjects(each) == made
    assert len(desk.service.feeds) == 0


async def _ended(lab: Lab, kind: str) -> str:
    key = await lab.create(kind)
    await lab.cancel(key)
    return key


@scenario
async def test_a_stream_of_now_goes_on_where_it_began_although_nothing_was_told(
    lab: Lab, desk: Desk
) -> None:
    await lab.completed()
    follower = Follower(desk, f"{ENDS}&after=now")
    await until(lambda: follower.beats > 0)
    await follower.leave()
    made = await lab.completed()
    again = Follower(desk, f"{ENDS}&after=now", follower.last_id)
    await again.until(1)
    await again.leave()
    assert (subjects(follower), subjects(again)) == ([], [made])


@scenario
async def test_a_reader_that_does_not_read_is_cut_off_with_lagged(quick: Lab) -> None:
    desk = Desk(quick.engine)
    follower = Follower(desk, ENDS)
    first = await quick.completed()
    await follower.until(1)
    (stream,) = desk.service.feeds.readers()
    follower.takes.clear()
    await quick.completed()
    for number in range(HELD_EVENTS_MAX + 2):
        stream.put(b"data: 1\n\n", 1, f"c{number}")
    assert stream.is_lagging
    assert not stream.is_holding
    follower.takes.set()
    assert (await follower.ended())[-1].name == "lagged"
    assert subjects(follower)[0] == first


def test_no_more_is_held_for_a_reader_than_its_bounds() -> None:
    reader = Reader()
    big = b"x" * (1 << 20)
    reader.put(big, 1, "a")
    assert reader.is_holding
    reader.put(b"x", 1, "b")
    assert (reader.is_lagging, reader.is_holding, reader.cursor) == (True, False, "a")


@scenario
async def test_a_reader_that_takes_nothing_for_long_is_disconnected(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_STALL_S", 0.01)
    desk = Desk(quick.engine)
    cut: list[Any] = []
    desk.service.cut = cut.append
    follower = Follower(desk, ENDS)
    await until(lambda: follower.beats > 0)
    follower.takes.clear()
    await quick.completed()
    await until(lambda: bool(cut))
    await follower.leave()
    assert desk.service.streams == 0


@scenario
async def test_a_cursor_older_than_the_retention_is_410_not_silence(lab: Lab, desk: Desk) -> None:
    await lab.completed()
    page = (await desk.get(f"{ENDS}&limit=1")).json
    await lab.completed()
    await lab.after(lab.config.event_retention_ms + 1)
    await lab.completed()
    await sweep(lab.direct, 1000)
    follower = Follower(desk, ENDS, page["cursor"])
    told = await follower.answered()
    assert (follower.status, told["code"]) == (410, "cursor_expired")


@scenario
async def test_no_more_streams_are_open_than_the_settings_allow(quick: Lab) -> None:
    desk = Desk(quick.engine, streams_max=1)
    first = Follower(desk, ENDS)
    await until(lambda: desk.service.streams > 0)
    second = Follower(desk, ENDS)
    told = await second.answered()
    assert (second.status, told["code"]) == (429, "too_many_streams")
    assert int(second.headers["retry-after"]) > 0
    await first.leave()
    third = Follower(desk, ENDS)
    await until(lambda: desk.service.streams > 0)
    await third.leave()


@scenario
async def test_open_streams_keep_no_new_work_out(quick: Lab) -> None:
    desk = Desk(quick.engine, commands_in_flight=1)
    followers = [Follower(desk, ENDS) for _ in range(4)]
    await until(lambda: desk.service.streams == len(followers))
    await desk.created()
    claim = {"worker_id": "w", "worker_instance_id": "w-1", "lanes": ["default"], "wait_ms": 0}
    assert (await desk.post("/v1/workers/claim", claim)).status == 200
    for each in followers:
        await each.leave()


@scenario
async def test_a_stream_ends_with_reconnect_when_the_server_stops(quick: Lab) -> None:
    desk = Desk(quick.engine)
    follower = Follower(desk, ENDS)
    await until(lambda: desk.service.streams > 0)
    desk.service.stopping.set()
    assert [each.name for each in await follower.ended()] == ["reconnect"]
    refused = Follower(desk, ENDS)
    assert (await refused.answered())["code"] == "draining"


@scenario
async def test_a_stream_of_some_age_is_told_to_come_again(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(quick.engine, stream_max_age_ms=600_000)
    follower = Follower(desk, ENDS)
    await until(lambda: follower.beats > 0)
    later = stopwatch() + 1.21 * 600
    monkeypatch.setattr(sending, "stopwatch", lambda: later)
    await quick.completed()
    names = [each.name for each in await follower.ended()]
    assert names[-1] == "reconnect"


@scenario
async def test_a_stream_ends_when_its_token_is_good_no_more(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BEAT_S", 0.001)
    desk = Desk(quick.engine)
    follower = Follower(desk, ENDS)
    await until(lambda: follower.beats > 0)
    desk.service.guard = Revoked()
    await follower.ended()
    assert desk.service.streams == 0


class Busy(Reader):
    """A reader that always holds something."""

    @property
    def is_holding(self) -> bool:
        return True

    def taken(self) -> bytes:
        return b"data: 1\n\n"


@scenario
async def test_a_stream_that_never_rests_ends_with_its_token_too(
    lab: Lab, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BEAT_S", 0.001)
    desk.service.guard = Revoked()
    sent: list[bytes] = []

    async def never() -> Any:
        await asyncio.Event().wait()

    async def send(part: bytes) -> None:
        sent.append(part)
        await asyncio.sleep(0)

    call = Call({"method": "GET", "headers": []}, never, "id")
    stream = sending.EventStream(desk.service, call, Busy(None), lambda _: never())
    async with asyncio.timeout(60):
        await stream.write(send)
    stream.close()
    assert b"data: 1\n\n" in sent


class Revoked(OpenGuard):
    """A guard that lets nobody in any more."""

    async def caller_of(self, call: Any) -> Any:
        raise Unauthorized


@scenario
async def test_a_session_that_notes_its_use_ends_no_stream(
    quick: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_BEAT_S", 0.001)
    desk = Desk(quick.engine, InUse())
    follower = Follower(desk, ENDS)
    await until(lambda: follower.beats > 3)
    assert desk.service.streams == 1
    await follower.leave()


class InUse(OpenGuard):
    """A guard that reads a session which is used again and again."""

    used = 0

    async def caller_of(self, call: Any) -> Any:
        self.used += 1
        session = Session(Way.OIDC, "ada", None, (), 0, self.used, 1 << 50)
        return replace(UNGUARDED, session=session)


# --- frames ---------------------------------------------------------------------------------------


@scenario
async def test_a_stream_of_frames_goes_on_until_the_execution_has_ended(
    lab: Lab, desk: Desk
) -> None:
    claimed = await lab.started()
    path = f"/v1/executions/{path_id(claimed.execution_id)}/stream"
    durable = StreamMode.DURABLE
    await lab.engine.append_frame(claimed.handle, frame=NewFrame(payload=b"1", mode=durable))
    follower = Follower(desk, path)
    await follower.until(1)
    await lab.engine.append_frame(claimed.handle, frame=NewFrame(payload=b"2", mode=durable))
    await follower.until(2)
    await lab.engine.complete(claimed.handle)
    events = await follower.ended()
    assert [each.data.get("payload") for each in events] == [1, 2, None]
    assert (events[-1].name, events[-1].data["closed_reason"]) == ("closed", "completed")
    resumed = Follower(desk, path, events[0].id)
    assert [each.data.get("payload") for each in await resumed.ended()] == [2, None]
    over = Follower(desk, path, resumed.last_id)
    await over.answered()
    assert over.status == 204


# --- through a socket -----------------------------------------------------------------------------


def test_a_stream_through_a_socket_is_told_at_once_and_ends_with_the_client() -> None:
    async def story() -> None:
        engine = open_engine("memory://", config=EngineConfig(loops=False))
        async with engine, Server(engine, ServerSettings(bind="127.0.0.1:0")) as server:
            headers = {"Accept": "text/event-stream"}
            async with (
                httpx.AsyncClient(base_url=server.address, timeout=60) as client,
                client.stream("GET", ENDS, headers=headers) as answer,
            ):
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 2000"
                made = await engine.create_execution(execution_kind="work")
                await engine.cancel_execution(
                    execution_id=made.execution_id, reason="", source="operator_override"
                )
                async for line in lines:
                    if line.startswith("data:"):
                        assert made.execution_id in line
                        break
            await until(lambda: server.service.streams == 0)

    asyncio.run(story())
