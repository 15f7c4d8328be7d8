"""ps, show, why and result say what is there, and leave nothing behind where nothing is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.ids import new_execution_id
from tests.cli.desk import Desk


@pytest.mark.parametrize(
    "words",
    [
        ("ps",),
        ("show", new_execution_id()),
        ("why", new_execution_id()),
        ("result", new_execution_id()),
        ("cancel", new_execution_id()),
        ("retry", new_execution_id()),
        ("priority", new_execution_id(), "5"),
        ("hold", new_execution_id()),
        ("release", new_execution_id()),
        ("revoke", new_execution_id()),
        ("lanes",),
        ("lanes", "pause", "default"),
        ("workers",),
        ("db", "check"),
        ("doctor",),
    ],
)
def test_a_missing_database_is_named_and_not_created(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.ff(*words) == Exit.NOT_FOUND
    assert str(desk.path) in desk.err
    assert "ff db migrate" in desk.err
    assert not desk.path.exists()


@pytest.mark.parametrize("command", ["show", "why", "result"])
def test_an_unknown_id_is_not_found(desk: Desk, command: str) -> None:
    desk.submit()
    assert desk.ff(command, new_execution_id()) == Exit.NOT_FOUND
    assert "ff ps" in desk.err


@pytest.mark.parametrize("command", ["show", "why", "result", "cancel", "hold", "revoke"])
def test_a_malformed_id_is_a_mistake_of_the_command_line(desk: Desk, command: str) -> None:
    desk.submit()
    assert desk.ff(command, "nonsense") == Exit.USAGE
    assert "is not an id" in desk.err
    assert desk.ff(command, new_execution_id().replace("fp:", "fp:9")[:40]) == Exit.USAGE
    beyond = "{fp:999}:" + new_execution_id().partition("}:")[2]
    assert desk.ff(command, beyond) == Exit.USAGE
    assert "execution_id" in desk.err


def test_ps_lists_newest_first(desk: Desk) -> None:
    first, second = desk.submit("greet"), desk.submit("render")
    assert desk.ff("ps") == Exit.OK
    lines = desk.out.splitlines()
    assert lines[0].split()[:4] == ["ID", "STATE", "KIND", "TRY"]
    assert lines[1].startswith(second[-8:])
    assert lines[2].startswith(first[-8:])


def test_ps_filters(desk: Desk) -> None:
    done = desk.completed()
    waiting = desk.submit("render", "--lane", "video", "--tag", "team.name=blue")

    def ids(*words: str) -> list[str]:
        return [row["execution_id"] for row in desk.json("ps", *words)["executions"]]

    assert ids("--state", "completed") == [done]
    assert ids("--state", "waiting,failed") == [waiting]
    assert ids("--state", "waiting", "--state", "completed") == [waiting, done]
    assert ids("--lane", "video") == [waiting]
    assert ids("--kind", "greet") == [done]
    assert ids("--tag", "team.name=blue") == [waiting]
    assert ids("--since", "1h") == [waiting, done]
    assert ids("--since", "2999-01-01") == []
    assert ids("--text", "rend") == [waiting]
    assert ids("--namespace", "elsewhere") == []


def test_ps_goes_on_from_a_cursor_or_shows_everything(desk: Desk) -> None:
    ids = [desk.submit() for _ in range(5)][::-1]
    page = desk.json("ps", "--limit", "2")
    assert [row["execution_id"] for row in page["executions"]] == ids[:2]
    rest = desk.json("ps", "--cursor", page["next_cursor"])
    assert [row["execution_id"] for row in rest["executions"]] == ids[2:]
    assert rest["next_cursor"] is None
    assert len(desk.json("ps", "--limit", "2", "--all")["executions"]) == 5
    assert desk.ff("ps", "--limit", "2") == Exit.OK
    assert "--cursor" in desk.err


def test_ps_says_when_nothing_matches(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("ps", "--state", "failed") == Exit.OK
    assert desk.out == ""
    assert "no executions match" in desk.err


def test_show_tells_the_whole_story(desk: Desk) -> None:
    done = desk.completed()
    assert desk.ff("show", done) == Exit.OK
    for expected in (
        done,
        "completed",
        "greet",
        '{"name": "ada"}',
        "hello",
        "ended_success",
        "ada",
    ):
        assert expected in desk.out
    assert " ago (" in desk.out


def test_show_accepts_the_bare_uuid(desk: Desk) -> None:
    done = desk.completed()
    assert desk.ff("show", done.partition("}:")[2]) == Exit.OK
    assert done in desk.out


def test_show_as_json_has_attempts_payload_and_result_but_no_secret(desk: Desk) -> None:
    desk.submit("greet", "name=ada", "times:=3")
    claimed = desk.claim()
    shown = desk.json("show", claimed.execution_id)
    assert shown["public_state"] == "active"
    assert shown["payload"] == {"name": "ada", "times": 3}
    assert shown["result"] is None
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["started"]
    assert shown["current_lease"]["worker_id"] == "ada"
    assert claimed.lease_id not in desk.out


def test_why_says_that_no_worker_is_there(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("why", waiting) == Exit.OK
    assert desk.out.startswith("waiting: no live worker is registered")
    assert "start a worker on lane default" in desk.out


def test_why_lists_workers_that_could_run_it_and_missing_capabilities(desk: Desk) -> None:
    waiting = desk.submit("greet", "--needs", "gpu")

    async def register(engine: Engine) -> None:
        await engine.register_worker(
            worker_id="ada", worker_instance_id="ada-1", lanes=["default"], liveness_ttl_ms=60_000
        )

    desk.given(register)
    assert desk.ff("why", waiting) == Exit.OK
    assert "gpu" in desk.out
    assert "ada/ada-1" in desk.out
    explained = desk.json("why", waiting)
    assert explained["missing_capabilities"] == ["gpu"]
    assert explained["could_run"][0]["fits"] is False


def test_result_prints_the_result(desk: Desk) -> None:
    done = desk.completed()
    assert desk.ff("result", done) == Exit.OK
    assert desk.out == "hello\n"
    assert desk.json("result", done)["result"] == "hello"


def test_result_of_a_failure_exits_with_one_and_its_reason(desk: Desk) -> None:
    failed = desk.failed()
    assert desk.ff("result", failed) == Exit.FAILED
    assert desk.out == ""
    assert "KeyError: 'x'" in desk.err
    document = desk.json("result", failed, code=Exit.FAILED)
    assert (document["public_state"], document["result"]) == ("failed", None)


def test_result_of_unfinished_work_exits_with_six(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("result", waiting) == Exit.TIMEOUT
    assert "is waiting" in desk.err
    assert desk.ff("result", waiting, "--wait", "0.05") == Exit.TIMEOUT


def test_result_waits_without_end_when_told_no_time(desk: Desk) -> None:
    waiting = desk.submit()
    with ThreadPoolExecutor() as pool:
        pool.submit(lambda: desk.complete(desk.claim(), b'"done"'))
        assert desk.ff("result", waiting, "--wait") == Exit.OK
    assert desk.out == "done\n"


def test_result_raw_is_byte_for_byte(desk: Desk) -> None:
    desk.submit()
    claimed = desk.claim()
    desk.complete(claimed, b'{"a":   1}\x00')
    assert desk.ff("result", claimed.execution_id, "--raw") == Exit.OK
    assert desk.out == '{"a":   1}\x00'


def test_show_prints_the_traceback_of_every_failed_attempt(desk: Desk) -> None:
    traces = [
        '  File "a.py", line 1, in f\n    g()',
        '  File "b.py", line 2, in h\n    \x1b[31mk()',
    ]
    execution_id = desk.submit("greet", "--retries", "3")
    for number, trace in enumerate([traces[0], traces[1], traces[1]], start=1):

        async def work(engine: Engine, number: int = number, trace: str = trace) -> None:
            [claimed] = await engine.claim(
                lanes=["default"], worker_id="ada", worker_instance_id="ada-1", limit=1
            )
            reason = f"ValueError: number {number}\n{trace}"
            await engine.fail(claimed.handle, reason=reason, retry_after_ms=0)

        desk.given(work)
    assert desk.ff("show", execution_id) == Exit.OK
    assert 'attempt 1: ValueError: number 1\n  File "a.py", line 1, in f\n    g()\n' in desk.out
    assert 'attempts 2 to 3: ValueError: number 3\n  File "b.py", line 2, in h\n' in desk.out
    assert "\x1b" not in desk.out
