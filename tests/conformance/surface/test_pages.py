"""Every listing answers pages of one shape, and takes only its own cursors."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import pytest

from flowfabric.api.operation import OPERATIONS
from flowfabric.api.page import Page, encode_cursor
from flowfabric.errors import InvalidCursor, InvalidInput
from flowfabric.limits import PAGE_DEFAULT, PAGE_MAX
from flowfabric.model.results import Claimed
from flowfabric.model.suspension import OperatorOnly, Single
from tests.support.budgets import make_budget, spend
from tests.support.flows import arrows, submit
from tests.support.gates import quota
from tests.support.lab import LANE, TTL_MS, Lab, scenario
from tests.support.schedules import schedule
from tests.support.statistics import roll_up
from tests.support.waits import Waiting, suspended

LISTINGS = sorted(
    name for name, operation in OPERATIONS.items() if get_origin(operation.reply) is Page
)
# What is listed whole: each says at its request what bounds it.
BOUNDED = {"list_flow_members", "list_mailboxes", "list_waitpoint_hmac_kids"}
MANY = 3


def test_every_listing_takes_a_cursor_and_a_limit_and_answers_a_page() -> None:
    listings = {name for name in OPERATIONS if name.startswith("list_")}
    assert listings - BOUNDED == set(LISTINGS)
    for name in LISTINGS:
        request = OPERATIONS[name].request
        fields = request.__struct_fields__
        assert fields[-2:] == ("cursor", "limit"), name
        defaults = request.__struct_defaults__
        assert defaults[-2:] == (None, PAGE_DEFAULT), name
        assert get_args(OPERATIONS[name].reply), name


async def _furnish(lab: Lab) -> dict[str, dict[str, Any]]:
    """At least `MANY` of everything that is listed; the arguments that each listing needs."""
    waited = await _waited(lab)
    running = await _replayed(lab)
    ended = await lab.completed(lane_id="ended")
    graph = await submit(lab, "abcd", arrows("a>b", "a>c", "a>d"))
    for number in range(MANY):
        lab.clock.advance(1)
        told = {"lane_id": f"told-{number}"}
        waiting = await suspended(lab, Single("a", "approved"), created=told)
        await waiting.send("approved")
        await suspended(lab, OperatorOnly(), created={"lane_id": "others"})
        await submit(lab, "a")
        await make_budget(lab, f"budget-{number}", {"a": 1}, on_hard_limit="ask")
        await lab.engine.ask_budget(running.handle, budget_id=f"budget-{number}", amounts={"a": 2})
        await quota(lab, f"quota-{number}", cap=1)
        await lab.engine.create_consumer_group(group_id=f"group-{number}")
        await lab.engine.create_access_token(name=f"token-{number}", scopes=("read",))
        await schedule(lab, name=f"schedule-{number}")
        await lab.engine.register_worker(
            worker_id="w", worker_instance_id=f"w-{number}", lanes=(LANE,), liveness_ttl_ms=60_000
        )
        await lab.engine.create_waitpoint(
            running.handle, waitpoint_key=f"key-{number}", expires_in_ms=60_000
        )
        await lab.engine.start_operation(action="release")
        lost = await lab.started(lane_id="lost")
        await lab.engine.fail(
            lost.handle, reason="x", failure_class="permanent", category=f"category-{number}"
        )
        await lab.engine.retry_with_input(execution_id=ended, input_payload=b"%d" % number)
        await lab.started(kind=f"kind-{number}", lane_id=f"lane-{number}")
        await lab.create(f"kind-{number}", lane_id="unmet")
        await lab.create(lane_id="lines", serial_key="long")
        await lab.create(lane_id="lines", serial_key=f"line-{number}")
        await spend(lab, graph.ids["a"], {"tokens": 1}, f"budget-{number}")
    await roll_up(lab)
    return {
        "list_attempts": {"execution_id": running.execution_id},
        "list_edges": {"flow_id": graph.flow_id},
        "list_expired_leases": {"as_of": lab.now + TTL_MS},
        "list_execution_spend": {"execution_id": graph.ids["a"]},
        "list_flow_spend": {"flow_id": graph.flow_id},
        "list_graph_members": {"flow_id": graph.flow_id},
        "list_line": {"serial_key": "long"},
        "list_pending_waitpoints": {"execution_id": running.execution_id},
        "list_retries": {"execution_id": ended},
        "list_suspensions": {"execution_id": waited.claimed.execution_id},
    }


async def _replayed(lab: Lab) -> Claimed:
    """An execution in its third attempt."""
    claimed = await lab.started(lane_id="again")
    for _ in range(MANY - 1):
        await lab.engine.complete(claimed.handle)
        await lab.engine.replay_execution(execution_id=claimed.execution_id)
        claimed = await lab.claim(lanes=("again",))
    return claimed


async def _waited(lab: Lab) -> Waiting:
    """An execution in its third wait."""
    waiting = await suspended(lab, OperatorOnly(), created={"lane_id": "waits"})
    for _ in range(MANY - 1):
        lab.clock.advance(1)
        await lab.engine.resume_execution(execution_id=waiting.claimed.execution_id)
        waiting = await suspended(lab, OperatorOnly(), await lab.claim(lanes=("waits",)))
    return waiting


@scenario
async def test_pages_of_every_listing_make_up_the_whole(lab: Lab) -> None:
    given = await _furnish(lab)
    for name in LISTINGS:
        ask = getattr(lab.engine, name)
        whole = await ask(**given.get(name, {}), limit=PAGE_MAX)
        assert (whole.next_cursor, len(whole.items) >= MANY) == (None, True), name
        items: list[Any] = []
        cursor: str | None = None
        while not items or cursor is not None:
            page = await ask(**given.get(name, {}), cursor=cursor, limit=1)
            assert len(page.items) == 1, name
            items += page.items
            cursor = page.next_cursor
        assert items == list(whole.items), name
        assert await ask(**given.get(name, {}), limit=0) == Page(()), name


@scenario
async def test_a_cursor_of_another_listing_is_refused(lab: Lab) -> None:
    given = await _furnish(lab)
    cursors = {}
    for name in LISTINGS:
        page = await getattr(lab.engine, name)(**given.get(name, {}), limit=1)
        cursors[name] = page.next_cursor
    async with lab.unchanged():  # by all of them: each dump reads every table
        for name in LISTINGS:
            ask = getattr(lab.engine, name)
            for other, cursor in cursors.items():
                if other != name:
                    with pytest.raises(InvalidCursor, match="cursor"):
                        await ask(**given.get(name, {}), cursor=cursor)


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "////",
        "nonsense",
        "W10",  # an empty list
        encode_cursor("list_flows", []),
        encode_cursor("list_flows", ["x"]),
        encode_cursor("list_flows", [5]),
        encode_cursor("list_flows", ["01890000-0000-7000-8000-000000000003", "more"]),
        encode_cursor("list_flows", ["01890000-0000-7000-8000-000000000003"]) + "!",
        encode_cursor("list_flow", ["01890000-0000-7000-8000-000000000003"]),
    ],
)
@scenario
async def test_a_malformed_cursor_is_refused_with_advice(lab: Lab, cursor: str) -> None:
    with pytest.raises(InvalidCursor, match="next_cursor") as caught:
        await lab.engine.list_flows(cursor=cursor)
    assert caught.value.fields["field"] == "cursor"


@pytest.mark.parametrize("cursor", ["", "\ud800", "a\x00b", "x" * 5_000, 5, b"x"], ids=repr)
@scenario
async def test_a_cursor_is_text(lab: Lab, cursor: Any) -> None:
    async with lab.refuses(InvalidInput, field="cursor"):
        await lab.engine.list_flows(cursor=cursor)


@pytest.mark.parametrize("name", LISTINGS)
@pytest.mark.parametrize("limit", [-1, PAGE_MAX + 1, True, "5", None])
@scenario
async def test_a_page_is_bounded(lab: Lab, name: str, limit: Any) -> None:
    needed = {
        "execution_id": "{fp:0}:01890000-0000-7000-8000-000000000001",
        "flow_id": "01890000-0000-7000-8000-000000000003",
        "serial_key": "any",
    }
    fields = OPERATIONS[name].request.__struct_fields__
    given = {key: value for key, value in needed.items() if key in fields and fields[0] == key}
    async with lab.refuses(InvalidInput, field="limit"):
        await getattr(lab.engine, name)(**given, limit=limit)
