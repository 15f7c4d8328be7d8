"""`ff tail` shows frames as they are, and ends with the execution."""

from __future__ import annotations

import json

from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.model.stream import FrameKind, NewFrame
from tests.cli.desk import Desk


async def _talk(engine: Engine) -> str:
    created = await engine.create_execution(
        execution_kind="talk",
        policy={"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 0}}},
    )
    for attempt in (1, 2):
        (claimed,) = await engine.claim(
            lanes=("default",), worker_id="w", worker_instance_id="w-1", lease_ttl_ms=30_000
        )
        frames = [
            NewFrame(payload=f"line {attempt}\n".encode(), kind=FrameKind.STDOUT),
            NewFrame(payload=b'{"n":%d}' % attempt, frame_type="usage"),
            NewFrame(payload=b"warning", kind=FrameKind.STDERR),
        ]
        if attempt == 1:
            await engine.fail(claimed.handle, reason="broke", frames=frames)
        else:
            await engine.complete(claimed.handle, frames=frames)
    return created.execution_id


def test_tail_shows_all_attempts(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("tail", execution_id, "--follow") == Exit.OK
    assert desk.out == 'line 1\n{"n":1}\nline 2\n{"n":2}\n'
    assert desk.err.count("warning") == 2


def test_tail_of_one_attempt(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("tail", execution_id, "--attempt", "2") == Exit.OK
    assert desk.out == 'line 2\n{"n":2}\n'


def test_tail_as_json_has_places_to_go_on_from(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("tail", execution_id, "--json") == Exit.OK
    frames = [json.loads(line) for line in desk.out.splitlines()]
    assert [each["attempt"] for each in frames] == [1, 1, 1, 2, 2, 2]
    assert frames[1]["payload"] == {"n": 1}
    assert frames[1]["type"] == "usage"
    assert desk.ff("tail", execution_id, "--after", frames[3]["place"]) == Exit.OK
    assert desk.out == '{"n":2}\n'


def test_tail_refuses_a_malformed_place(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("tail", execution_id, "--after", "here") == Exit.USAGE
    assert "after" in desk.err


def test_tail_of_an_execution_without_frames_prints_nothing(desk: Desk) -> None:
    assert desk.ff("tail", desk.submit()) == Exit.OK
    assert desk.out == ""
