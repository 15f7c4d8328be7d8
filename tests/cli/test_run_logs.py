"""`ff logs` shows what a handler logged, harmless for a terminal, and ends with the execution."""

from __future__ import annotations

import json

import pytest

from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.limits import LOG_LINES_MAX
from flowfabric.model.handle import Handle
from flowfabric.model.log_lines import LogBatch, NewLine
from tests.cli.desk import Desk

AT = 1_700_000_000_000  # 2023-11-14T22:13:20Z
EVIL = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202e\rgone\nERROR app: forged"


async def _claimed(engine: Engine) -> tuple[str, Handle]:
    created = await engine.create_execution(
        execution_kind="talk",
        policy={"retry_policy": {"max_retries": 1, "backoff": {"type": "fixed", "delay_ms": 0}}},
    )
    return created.execution_id, await _claim(engine)


async def _claim(engine: Engine) -> Handle:
    (claimed,) = await engine.claim(
        lanes=("default",), worker_id="w", worker_instance_id="w-1", lease_ttl_ms=30_000
    )
    return claimed.handle


async def _talk(engine: Engine) -> str:
    execution_id, handle = await _claimed(engine)
    first = LogBatch(lines=(NewLine("one", AT, 20, "app"), NewLine("two", AT, 40, "app.db")))
    await engine.fail(handle, reason="broke", logs=first)
    second = LogBatch(lines=(NewLine("three", AT + 1_000, 30),))
    await engine.complete(await _claim(engine), logs=second)
    return execution_id


async def _attack(engine: Engine) -> str:
    execution_id, handle = await _claimed(engine)
    lines = (NewLine(EVIL, AT, 20, "app"),)
    await engine.complete(handle, logs=LogBatch(lines=lines))
    return execution_id


async def _flood(engine: Engine) -> str:
    execution_id, handle = await _claimed(engine)
    lines = tuple(NewLine(str(number), AT) for number in range(LOG_LINES_MAX))
    await engine.complete(handle, logs=LogBatch(lines=lines, dropped=7))
    return execution_id


def test_logs_shows_all_attempts(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("logs", execution_id, "--follow") == Exit.OK
    assert desk.out.splitlines() == [
        "2023-11-14T22:13:20Z info     app: one",
        "2023-11-14T22:13:20Z error    app.db: two",
        "--- attempt 2",
        "2023-11-14T22:13:21Z warning  three",
    ]


def test_logs_of_one_attempt(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("logs", execution_id, "--attempt", "2") == Exit.OK
    assert desk.out == "2023-11-14T22:13:21Z warning  three\n"


def test_logs_as_json_have_places_to_go_on_from(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("logs", execution_id, "--json") == Exit.OK
    lines = [json.loads(each) for each in desk.out.splitlines()]
    assert lines[1] == {
        "place": "0:2",
        "attempt": 1,
        "at": AT,
        "level": "error",
        "logger": "app.db",
        "message": "two",
    }
    assert desk.ff("logs", execution_id, "--after", lines[1]["place"]) == Exit.OK
    assert desk.out.splitlines() == ["--- attempt 2", "2023-11-14T22:13:21Z warning  three"]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_no_control_character_of_a_line_reaches_the_terminal(
    desk: Desk, form: tuple[str, ...]
) -> None:
    assert desk.ff("logs", desk.given(_attack), *form) == Exit.OK
    printed = desk.out.replace("\n", "")
    assert printed.isprintable()
    assert not any(each in printed for each in "\x1b\x9b\x07\r\u202e")
    assert len(desk.out.splitlines()) == (1 if form else 2)
    if form:
        assert json.loads(desk.out)["message"] == EVIL
    else:  # a forged line is not at the beginning of one
        assert desk.out.splitlines()[1] == "    ERROR app: forged"


def test_dropped_lines_are_told(desk: Desk) -> None:
    assert desk.ff("logs", desk.given(_flood)) == Exit.OK
    assert len(desk.out.splitlines()) == LOG_LINES_MAX + 1
    assert "flowfabric.logs: the log of this attempt is full" in desk.out.splitlines()[-1]
    assert "7 lines were dropped" in desk.err


def test_logs_refuses_a_malformed_place(desk: Desk) -> None:
    execution_id = desk.given(_talk)
    assert desk.ff("logs", execution_id, "--after", "here") == Exit.USAGE
    assert "after" in desk.err


def test_logs_of_an_execution_that_logged_nothing_prints_nothing(desk: Desk) -> None:
    assert desk.ff("logs", desk.submit()) == Exit.OK
    assert desk.out == ""
