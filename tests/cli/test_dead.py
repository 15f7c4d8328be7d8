"""`ff dead`: what failed or expired, until it is run again or dismissed."""

from __future__ import annotations

from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk


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
    assert desk.json("audit", "--type", "dismissed")


def test_ids_or_what_they_have_in_common(desk: Desk) -> None:
    failed = desk.failed()
    for action in ("retry", "dismiss"):
        assert desk.ff("dead", action) == Exit.USAGE
        assert "--category" in desk.err
        assert desk.ff("dead", action, failed, "--all", "--yes") == Exit.USAGE
        assert desk.ff("dead", action, failed, "--dry-run") == Exit.USAGE
        assert desk.ff("dead", action, "--category", "other", "--yes") == Exit.OK
    assert desk.ff("dead", "retry", failed) == Exit.OK
    assert desk.json("show", failed)["replay_count"] == 1
