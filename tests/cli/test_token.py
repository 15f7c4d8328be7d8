"""`ff token` makes, lists and revokes what programs show to a server."""

from __future__ import annotations

from flowfabric.cli.exits import Exit
from tests.cli.desk import Desk


def test_a_token_is_printed_once(desk: Desk) -> None:
    assert desk.ff("token", "new", "ci", "--scope", "submit", "--expires", "90d") == Exit.OK
    text = desk.out.strip()
    assert text.startswith("ff_")
    assert "only once" in desk.err
    assert desk.ff("token", "ls") == Exit.OK
    assert text.split("_")[1] in desk.out
    assert text.split("_")[2] not in desk.out
    assert "never" in desk.out


def test_a_token_names_its_scopes_and_tenants(desk: Desk) -> None:
    made = desk.json(
        *("token", "new", "bot", "--scope", "read", "--scope", "approve", "--speaks-for"),
        *("--namespace", "a", "--namespace", "b"),
    )
    assert made["token"].startswith(f"ff_{made['id']}_")
    (shown,) = desk.json("token")
    assert (shown["scopes"], shown["namespaces"]) == (["read", "approve"], ["a", "b"])
    assert (shown["speaks_for"], shown["name"]) == (True, "bot")


def test_a_token_is_revoked(desk: Desk) -> None:
    made = desk.json("token", "new", "ci", "--scope", "admin")
    assert desk.ff("token", "revoke", made["id"]) == Exit.OK
    assert "within 30 seconds" in desk.out
    assert desk.ff("token", "revoke", made["id"]) == Exit.OK
    assert "before" in desk.out
    assert desk.json("token")[0]["revoked_at"] is not None
    assert desk.ff("token", "revoke", "0000000000") == Exit.NOT_FOUND


def test_a_wrong_scope_is_refused_with_the_nearest(desk: Desk) -> None:
    assert desk.ff("token", "new", "ci", "--scope", "sumbit") == Exit.USAGE
    assert "did you mean submit?" in desk.err
    assert desk.ff("token", "new", "ci") == Exit.USAGE
    assert "name some of" in desk.err
