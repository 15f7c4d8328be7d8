"""`ff dead`: what failed or expired, until it is run again or dismissed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.cli.commands import dead
from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk

if TYPE_CHECKING:
    import pytest


def test_dead_letters_are_counted_listed_retried_and_dismissed(desk: Desk) -> None:
    desk.completed()
    assert desk.ff("dead") == Exit.OK
    assert "no dead letters" in desk.err
    first, second, third = desk.failed(), desk.failed(), desk.failed()
    document = desk.json("dead", "--limit", "2")
    assert document["counts"] == [{"execution_kind": "greet", "category": "permanent", "number": 3}]
    assert [each["execution_id"] for each in document["dead"]] == [third, second]
    rest = desk.json("dead", "ls", "--cursor", document["next_cursor"])
    assert [each["execution_id"] for each in rest["dead"]] == [first]
    assert desk.ff("dead", "ls", "--wide") == Exit.OK
    assert desk.out.splitlines()[1].split() == ["3", "greet", "permanent"]
    assert "KeyError: 'x'" in desk.out
    assert third in desk.out
    assert desk.ff("dead", "show", first) == Exit.OK
    assert first in desk.out
    words = ("dead", "retry", "--category", "permanent")
    assert desk.json(*words, "--dry-run") == {"dry_run": True, "matched": 3}
    assert desk.ff(*words) == Exit.USAGE
    assert "add --yes" in desk.err
    answer = desk.json(*words, "--limit", "1", "--yes")
    assert (answer["matched"], answer["done"]) == (1, 1)
    assert desk.json("show", third)["public_state"] == "waiting"
    assert desk.ff("dead", "dismiss", first, "--reason", "known") == Exit.OK
    assert desk.out == f"{first}  dismissed\n"
    assert desk.ff("dead", "dismiss", third) == Exit.REFUSED
    assert desk.ff("dead", "dismiss", "--kind", "greet", "--yes") == Exit.OK
    assert desk.out == "1 execution dismissed\n"
    assert desk.json("dead") == {"counts": [], "dead": [], "next_cursor": None}
    assert desk.json("show", second)["public_state"] == "failed"
    assert desk.json("events", "--kind", "operator", "--type", "dismissed")
    assert desk.ff("dead") == Exit.OK
    assert "nothing has failed, or all was seen to" in desk.err
    gone = desk.json("dead", "ls", "--dismissed")
    assert [each["execution_id"] for each in gone["dead"]] == [second, first]
    assert gone["counts"] == []
    restore = ("dead", "restore", "--kind", "greet")
    assert desk.json(*restore, "--dry-run") == {"dry_run": True, "matched": 2}
    assert desk.ff(*restore, "--limit", "1", "--yes") == Exit.OK
    assert desk.out == "1 execution restored\n"
    assert [each["execution_id"] for each in desk.json("dead")["dead"]] == [second]
    assert desk.ff("dead", "restore", first) == Exit.OK
    assert desk.out == f"{first}  restored\n"
    assert desk.ff("dead", "ls", "--dismissed") == Exit.OK
    assert "none was dismissed" in desk.err
    assert desk.json("events", "--kind", "operator", "--type", "restored")


def test_many_letters_are_changed_by_an_operation(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is about the open letters of one tenant, as the count before it was."""
    monkeypatch.setattr(dead, "OPERATION_ABOVE", 1)
    first, second, third = desk.failed(), desk.failed(), desk.failed()
    assert desk.ff("dead", "dismiss", first) == Exit.OK
    words = ("--category", "permanent", "--reason", "known", "--yes")
    answer = desk.json("dead", "retry", *words)
    assert (answer["matched"], answer["done"], answer["state"]) == (2, 2, "done")
    shown = desk.json("operations", "show", answer["operation_id"])
    assert (shown["filter"]["dead_letter"], shown["filter"]["namespace"]) == ("open", "default")
    states = [desk.json("show", each)["public_state"] for each in (first, second, third)]
    assert states == ["failed", "waiting", "waiting"]
    begun = desk.json("dead", "restore", "--all", "--yes", "--no-wait")
    assert begun["done"] == 1  # a single one needs no operation


def test_ids_or_what_they_have_in_common(desk: Desk) -> None:
    failed = desk.failed()
    for action in ("retry", "dismiss", "restore"):
        assert desk.ff("dead", action) == Exit.USAGE
        assert "--category" in desk.err
        assert desk.ff("dead", action, failed, "--all", "--yes") == Exit.USAGE
        assert desk.ff("dead", action, failed, "--dry-run") == Exit.USAGE
        assert desk.ff("dead", action, "--category", "other", "--yes") == Exit.OK
    assert desk.ff("dead", "retry", failed) == Exit.OK
    assert desk.json("show", failed)["replay_count"] == 1
