"""Live parts: what has changed is sent, once, to those that may see it; idle pages ask nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest

from flowfabric.errors import StoreUnavailable
from flowfabric.server.streams import watches
from tests.support.following import Follower
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.pages import Document, shown


@pytest.fixture
def lab(quick: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """In memory: the store is not the point; and without a pause between two looks."""
    monkeypatch.setattr(watches, "_PACE_S", 0.0)
    return quick


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - what is looked at has no event of its own
        await asyncio.sleep(0.001)


def live_address(page: Document) -> str:
    """The stream of a page, for a browser that has the page's parts."""
    body = next(attributes for tag, attributes in page.elements if tag == "body")
    had = ",".join(
        f"{attributes['data-part']}:{attributes['data-v']}"
        for _, attributes in page.elements
        if "data-part" in attributes
    )
    return f"/ui/live?of={quote(body['data-live'], safe='')}&have={had}"


def parts(follower: Follower) -> list[dict[str, Any]]:
    return [part for each in follower.events if each.name == "parts" for part in each.data["parts"]]


@scenario
async def test_a_change_is_sent_as_the_part_that_it_is_in(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key = await lab.create("brief")
    page = await shown(desk, "/ui/runs")
    follower = Follower(desk, live_address(page))
    await until(lambda: len(desk.service.watches) == 1)
    await lab.cancel(key)
    await follower.until(1)
    (part, *_) = parts(follower)
    assert part["name"] == "runs"
    assert "cancelled" in part["html"]
    await follower.leave()
    assert len(desk.service.watches) == 0


@scenario
async def test_new_rows_are_counted_above_the_list_and_do_not_push_it(lab: Lab) -> None:
    desk = Desk(lab.engine)
    old = await lab.create("old")
    page = await shown(desk, "/ui/runs")
    follower = Follower(desk, live_address(page))
    await until(lambda: len(desk.service.watches) == 1)
    lab.clock.advance(10)
    await lab.create("fresh")
    await follower.until(1)
    (part, *_) = parts(follower)
    assert "1 new" in part["html"]
    assert "fresh</b>" not in part["html"]
    assert "old</b>" in part["html"]
    assert old
    await follower.leave()


@scenario
async def test_viewers_with_the_same_rights_share_one_look(lab: Lab) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/runs")
    followers = [Follower(desk, live_address(page)) for _ in range(20)]
    await until(lambda: desk.service.streams == 20)
    assert len(desk.service.watches) == 1
    (watch, _) = next(iter(desk.service.watches._open.values()))
    before = watch.version
    await lab.create("brief")
    for each in followers:
        await each.until(1)
    assert watch.version - before <= 3
    for each in followers:
        await each.leave()


@scenario
async def test_a_page_that_nothing_happens_to_asks_the_store_nothing(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/runs")
    followers = [Follower(desk, live_address(page)) for _ in range(5)]
    await until(lambda: desk.service.streams == 5)
    (watch, _) = next(iter(desk.service.watches._open.values()))
    before = watch.version
    for _ in range(50):
        await asyncio.sleep(0)
    assert watch.version == before
    for each in followers:
        await each.leave()


@scenario
async def test_who_comes_again_is_sent_what_it_may_have_missed_and_nothing_twice(lab: Lab) -> None:
    desk = Desk(lab.engine)
    key = await lab.create("brief")
    address = live_address(await shown(desk, "/ui/runs"))
    stays = Follower(desk, address)
    goes = Follower(desk, address)
    await until(lambda: desk.service.streams == 2)
    await lab.cancel(key)
    await goes.until(1)
    last = goes.last_id
    await goes.leave()
    again = Follower(desk, address, last)
    await until(lambda: desk.service.streams == 2)
    await again.leave()
    assert parts(again) == []
    from_before = Follower(desk, address, "w-other.7")
    await from_before.until(1)
    assert [each["name"] for each in parts(from_before)] == ["runs"]
    await from_before.leave()
    await stays.leave()


@scenario
async def test_an_outage_is_told_and_the_page_recovers_by_itself(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "_PAUSE_S", 0.001)
    desk = Desk(lab.engine)
    page = await shown(desk, "/ui/runs")
    follower = Follower(desk, live_address(page))
    await until(lambda: desk.service.streams == 1)
    told = lab.engine.server_time_ms

    async def down() -> int:
        raise StoreUnavailable("the store is down", retry_after_ms=1)

    monkeypatch.setattr(lab.engine, "server_time_ms", down)
    desk.service.watches._ring_all()
    await follower.until(1)
    assert follower.events[0].name == "trouble"
    monkeypatch.setattr(lab.engine, "server_time_ms", told)
    await lab.create("brief")
    await until(lambda: bool(parts(follower)))
    await follower.leave()


@scenario
async def test_changes_of_another_namespace_are_not_told(lab: Lab) -> None:
    desk = Desk(lab.engine)
    made = await lab.engine.create_access_token(name="x", scopes=("read",), namespaces=("a",))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    page = await shown(desk, "/ui/runs", headers=bearer)
    assert "b-kind" not in "".join(page.texts)
    address = live_address(page)
    key = await lab.create("b-kind", namespace="b")
    reply = await desk.get(address.replace("/ui/live", "/ui/parts"), headers=bearer)
    assert reply.json["parts"] == []
    assert key


@scenario
async def test_a_stream_of_which_nothing_is_read_leaves_no_watch(lab: Lab) -> None:
    desk = Desk(lab.engine)
    reply = await desk.ask("HEAD", live_address(await shown(desk, "/ui/runs")))
    assert (reply.status, reply.body) == (200, b"")
    assert (len(desk.service.watches), desk.service.streams) == (0, 0)


@scenario
async def test_live_parts_need_the_scope_of_their_page(lab: Lab) -> None:
    desk = Desk(lab.engine)
    made = await lab.engine.create_access_token(name="x", scopes=("worker",))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    for path in ("/ui/live", "/ui/parts"):
        assert (await desk.get(f"{path}?of=/ui/runs", headers=bearer)).status == 403
        assert (await desk.get(f"{path}?of=//evil/ui", headers=bearer)).status == 422
        assert (await desk.get(f"{path}?of=/ui/search", headers=bearer)).status == 404


@scenario
async def test_a_page_that_leads_elsewhere_has_no_live_parts(lab: Lab) -> None:
    made = await lab.engine.create_access_token(name="x", scopes=("approve",))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    assert (await Desk(lab.engine).get("/ui/parts?of=/ui", headers=bearer)).status == 404


@scenario
async def test_words_are_looked_for_as_rarely_by_pages_as_by_programs(lab: Lab) -> None:
    desk = Desk(lab.engine, rate_expensive=1)
    made = await lab.engine.create_access_token(name="x", scopes=("read",))
    bearer = {"authorization": f"Bearer {made.token.reveal()}"}
    paths = ["/ui/runs?q=hay", f"/ui/parts?of={quote('/ui/runs?q=hay')}"]
    assert [(await desk.get(each, headers=bearer)).status for each in paths] == [200, 200]
    assert [(await desk.get(each, headers=bearer)).status for each in paths] == [429, 429]
    assert (await desk.get("/ui/runs?q=state:failed", headers=bearer)).status == 200


class Shown:
    def __init__(self, *, is_quiet: bool) -> None:
        self.is_quiet = is_quiet


@scenario
async def test_time_alone_is_no_reason_to_look_where_nothing_runs(lab: Lab) -> None:
    several = Desk(lab.engine).service.watches
    looks = {True: 0, False: 0}

    def looking(is_quiet: bool) -> Callable[[], Awaitable[object]]:
        async def look() -> object:
            looks[is_quiet] += 1
            return Shown(is_quiet=is_quiet)

        return look

    quiet = await several.watch("quiet", ("tick:0.001s",), looking(True))
    busy = await several.watch("busy", ("tick:0.001s",), looking(False))
    await until(lambda: looks[False] > 3)
    assert looks[True] == 1
    several.leave("quiet", quiet)
    several.leave("busy", busy)
    assert len(several) == 0
