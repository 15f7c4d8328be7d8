"""`ff stats` prints what was counted, and how far."""

from __future__ import annotations

from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from tests.cli.desk import Desk


async def _roll_up(engine: Engine) -> None:
    while await engine.roll_up():
        continue


async def _spend(engine: Engine) -> None:
    await engine.create_budget(
        budget_id="gpt", dimensions=["tokens"], hard_limits=[9], soft_limits=[0]
    )
    await engine.report_usage_admin(budget_id="gpt", dimensions=["tokens"], deltas=[4])
    await _roll_up(engine)


def test_a_line_for_each_lane_and_kind(desk: Desk) -> None:
    desk.completed()
    desk.failed()
    desk.submit("brief", "--lane", "mail")
    desk.given(_roll_up)
    assert desk.ff("stats") == Exit.OK
    head, *lines = [line.split() for line in desk.out.splitlines()]
    assert head == [
        *("SINCE", "LANE", "KIND", "CREATED", "STARTED", "COMPLETED", "FAILED"),
        *("PICKUP", "P50", "P95", "RUN", "P50", "P95"),
    ]
    assert lines[0][1:7] == ["default", "greet", "2", "2", "1", "1"]
    assert all(each.endswith(("ms", "s")) for each in lines[0][7:])
    assert lines[1][1:] == ["mail", "brief", "1", "0", "0", "0", "-", "-", "-", "-"]
    assert "complete until" in desk.err


def test_statistics_are_chosen_by_lane_kind_and_time(desk: Desk) -> None:
    desk.submit("brief", "--lane", "mail")
    desk.submit("greet")
    desk.given(_roll_up)
    for words, kinds in (
        ((), ["greet", "brief"]),
        (("--lane", "mail"), ["brief"]),
        (("--kind", "greet"), ["greet"]),
        (("--kind", "greet", "--lane", "mail"), []),
        (("--until", "2020-01-01"), []),
        (("--since", "2020-01-01", "--by", "hour"), ["greet", "brief"]),
        (("--namespace", "other"), []),
    ):
        found = desk.json("stats", *words)
        assert [each["execution_kind"] for each in found["items"]] == kinds, words
        assert found["complete_until"] > 0


def test_what_budgets_spent_is_shown(desk: Desk) -> None:
    desk.given(_spend)
    assert desk.ff("stats", "--spending") == Exit.OK
    assert desk.out.split()[-3:] == ["gpt", "tokens", "4"]
    assert desk.json("stats", "--budget", "gpt")["items"][0]["spent"] == 4
    assert desk.json("stats", "--budget", "other")["items"] == []


def test_without_a_count_it_says_so(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("stats") == Exit.OK
    assert desk.out == ""
    assert "nothing is counted yet" in desk.err


def test_a_mistake_is_named(desk: Desk) -> None:
    assert desk.ff("stats", "--since", "soon") == Exit.USAGE
    assert desk.ff("stats", "--by", "day") == Exit.USAGE
    assert desk.ff("stats", "--until", "1h") == Exit.USAGE
