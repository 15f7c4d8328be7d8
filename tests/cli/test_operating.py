"""submit, cancel, retry, hold, release, revoke, priority and lanes change what they should."""

from __future__ import annotations

import pytest

from flowfabric.cli import main
from flowfabric.cli.exits import Exit
from flowfabric.ids import new_execution_id
from tests.cli.desk import Desk


def state(desk: Desk, execution_id: str) -> str:
    return str(desk.json("show", execution_id)["public_state"])


def test_submit_prints_the_id_and_keeps_every_option(desk: Desk) -> None:
    execution_id = desk.submit(
        "greet",
        "name=ada",
        "--priority=7",
        "--lane=video",
        "--needs=gpu",
        "--retries=2",
        "--tag=team.name=blue",
        "--delay=1h",
    )
    shown = desk.json("show", execution_id)
    assert shown["public_state"] == "delayed"
    assert shown["priority"] == 7
    assert shown["lane_id"] == "video"
    assert shown["required_capabilities"] == ["gpu"]
    assert shown["tags"] == {"team.name": "blue"}
    assert 0 < shown["eligible_at"] - shown["created_at"] <= 3_600_000


def test_a_submit_may_name_the_instant_it_starts_at(desk: Desk) -> None:
    shown = desk.json("show", desk.submit("greet", "--start-at=2100-01-01T08:00"))
    assert (shown["public_state"], shown["eligible_at"]) == ("delayed", 4_102_473_600_000)
    zoned = desk.json("show", desk.submit("greet", "--start-at=2100-01-01T08:00+02:00"))
    assert zoned["eligible_at"] == 4_102_466_400_000
    assert desk.ff("submit", "greet", "--start-at=tomorrow") == Exit.USAGE
    assert "write 2026-11-16T08:00" in desk.err
    assert desk.ff("submit", "greet", "--start-at=2100-01-01", "--delay=1h") == Exit.USAGE
    assert "not allowed with" in desk.err


def test_submit_with_the_same_key_creates_once(desk: Desk) -> None:
    first = desk.json("submit", "greet", "name=ada", "--key", "k")
    again = desk.json("submit", "greet", "name=ada", "--key", "k")
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["execution_id"] == again["execution_id"]
    assert desk.ff("submit", "greet", "name=bob", "--key", "k") == Exit.REFUSED
    assert "key" in desk.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--tag", "plain=1"), "tags"),
        (("--needs", "a,b"), "required_capabilities"),
        (("--retries", "9000000"), "max_retries"),
        (("--lane", "x" * 65), "lane_id"),
        (("--key", "k" * 600), "idempotency_key"),
        (("name=" + "x" * 1_100_000,), "payload"),
    ],
)
def test_submit_refuses_bad_input_by_the_name_of_the_field(
    desk: Desk, words: tuple[str, ...], named: str
) -> None:
    assert desk.ff("submit", "greet", *words) == Exit.USAGE
    assert named in desk.err
    assert desk.json("ps")["executions"] == []


def test_submit_and_wait_gives_up_after_the_timeout(desk: Desk) -> None:
    assert desk.ff("submit", "greet", "--wait", "--timeout", "50ms") == Exit.TIMEOUT
    assert "ff result" in desk.err


def test_cancel_takes_several_and_reports_each(desk: Desk) -> None:
    first, second = desk.submit(), desk.submit()
    assert desk.ff("cancel", first, second, "--reason", "no longer needed") == Exit.OK
    assert desk.out.count("cancelled") == 2
    assert desk.json("show", first)["cancellation_reason"] == "no longer needed"
    assert desk.ff("cancel", first) == Exit.OK  # repeated: the same answer


def test_cancel_of_finished_work_is_refused_and_the_others_are_cancelled(desk: Desk) -> None:
    done = desk.completed()
    waiting = desk.submit()
    documents = desk.json("cancel", done, waiting, code=Exit.FAILED)
    assert documents[0]["error"]["code"] == "execution_not_active"
    assert documents[1]["error"] is None
    assert state(desk, done) == "completed"
    assert state(desk, waiting) == "cancelled"


