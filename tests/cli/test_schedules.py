"""`ff schedule`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowfabric.cli.exits import Exit
from flowfabric.cli.show.times import absolute
from flowfabric.engine.engine import Engine
from flowfabric.model.policy import policy_from
from tests.cli.desk import Desk
from tests.support.schedules import DAY_MS, HOUR_MS, declared

CRON = ("--cron", "30 2 * * *", "--tz", "Europe/Berlin")


@pytest.fixture
def desk(desk: Desk) -> Desk:
    """With a schedule; its creation has made the database."""
    assert desk.ff("schedule", "create", "report", "greet", "name=ada", *CRON) == Exit.OK, desk.err
    assert desk.out == "schedule report is in force\n"
    assert "no worker handles greet on lane default" in desk.err
    return desk


def test_one_is_listed_and_shown_with_its_ticks_in_both_zones(desk: Desk) -> None:
    assert desk.ff("schedule") == Exit.OK
    head, line = desk.out.splitlines()
    assert head.split() == ["SCHEDULE", "STARTS", "WHEN", "NEXT", "RUNS", "STATE"]
    assert line.startswith("report    greet   30 2 * * * Europe/Berlin")
    assert line.split()[-2:] == ["0", "active"]
    (listed,) = desk.json("schedule", "ls")
    found = desk.json("schedule", "show", "report")
    assert found["schedule"].pop("warnings") == ["no worker handles greet on lane default"]
    assert listed.pop("warnings") == []  # looked up for one of them, not for each of a list
    assert found["schedule"] == listed
    ahead = [each["tick"] for each in found["ahead"]]
    assert ahead[0] == listed["next_tick"]
    assert len(ahead) == 5
    assert found["ticks"] == []
    assert desk.json("schedule", "why", "report").keys() == found.keys()

    assert desk.ff("schedule", "why", "report") == Exit.OK
    first, warned, *next_lines = desk.out.splitlines()
    assert first == "report: 30 2 * * * Europe/Berlin, active"
    assert warned == "  keeps it back: no worker handles greet on lane default"
    for tick, told in zip(ahead, next_lines, strict=True):
        assert told.startswith(f"  next  {absolute(tick)}  ")
        assert ("02:30:00 Europe/Berlin" in told) or ("after_gap" in told)


def test_the_same_again_changes_nothing_and_another_one_is_refused(desk: Desk) -> None:
    same = desk.json("schedule", "create", "report", "greet", "name=ada", *CRON)
    assert same["is_new"] is False
    words = ("schedule", "create", "report", "greet", "name=ada", "--every", "1h")
    assert desk.json(*words, code=Exit.REFUSED)["error"]["code"] == "schedule_conflict"


def test_what_is_named_is_changed(desk: Desk) -> None:
    assert desk.ff("schedule", "update", "report", "--overlap", "allow") == Exit.OK
    assert desk.out == "schedule report: version 1 → 2\n"
    changed = desk.json("schedule", "update", "report", "--tz", "UTC", "--catch-up", "all")
    assert changed["version_before"] == 2
    assert changed["schedule"]["timing"]["cron"] == ["30 2 * * *"]
    policy = changed["schedule"]["policy"]
    assert (policy["overlap"], policy["catch_up"]) == ("allow", "all")
    two = ("--cron", "0 8 * * *", "--cron", "@hourly")
    changed = desk.json("schedule", "update", "report", *two)
    assert changed["schedule"]["timing"]["cron"] == ["0 8 * * *", "@hourly"]
    assert changed["schedule"]["timing"]["tz"] == "UTC"
    assert desk.ff("schedule", "update", "report", "--every", "1h") == Exit.OK
    assert desk.ff("schedule", "ls") == Exit.OK
    assert "every 3600 s" in desk.out
    assert desk.ff("schedule", "update", "report") == Exit.USAGE
    assert "nothing to change" in desk.err


DAILY = (
    *("--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--starts", "2030-01-01T00:00"),
    *("--ends", "2030-12-31T00:00", "--except-on", "2030-05-01", "--except-on", "2030-12-25"),
    *("--jitter", "5m", "--catch-up", "all", "--catch-up-window", "2h", "--catch-up-max", "7"),
    *("--overlap", "queue_one", "--pause-on-failure", "3", "--max-runs", "9"),
)
PLACED = (
    *("--lane", "slow", "--priority", "0", "--delay", "10s", "--tag", "team.name=a"),
    *("--needs", "gpu", "--retries", "2", "--start-within", "1h", "--deadline", "2h"),
    *("--serial", "acme", "--concurrency-key", "c", "--mailbox", "notes"),
)


def test_every_option_is_stored_and_shown(desk: Desk) -> None:
    made = desk.json("schedule", "create", "all", "greet", "name=bo", *DAILY, *PLACED, "count:=2")
    timing, policy = made["schedule"]["timing"], made["schedule"]["policy"]
    assert timing["except_on"] == ["2030-05-01", "2030-12-25"]
    assert (timing["jitter_ms"], timing["tz"]) == (300_000, "Europe/Berlin")
    assert timing["ends"] - timing["starts"] == 364 * DAY_MS
    assert policy == {
        "catch_up": "all",
        "catch_up_window_ms": 7_200_000,
        "catch_up_max": 7,
        "overlap": "queue_one",
        "pause_on_failure": 3,
        "max_runs": 9,
    }
    start = desk.given(lambda engine: engine.read_schedule_start(schedule_id="all")).execution
    assert start is not None
    assert (start.input_payload, start.lane_id) == (b'{"name":"bo","count":2}', "slow")
    assert (start.priority, start.delay_ms, start.serial_key) == (0, 10_000, "acme")
    assert (start.tags, start.concurrency_key) == ({"team.name": "a"}, "c")
    assert start.mailboxes == {"notes": None}
    rules = policy_from(start.policy)
    assert rules.retry_policy is not None
    assert rules.retry_policy.max_retries == 2
    assert rules.routing_requirements.required_capabilities == ("gpu",)
    assert rules.timeout_policy.start_within_ms == 3_600_000
    assert rules.timeout_policy.execution_deadline_ms == 7_200_000
    assert desk.ff("schedule", "why", "all") == Exit.OK
    assert "starts 2030-01-01T00:00:00Z, ends 2030-12-31T00:00:00Z" in desk.out
    assert "not on 2030-05-01, 2030-12-25, up to 5m later" in desk.out
    assert "catch up all, catch up window 2h, catch up max 7, overlap queue_one" in desk.out

    bounds = ("--ends", "none", "--except-on", "none", "--max-runs", "none", "--jitter", "0")
    changed = desk.json("schedule", "update", "all", *bounds)["schedule"]
    assert (changed["timing"]["ends"], changed["timing"]["except_on"]) == (None, [])
    assert (changed["timing"]["jitter_ms"], changed["policy"]["max_runs"]) == (0, None)
    assert changed["timing"]["starts"] == timing["starts"]
    assert changed["policy"]["pause_on_failure"] == 3

    words = ("update", "all", "--priority", "4", "--needs", "cpu", "--kind", "wave", "name=cy")
    assert desk.json("schedule", *words)["schedule"]["kind"] == "wave"
    later = desk.given(lambda engine: engine.read_schedule_start(schedule_id="all")).execution
    assert later is not None
    assert (later.priority, later.input_payload) == (4, b'{"name":"cy"}')
    assert (later.lane_id, later.serial_key, later.tags) == ("slow", "acme", start.tags)
    rules = policy_from(later.policy)
    assert rules.routing_requirements.required_capabilities == ("cpu",)
    assert rules.timeout_policy.start_within_ms == 3_600_000


def test_instants_are_ticks_and_a_new_calendar_begins_without_the_old_bounds(desk: Desk) -> None:
    days = ("--at", "2040-01-01T09:00", "--at", "2040-02-01T09:00Z", "--tz", "Europe/Berlin")
    made = desk.json("schedule", "create", "once", "greet", *days)
    assert len(made["schedule"]["timing"]["at"]) == 2
    changed = desk.json("schedule", "update", "once", "--every", "1h", "--anchor", "2030-01-01")
    timing = changed["schedule"]["timing"]
    assert (timing["at"], timing["every_ms"], timing["tz"]) == ([], HOUR_MS, "Europe/Berlin")
    assert timing["anchor"] % DAY_MS == 0
    assert desk.ff("schedule", "update", "once", "--at", "2040-01-01T09:00:00.5") == Exit.USAGE
    assert "no whole second" in desk.err
    assert desk.ff("schedule", "update", "once", "--except-on", "2040-02-30") == Exit.USAGE
    assert "is not a day" in desk.err


def test_a_flow_is_scheduled_from_the_body_that_would_submit_it(desk: Desk, tmp_path: Path) -> None:
    flow = {
        "flow_kind": "nightly",
        "nodes": [
            {"name": "fetch", "execution": {"execution_kind": "fetch", "input": {"day": 1}}},
            {"name": "send", "execution": {"execution_kind": "send"}},
        ],
        "edges": [{"upstream": "fetch", "downstream": "send", "passes_result": True}],
    }
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(flow))
    words = ("schedule", "create", "night", "--flow", str(file), "--every", "1d")
    made = desk.json(*words, "--tag", "team.name=a")
    assert (made["schedule"]["kind"], made["schedule"]["is_flow"]) == ("nightly", True)
    started = desk.given(lambda engine: engine.read_schedule_start(schedule_id="night"))
    assert started.flow is not None
    assert started.flow.tags == {"team.name": "a"}
    assert started.flow.nodes[0].execution.input_payload == b'{"day": 1}'
    assert desk.ff("schedule", "trigger", "night") == Exit.OK
    claimed = desk.claim()
    assert (claimed.execution_kind, claimed.payload) == ("fetch", b'{"day": 1}')
    assert claimed.tags["schedule.id"] == "night"
    assert desk.ff("why", claimed.execution_id) == Exit.OK
    assert "schedule night: its tick of " in desk.out
    assert "run 1, manual" in desk.out

    assert desk.ff("schedule", "update", "night", "--priority", "0") == Exit.USAGE
    assert "--priority: are those of a task" in desk.err
    assert desk.ff("schedule", "create", "x", "greet", "--flow", str(file), "--every", "1d") == 2
    assert desk.ff("schedule", "create", "x", "--every", "1d") == Exit.USAGE
    assert "name a task, or give --flow FILE" in desk.err
    file.write_text('{"nodes": [], "colour": 1}')
    error = desk.json("schedule", "update", "night", "--flow", str(file), code=Exit.USAGE)
    assert "colour" in error["error"]["detail"]
    gone = desk.json("schedule", "update", "night", "--flow", "none.json", code=Exit.USAGE)
    assert gone["error"]["code"] == "unreadable_file"
    changed = desk.json("schedule", "update", "night", "--kind", "greet")["schedule"]
    assert (changed["kind"], changed["is_flow"]) == ("greet", False)


def test_a_run_tells_the_schedule_and_the_tick_that_started_it(desk: Desk) -> None:
    assert desk.ff("schedule", "update", "report", "--every", "1d") == Exit.OK
    end = desk.given(Engine.server_time_ms) // DAY_MS * DAY_MS
    day = absolute(end)
    fill = ("schedule", "backfill", "report", "--from", day, "--to", day)
    assert desk.json(*fill)["started"] == 1
    claimed = desk.claim()
    for command in ("why", "show"):
        assert desk.ff(command, claimed.execution_id) == Exit.OK
        assert f"schedule report: its tick of {day}, run 1" in desk.out
    told = desk.json("why", claimed.execution_id)["schedule"]
    assert told == {
        "schedule_id": "report",
        "tick": end,
        "number": 1,
        "is_caught_up": True,
        "fate": "backfilled",
    }
    plain = desk.submit("greet", "--tag", "schedule.id=report", "--tag", "schedule.tick=soon")
    assert desk.json("why", plain)["schedule"] is None


def test_it_is_paused_with_a_reason_and_resumed(desk: Desk) -> None:
    assert desk.ff("schedule", "pause", "report", "--reason", "holiday", "--actor", "ada") == 0
    assert desk.out == "schedule report is paused\n"
    assert desk.ff("schedule", "show", "report") == Exit.OK
    assert desk.out.startswith("report: 30 2 * * * Europe/Berlin, paused by ada\n")
    (listed,) = desk.json("schedule", "ls")
    assert listed["pause_reason"] == "holiday"
    again = desk.json("schedule", "pause", "report")
    assert again["version_before"] == again["schedule"]["version"]
    resumed = desk.json("schedule", "resume", "report")
    assert resumed["schedule"]["paused_at"] is None
    assert desk.ff("schedule", "resume", "report") == Exit.OK
    assert desk.out == "schedule report goes on\n"


def test_a_triggered_run_can_be_worked_on_and_is_in_its_history(desk: Desk) -> None:
    assert desk.ff("schedule", "trigger", "report") == Exit.OK
    run_id = desk.out.strip()
    claimed = desk.claim()
    assert claimed.execution_id == run_id
    assert claimed.payload == b'{"name":"ada"}'
    assert claimed.tags["schedule.id"] == "report"
    desk.complete(claimed)
    second = desk.json("schedule", "trigger", "report")
    assert (second["number"], second["schedule_id"]) == (2, "report")
    assert desk.ff("schedule", "show", "report") == Exit.OK
    assert [line.split()[1:] for line in desk.out.splitlines()[-2:]] == [
        ["manual", second["run_id"]],
        ["manual", run_id],
    ]


def test_a_backfill_runs_each_tick_once_over_several_transactions(desk: Desk) -> None:
    end = desk.given(Engine.server_time_ms) // HOUR_MS * HOUR_MS
    assert desk.ff("schedule", "update", "report", "--every", "6s") == Exit.OK
    fill = ("schedule", "backfill", "report", "--to", absolute(end), "--from")
    hour, rest = absolute(end - HOUR_MS), absolute(end - HOUR_MS - 60_000)

    assert desk.ff(*fill, hour, "--dry-run") == Exit.OK
    assert desk.out.startswith("would start 601 runs; 0 were refused, 0 ticks have one already")
    counts = {"started": 601, "refused": 0, "have_run": 0, "skipped": 0}
    assert desk.json(*fill, hour, "--dry-run") == {**counts, "dry_run": True}
    assert desk.json("schedule", "ls")[0]["runs"] == 0
    assert desk.json(*fill, hour) == {**counts, "dry_run": False}
    assert desk.json("schedule", "ls")[0]["runs"] == 601
    assert desk.ff(*fill, rest) == Exit.OK
    assert desk.out.startswith("started 10 runs; 0 were refused, 601 ticks have one already")
    again = desk.json(*fill, rest)
    assert (again["started"], again["have_run"]) == (0, 611)

    assert desk.ff("schedule", "backfill", "report", "--from", hour, "--to", rest) == Exit.USAGE
    assert "end" in desk.err
    old = absolute(end - 8 * DAY_MS)
    error = desk.json(*fill, old, code=Exit.USAGE)["error"]
    assert (error["field"], error["count"]) == ("end", 100_000)  # too many to be counted
    assert desk.ff(*fill, absolute(end - 20 * HOUR_MS)) == Exit.USAGE
    assert "12001 ticks" in desk.err
    assert desk.ff(*fill, "yesterday") == Exit.USAGE
    assert "'yesterday' is not a date" in desk.err
    assert desk.json("schedule", "update", "report", "--every", "1d")["version_before"] == 2
    assert desk.json(*fill, old, code=Exit.USAGE)["error"]["field"] == "begin"
    days = end // DAY_MS - (end - 8 * DAY_MS - 1) // DAY_MS
    again = desk.json(*fill, old, "--dry-run", "--again")
    ran = again["have_run"]  # midnight, if it was in the hour that was filled
    assert (again["started"], ran) == (
        days - ran,
        int((end - HOUR_MS - 1) // DAY_MS < end // DAY_MS),
    )
    skipping = desk.json(*fill, old, "--dry-run", "--again", "--overlap", "skip")
    assert (skipping["started"], skipping["skipped"]) == (0, days - ran)  # a run has not ended


def test_one_is_removed_and_those_that_code_declares_no_more(desk: Desk) -> None:
    async def work(engine: Engine) -> None:
        await engine.declare_schedules(schedules=[declared("old")], origins=["shop"])
        await engine.declare_schedules(schedules=[], origins=["shop"])

    desk.given(work)
    assert desk.ff("schedule", "ls") == Exit.OK
    assert desk.out.splitlines()[1].endswith("undeclared")
    assert desk.ff("schedule", "prune", "--dry-run") == Exit.OK
    assert desk.out == "old\n"
    gone = desk.json("schedule", "prune")
    assert gone == {"schedule_ids": ["old"], "is_dry_run": False}
    assert desk.ff("schedule", "prune") == Exit.OK
    assert desk.out == "none is undeclared\n"
    assert desk.ff("schedule", "rm", "report") == Exit.OK
    assert desk.out == "schedule report is gone\n"
    assert desk.json("schedule", "ls") == []
    assert desk.ff("schedule", "ls") == Exit.OK
    assert "no schedules yet" in desk.err


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        (("--cron", "61 9 * * *"), "cron[0]", "Bad minute"),
        (("--cron", "0 9 * * *", "--cron", "0 0 30 2 *"), "cron[1]", ""),
        (("--cron", "0 9 * * *", "--tz", "Mars/Base"), "tz", "no time zone"),
        (("--every", "500ms"), "every_ms", "below 1s"),
        (("--cron", "0 9 * * *", "--every", "1h"), "cron", ""),
    ],
)
def test_a_wrong_timing_is_refused_by_name(
    desk: Desk, given: tuple[str, ...], field: str, words: str
) -> None:
    for action in (("create", "bad", "greet"), ("update", "report")):
        error = desk.json("schedule", *action, *given, code=Exit.USAGE)["error"]
        assert (error["code"], error["field"]) == ("invalid_schedule", field)
        assert words in error["detail"]
        assert desk.ff("schedule", *action, *given) == Exit.USAGE
        assert desk.err.startswith(f"ff: {field}")
    assert [each["version"] for each in desk.json("schedule", "ls")] == [1]


def test_one_without_a_time_is_a_wrong_command(desk: Desk) -> None:
    assert desk.ff("schedule", "create", "bad", "greet") == Exit.USAGE
    assert "give --cron, --every or --at" in desk.err
    assert desk.ff("schedule", "create", "bad", "greet", "--tz", "Europe/Berlin") == Exit.USAGE


@pytest.mark.parametrize(
    "words",
    [
        ("show",),
        ("why",),
        ("pause",),
        ("resume",),
        ("trigger",),
        ("rm",),
        ("update", "--every", "1h"),
        ("backfill", "--from", "2026-11-16T08:00", "--to", "2026-11-16T09:00"),
    ],
)
def test_an_unknown_name_is_not_found(desk: Desk, words: tuple[str, ...]) -> None:
    action, *rest = words
    error = desk.json("schedule", action, "raport", *rest, code=Exit.NOT_FOUND)["error"]
    assert error["code"] == "not_found"
    assert "raport" in error["detail"]
