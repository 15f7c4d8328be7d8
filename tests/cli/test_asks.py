"""budget asks, approve and reject, and what why says of a run that waits for an answer."""

from __future__ import annotations

import re

from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.cli.exits import Exit
from flowfabric.engine.engine import Engine
from flowfabric.model.suspension import Single
from tests.cli.desk import Desk


def spender(desk: Desk, amount: int) -> str:
    """An execution that waits for the answer about so many tokens."""

    async def work(engine: Engine) -> str:
        created = await engine.create_execution(execution_kind="agent")
        (claimed,) = await engine.claim(
            lanes=["default"], worker_id="ada", worker_instance_id="ada-1", limit=1
        )
        asked = await engine.ask_budget(claimed.handle, budget_id="gpt", amounts={"tokens": amount})
        key = asked.waitpoint_key
        request = SuspendRequest(
            resume_condition=Single(key), waitpoints=(UsePending(asked.waitpoint_id, key),)
        )
        await engine.suspend(claimed.handle, request)
        return created.execution_id

    return desk.given(work)


def test_a_budget_asks_and_is_answered(desk: Desk) -> None:
    create = ("budget", "create", "gpt", "--hard", "tokens=100", "--on-hard", "ask")
    assert desk.ff(*create) == 0
    assert desk.ff("budget", "asks") == 0
    assert "no budget asks anything" in desk.err
    one, two = spender(desk, 150), spender(desk, 120)
    assert desk.ff("budget", "asks") == 0, desk.err
    assert re.search(r"gpt +tokens +100 +0 +270 +270 +2 +\w+ +agent", desk.out)
    assert desk.ff("why", one) == 0
    assert "asks people: budget gpt, tokens 0/100 of the hard limit, 270 more wanted" in desk.out
    assert "ff budget approve gpt tokens --by NAME --raise-by 270, or --once" in desk.out
    assert len(desk.json("budget", "asks", "gpt", "--run", two)) == 1

    approve = ("budget", "approve", "gpt", "tokens", "--by", "ada")
    assert desk.ff(*approve) == Exit.USAGE
    assert desk.ff(*approve, "--once", "--number", "2") != 0
    assert desk.ff(*approve, "--once", "--run", two, "--comment", "go") == 0
    assert "1 execution goes on" in desk.out
    assert desk.json(*approve, "--raise-by", "900")["limit"] == 1000
    assert desk.ff("budget", "asks", "--answered") == 0
    assert "approved by 900, ada" in desk.out
    assert desk.ff("budget", "show", "gpt") == 0
    assert "tokens 120 beyond hard" in desk.out

    assert desk.ff("budget", "create", "small", "--soft", "a=1", "--on-soft", "ask") == 0
    reject = ("budget", "reject", "small", "a", "--by", "ada", "--soft")
    assert desk.ff(*reject) == Exit.NOT_FOUND
