"""`ff failures`."""

from __future__ import annotations

import asyncio

from flowfabric.assemble import open_engine
from flowfabric.cli.exits import Exit
from flowfabric.model.failure import FailureOrigin
from tests.cli.desk import Desk

CHARGE = FailureOrigin(exception="shop.NoCard", frame="shop:charge", line=7, version="1")


def failed(desk: Desk, number: int) -> None:
    """So many that failed alike, and are counted."""

    async def main() -> None:
        engine = open_engine(desk.url)
        await engine.start()
        try:
            for _ in range(number):
                await engine.create_execution(execution_kind="order")
            for each in await engine.claim(
                lanes=["default"], worker_id="w", worker_instance_id="w", limit=number
            ):
                await engine.fail(
                    each.handle, reason="no card", failure_class="permanent", origin=CHARGE
                )
            while await engine.roll_up():
                pass
        finally:
            await engine.close()

    asyncio.run(main())


def test_groups_are_listed_shown_known_and_retried(desk: Desk) -> None:
    desk.submit("greet", "--lane", "other")
    assert desk.ff("failures") == Exit.OK
    assert "no failures" in desk.err
    failed(desk, 3)
    assert desk.ff("failures") == Exit.OK
    assert "shop:charge" in desk.out
    (group,) = desk.json("failures", "ls", "--within", "1h")["groups"]
    name = group["fingerprint"]
    assert group["failed"] == 3
    assert desk.ff("failures", "show", name) == Exit.OK
    for words in ("no card", "shop.NoCard", "shop:charge, line 7", "3 failed, 0 retried"):
        assert words in desk.out, words
    assert len(desk.json("failures", "show", name)["executions"]) == 3
    assert desk.ff("failures", "known", name, "--for", "2d", "--reason", "bank") == Exit.OK
    assert desk.json("failures")["groups"] == []
    assert len(desk.json("failures", "--known")["groups"]) == 1
    assert desk.ff("failures", "known", name, "--not") == Exit.OK
    assert len(desk.json("failures")["groups"]) == 1
    assert desk.ff("failures", "retry", name, "--dry-run") == Exit.OK
    assert "3 executions" in desk.out
    assert desk.ff("failures", "retry", name) == Exit.USAGE
    assert desk.json("failures", "retry", name, "--yes")["done"] == 3
    assert desk.json("ps", "--state", "waiting")["executions"] is not None
    assert desk.ff("failures", "known", name) == Exit.USAGE
    assert desk.ff("failures", "show", "0123") == Exit.NOT_FOUND
