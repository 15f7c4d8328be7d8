"""`ff schedule`: made, explained, paused, run by hand, caught up and removed."""

from __future__ import annotations

from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk


def test_a_schedule_that_nothing_handles_is_accepted_and_says_so(desk: Desk) -> None:
    desk.submit()
    made = ("create", "nightly", "report", "topic=solar", "--cron", "30 2 * * *")
    assert desk.ff("schedule", *made, "--tz", "Europe/Berlin") == Exit.OK
    assert "no worker handles report" in desk.err
    for word in ("why", "show"):
        assert desk.ff("schedule", word, "nightly") == Exit.OK
        assert "keeps it back: no worker handles report on lane default" in desk.out
        assert desk.out.count("next") == 5
    assert desk.ff("schedule", "why", "daily") == Exit.NOT_FOUND


def test_a_schedule_is_operated_by_hand(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("schedule") == Exit.OK
    assert "no schedules yet" in desk.err
    assert desk.ff("schedule", "create", "s", "report", "--every", "1h") == Exit.OK
    assert desk.ff("schedule", "pause", "s", "--reason", "holiday") == Exit.OK
    assert desk.ff("schedule", "ls") == Exit.OK
    assert "paused by" in desk.out
    assert desk.ff("schedule", "resume", "s") == Exit.OK
    assert desk.ff("schedule", "update", "s", "--every", "2h") == Exit.OK
    assert desk.ff("schedule", "trigger", "s") == Exit.OK
    shown = desk.json("schedule", "why", "s")
    assert shown["schedule"]["timing"]["every_ms"] == 2 * 3_600_000
    assert [each["fate"] for each in shown["ticks"]] == ["manual"]
    assert desk.ff("schedule", "prune") == Exit.OK
    assert desk.ff("schedule", "rm", "s") == Exit.OK
    assert desk.json("schedule", "ls") == []


def test_wrong_words_change_nothing(desk: Desk) -> None:
    desk.submit()
    assert desk.ff("schedule", "create", "s", "report") == Exit.USAGE
    assert desk.ff("schedule", "create", "s", "report", "--cron", "0 25 * * *") == Exit.USAGE
    assert "at position 2" in desk.err
    assert desk.ff("schedule", "create", "s", "report", "--every", "1s") == Exit.OK
    reversed_range = ("--from", "2026-01-02T00:00Z", "--to", "2026-01-01T00:00Z")
    assert desk.ff("schedule", "backfill", "s", *reversed_range) == Exit.USAGE
    too_long = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")
    assert desk.ff("schedule", "backfill", "s", *too_long) == Exit.USAGE
    assert "86401 ticks" in desk.err
    assert desk.json("schedule", "why", "s")["schedule"]["runs"] == 0