def test_cancel_of_an_unknown_id_is_not_found(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("cancel", new_execution_id()) == Exit.NOT_FOUND


def test_a_malformed_id_among_several_stops_the_command(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("cancel", waiting, "nonsense") == Exit.USAGE
    assert desk.ff("cancel", waiting, "--reason", "x", "nonsense") == Exit.USAGE
    assert state(desk, waiting) == "waiting"


def test_retry_runs_finished_work_again(desk: Desk) -> None:
    failed = desk.failed()
    assert desk.ff("retry", failed) == Exit.OK
    assert "replay 1" in desk.out
    assert state(desk, failed) == "waiting"
    assert desk.ff("retry", failed) == Exit.REFUSED


def test_a_retry_with_another_input_is_a_new_execution(desk: Desk) -> None:
    failed = desk.failed()
    assert desk.ff("retry", failed, "--input", "n:=2", "--key", "k") == Exit.OK
    new = desk.out.strip()
    assert desk.json("show", new)["retried_from"] == failed
    assert desk.json("show", new)["payload"]["n"] == 2
    assert desk.ff("show", failed) == Exit.OK
    assert "retried as" in desk.out
    assert new in desk.out
    assert state(desk, failed) == "failed"
    again = desk.json("retry", failed, "--input", "n:=2", "--key", "k")
    assert (again["execution_id"], again["is_new"]) == (new, False)
    for wrong in (["--key", "k"], ["--input", "n:=2", "--fresh"], ["--input", "n"]):
        assert desk.ff("retry", failed, *wrong) == Exit.USAGE, wrong
    assert desk.ff("retry", failed, new, "--input", "n:=2") == Exit.USAGE


def test_hold_and_release(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("hold", waiting, "--reason", "look first") == Exit.OK
    assert desk.json("why", waiting)["summary"] == "look first"
    assert desk.ff("release", waiting) == Exit.OK
    assert desk.json("show", waiting)["blocking_reason"] == "waiting_for_worker"
    assert desk.ff("release", waiting) == Exit.REFUSED


def test_priority_moves_waiting_work(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("priority", waiting, "42") == Exit.OK
    assert "0 → 42" in desk.out
    assert desk.json("priority", waiting, "43")[0]["new_priority"] == 43
    done = desk.completed()
    assert desk.ff("priority", desk.failed(), "1") == Exit.REFUSED
    assert done


def test_revoke_takes_the_lease_away(desk: Desk) -> None:
    waiting = desk.submit()
    assert desk.ff("revoke", waiting) == Exit.OK
    assert "nothing to revoke" in desk.out
    claimed = desk.claim()
    assert desk.ff("revoke", waiting, "--reason", "wedged") == Exit.OK
    assert "lease revoked" in desk.out
    assert claimed.lease_id not in desk.out
    assert desk.json("show", waiting)["state"]["ownership_state"] != "leased"


def test_lanes_are_listed_with_counts_and_switched(desk: Desk) -> None:
    desk.submit()
    desk.completed()
    assert desk.ff("lanes") == Exit.OK
    assert desk.out.splitlines()[0].split() == ["LANE", "SWITCH", "WAITING", "COMPLETED"]
    for action, expected in (
        ("pause", "paused"),
        ("drain", "draining"),
        ("disable", "disabled"),
        ("resume", "active"),
    ):
        assert desk.ff("lanes", action, "default", "--reason", "because") == Exit.OK
        assert desk.json("lanes")[0]["lane_state"] == expected
    assert desk.json("lanes", "pause", "default")["previous"] == "active"


def test_a_closed_lane_refuses_work(desk: Desk) -> None:
    desk.submit()
    desk.ff("lanes", "drain", "default")
    assert desk.ff("submit", "greet") == Exit.REFUSED
    assert "draining" in desk.err


def test_an_interrupted_command_exits_with_130(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flowfabric.cli.commands.ps.ps", interrupt)
    assert main(["ps", "--url", desk.url]) == Exit.INTERRUPTED
    assert capsys.readouterr().err == "ff: interrupted\n"
