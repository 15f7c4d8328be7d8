"""What newcomers run first works."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.server_thread import ServerThread
from tests.support.socketed import THROUGH_HTTP

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / script)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# By HTTP as well in every run; the others only where FF_THROUGH=http says so.
_ALSO_BY_HTTP = (
    "test_an_agent_pays_once_for_what_it_thought",
    "test_the_approval_needs_two_people",
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each example tells the same on a store and on a server."""
    if "at" in metafunc.fixturenames:
        both = THROUGH_HTTP or metafunc.function.__name__ in _ALSO_BY_HTTP
        metafunc.parametrize("at", ("store", "server") if both else ("store",), indirect=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for all examples."""
    thread = ServerThread(f"sqlite:///{tmp_path_factory.mktemp('server') / 'examples.db'}")
    yield thread.address
    thread.close()


@pytest.fixture
def at(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Where an example works: on a file of its own, or at a server that knows the other ones."""
    if request.param == "server":
        return {"FLOWFABRIC_URL": request.getfixturevalue("server")}
    return {"FLOWFABRIC_URL": f"sqlite:///{tmp_path / 'example.db'}"}


def test_hello_says_hello(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("hello.py", tmp_path, **at)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello, world\n"


def test_the_token_budget_warns_stops_and_goes_on(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("token_budget.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.sub(r"prompts-\w{6}", "prompts", done.stdout)
    before, after = told.split("an operator: ")
    assert "tides: tokens 900 is over 800" in before
    assert "tides: no room, tokens 1200/1200" in before
    assert "tokens      [#############|######] 100%  1200 of 1200" in before
    for prompt in ("solar", "wind"):
        assert f"{prompt:12}ended: completed" in before
    for prompt in ("tides", "geothermal", "fusion"):
        assert f"{prompt:12}budget prompts: tokens 1200/1200" in before
        assert f"{prompt:12}" in after
    assert "done:\n" in after
    assert not [line for line in after.splitlines() if "no room" in line]


def test_an_asking_agent_is_raised_and_stopped_by_a_person(
    tmp_path: Path, at: dict[str, str]
) -> None:
    done = run("asking_agent.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "question 1: 800 of 1000 tokens are used, 400 more are wanted by research",
        "the sun, thought through 3 times",
        "question 2: 1200 of 1200 tokens are used, 400 more are wanted by research",
        "question 3: 1600 of 1200 tokens are used, 400 more are wanted by research",
        "the wind, thought through 1 times; stopped by ada: enough",
        "1600 used of 1200, and 400 allowed; 4 calls of the model",
    ]


def test_a_saga_is_undone_when_it_is_cancelled_and_when_it_fails(
    tmp_path: Path, at: dict[str, str]
) -> None:
    assert run("hello.py", tmp_path, **at).returncode == 0  # an earlier run of the same store
    done = run("cancelled_saga.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    cancelled, failed = done.stdout.split("a trip that fails:")
    took_back = [line.split()[-1] for line in cancelled.splitlines() if "took back" in line]
    assert took_back == ["car-rome", "hotel-rome", "flight-rome"]
    assert "told the customer: cancelled" in cancelled
    took_back = [line.partition("back ")[2] for line in failed.splitlines() if "took" in line]
    assert took_back == ["hotel-the moon", "flight-the moon"]
    assert "told the customer: failed" in failed
    assert "undo: undo, 2 of them" in failed


def test_an_agent_pays_once_for_what_it_thought(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("agent.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "published: solar, thought through, thought through, thought through" in done.stdout
    assert "2 attempts, 3 calls of the model, 117 tokens" in done.stdout
    assert "2 tries to publish, under 1 key" in done.stdout


def test_a_month_of_reminders_is_tested_in_no_time(tmp_path: Path) -> None:
    done = run("dunning.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "after 30 days: 3 reminders, waits for ['hand-over']",
        "invoice 7: handed over",
        "invoice 8: paid after 2",
    ]


def test_a_nightly_report_is_sent_once_a_night_when_clocks_change(tmp_path: Path) -> None:
    done = run("nightly_report.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "clocks go forward:",
        "28 March 02:30 CET 01:30 UTC  ran",
        "29 March 03:00 CEST 01:00 UTC  ran",
        "30 March 02:30 CEST 00:30 UTC  ran",
        "clocks go back:",
        "24 October 02:30 CEST 00:30 UTC  ran",
        "25 October 02:30 CEST 00:30 UTC  ran",
        "26 October 02:30 CET 01:30 UTC  ran",
        "['missed_paused', 'missed_paused'], then 2 reports backfilled:",
        "  2026-03-28",
        "  2026-03-29",
    ]


def test_an_order_without_an_end_has_a_short_journal(tmp_path: Path) -> None:
    done = run("order_loop.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "chapter 2: 12 entries",
        "order 7: 25 items for 88.00",
    ]


def test_tokens_stream_to_two_readers_and_one_is_killed(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("model_stream.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reader 1: killed after 5 tokens" in done.stdout
    assert "reader 1: went on with 10 more" in done.stdout
    assert "both read: the same" in done.stdout
    assert "the summary: The sky is blue because" in done.stdout


def test_the_approval_needs_two_people(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("approval.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = [line.strip() for line in done.stdout.splitlines() if line.startswith("  ")]
    assert [(who, what.split(":")[0]) for who, _, what in (a.partition(": ") for a in answers)] == [
        ("mallory", "refused, invalid_token"),
        ("ada", "refused, invalid_payload"),
        ("ada", "appended_to_waitpoint"),
        ("ada", "appended_to_waitpoint_duplicate"),
        ("ada", "appended_to_waitpoint"),
        ("grace", "resume_condition_satisfied"),
        ("joan", "refused, target_not_signalable"),
    ]
    assert "sources on deploy (0/2); when its time is over, it is cancelled" in done.stdout
    assert "(1/2)" in done.stdout
    told = "approved by user:ada (tests are green), user:grace (looks good)"
    assert told in done.stdout
    assert not done.stderr
    assert "k1:" not in done.stdout
    assert "ffw1." not in done.stdout


def test_the_race_keeps_the_first_and_stops_the_rest(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("model_race.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    race, two = done.stdout.split("two of three are enough to compare:\n")
    assert "published small's answer to 'why is the sky blue?'" in race
    # A worker notices a little later that a loser was cancelled: in each race one is.
    assert done.stdout.count("large: interrupted, somebody else was faster") == 2
    lines = [line for line in race.splitlines() if "interrupted" not in line]
    states = dict(line.split() for line in lines[-4:])
    assert states == {
        "broken": "failed",
        "small": "completed",
        "large": "cancelled",
        "publish": "completed",
    }
    answers = "small's answer to 'what is rain?' / medium's answer to 'what is rain?'"
    assert answers in two


def test_the_deployment_waits_for_tests_and_a_person_and_can_be_repaired(
    tmp_path: Path, at: dict[str, str]
) -> None:
    done = run("deploy.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    good, rest = done.stdout.split("version 2.0, with a test that fails:\n")
    bad, repaired = rest.split("the test is repaired; ")
    tests = "unit ok, integration ok, e2e ok; approved by operator:ada"
    assert f"app-1.0.tar is deployed: {tests}" in good
    assert good.index("e2e          completed") < good.index("deploy       suspended")
    assert "e2e: failed (the login page is blank)" in bad
    assert "deploy: skipped (dependency_impossible)" in bad
    assert "report       completed" in bad
    assert "suspended" not in bad
    assert "again: e2e\n" in repaired
    assert f"app-2.0.tar is deployed: {tests}" in repaired


def test_a_thousand_pages_are_counted_and_added_up(tmp_path: Path, at: dict[str, str]) -> None:
    done = run("map_reduce.py", tmp_path, **at)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "{'even': 500, 'fabric': 1000, 'flow': 2000, 'odd': 500}" in done.stdout
    assert "a handler with 100 children: 300 words" in done.stdout


def served(told: str) -> str:
    """The address of the demo's server."""
    found = re.search(r"http://127\.0\.0\.1:\d+", told)
    assert found is not None, told
    return found[0]


@pytest.mark.slow
@pytest.mark.chaos
def test_the_demo_shows_durability_without_a_terminal(tmp_path: Path) -> None:
    done = run("demo.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✗" not in done.stdout
    for told in ("interrupted_reclaimed", "ended_success", "kill -9", "why", "frame 20 of 20"):
        assert told in done.stdout
    assert "the same worker ran it: hello, Joan" in done.stdout
    with pytest.raises(httpx.ConnectError):
        httpx.get(served(done.stdout))
    assert not [c for c in done.stdout if not (c.isprintable() or c == "\n")]
    assert not list(tmp_path.glob("flowfabric-demo-*"))


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.parametrize(
    ("when", "how"),
    [
        ("worker:", signal.SIGTERM),
        ("── 1.", signal.SIGINT),
        ("server:", signal.SIGTERM),
        ("at: page", signal.SIGINT),
    ],
)
def test_the_demo_ends_cleanly_when_interrupted(
    tmp_path: Path, when: str, how: signal.Signals
) -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    demo = subprocess.Popen(
        [sys.executable, "-u", str(ROOT / "examples" / "demo.py")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    told = ""
    while when not in told:
        line = demo.stdout.readline()
        assert line, told
        told += line
    demo.send_signal(how)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, told + rest
    assert "Traceback" not in told + rest
    assert "interrupted" in rest
    assert not list(tmp_path.glob("flowfabric-demo-*"))
    started = re.findall(r"(?:worker|server): +process (\d+)", told)
    assert started
    assert not [each for each in started if psutil.pid_exists(int(each))]


@pytest.mark.slow
@pytest.mark.chaos
def test_the_demo_leaves_its_server_to_a_person_until_ctrl_c(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    person, terminal = pty.openpty()
    with closing(os.fdopen(person, "rb", buffering=0)) as screen:
        demo = subprocess.Popen(
            [sys.executable, "-u", str(ROOT / "examples" / "demo.py")],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(tmp_path)},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
        )
        try:
            os.close(terminal)
            told = ""
            while "Ctrl-C ends them" not in told:
                told += screen.read(4096).decode(errors="replace")
            address = served(told)
            assert "/v1/executions" in httpx.get(f"{address}/docs").text
            assert httpx.get(f"{address}/readyz").json()["ready"] is True
            asked = {"execution_kind": "greet", "input": {"name": "Hedy"}}
            made = httpx.post(f"{address}/v1/executions?wait=20s", json=asked, timeout=60)
            assert made.json()["outcome"]["result"] == "hello, Hedy"
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 0
        finally:
            demo.kill()
            demo.wait()
    assert not list(tmp_path.glob("flowfabric-demo-*"))
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


def test_an_order_takes_messages_over_chapters_and_a_crash(tmp_path: Path) -> None:
    done = run("order_mailbox.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        "waits for ['items'], shows Total(items=25, cents=8750)",
        "asked: sold out",
        "chapter 2",
        "25 items for 87.50, paid by ada",
    ]
