"""`ff groups` lists, moves and forgets groups."""

from __future__ import annotations

from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.model.feed import EventFilter
from tests.cli.desk import Desk


async def _group(engine: Engine) -> None:
    wanted = EventFilter(lane_id="default")
    await engine.create_consumer_group(group_id="mail", kinds=("completion",), filter=wanted)


def _completed(desk: Desk) -> None:
    desk.submit()
    desk.complete(desk.claim())


def test_a_listing_shows_how_far_each_group_is(desk: Desk) -> None:
    desk.given(_group)
    _completed(desk)
    _completed(desk)
    desk.given(lambda engine: engine.read_group(group_id="mail", consumer="a", limit=1))
    assert desk.ff("groups") == Exit.OK
    assert "completion lane_id=default" in desk.out
    (found,) = desk.json("groups", "ls")
    assert (found["group_id"], found["outstanding"], found["dropped"]) == ("mail", 1, 0)
    assert found["lag_ms"] > 0


def test_no_group_is_no_error(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("groups") == Exit.OK
    assert "@ff.on" in desk.err
    assert desk.json("groups") == []


def test_a_group_is_moved_to_the_end_and_back(desk: Desk) -> None:
    desk.given(_group)
    _completed(desk)
    assert desk.ff("groups", "reset", "mail") == Exit.OK
    assert desk.json("groups")[0]["lag_ms"] == 0
    assert desk.ff("groups", "reset", "mail", "--after", "oldest") == Exit.OK
    (found,) = desk.json("groups")
    assert found["lag_ms"] > 0
    assert found["filter"]["lane_id"] == "default"


def test_a_group_is_deleted(desk: Desk) -> None:
    desk.given(_group)
    assert desk.ff("groups", "delete", "mail") == Exit.OK
    assert desk.json("groups") == []
    assert desk.ff("groups", "delete", "mail") == Exit.NOT_FOUND
    assert desk.ff("groups", "reset", "mail") == Exit.USAGE
    assert "no group mail" in desk.err


def test_a_wrong_cursor_moves_nothing(desk: Desk) -> None:
    desk.given(_group)
    _completed(desk)
    before = desk.json("groups")[0]["position"]
    assert desk.ff("groups", "reset", "mail", "--after", "here") == Exit.USAGE
    assert desk.json("groups")[0]["position"] == before
