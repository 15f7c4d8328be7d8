"""The audit trail: one entry for each act, in the transaction of what it did."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.access import RevokeAccessToken
from flowfabric.api.control import CancelExecution, HoldExecution
from flowfabric.api.operation import Request
from flowfabric.api.origins import coming_from
from flowfabric.config import EngineConfig
from flowfabric.errors import InvalidCursor, InvalidInput, NotFound
from flowfabric.model.audit import AuditEntry, Refusals, RequestOrigin
from flowfabric.model.results import Cancelled
from tests.support.lab import Lab, scenario

WEB = RequestOrigin(actor="user:ada", address="192.0.2.7", request_id="r-1", namespace="a")
UNKNOWN = "{fp:0}:01890000-0000-7000-8000-000000000001"


async def listed(lab: Lab, **fields: Any) -> list[AuditEntry]:
    return list((await lab.engine.list_audit(**fields)).items)


def told(entry: AuditEntry) -> tuple[str, str, str, str]:
    return entry.action, entry.subject, entry.actor, entry.reason


async def furnished(lab: Lab) -> str:
    """A hold and a change of a budget."""
    engine, execution_id = lab.engine, await lab.create()
    await engine.hold_execution(execution_id=execution_id, reason="wrong", actor="ann")
    await lab.after(10)
    await engine.create_budget(
        budget_id="pages", dimensions=["a"], hard_limits=[5], soft_limits=[0], actor="bob"
    )
    await lab.after(10)
    await engine.update_budget(budget_id="pages", hard_limits={"a": 6}, actor="bob")
    await lab.after(10)
    return execution_id


@scenario
async def test_each_act_has_one_entry_and_the_newest_comes_first(lab: Lab) -> None:
    execution_id = await furnished(lab)
    made = await lab.engine.create_access_token(name="ci", scopes=("read",), actor="cy")
    found = await listed(lab)
    assert [told(each) for each in found] == [
        ("create_access_token", made.id, "cy", ""),
        ("update_budget", "pages", "bob", ""),
        ("create_budget", "pages", "bob", ""),
        ("hold_execution", execution_id, "ann", "wrong"),
    ]
    assert [lab.now - each.occurred_at for each in found] == [0, 10, 20, 30]
    assert {(each.code, each.times, each.address) for each in found} == {("", 1, "")}
    (changed,) = await listed(lab, action="update_budget")
    assert "5" in repr(changed.details)
    assert "6" in repr(changed.details)
    assert made.token.reveal() not in repr(found)


@scenario
async def test_workers_and_submits_leave_no_entry(lab: Lab) -> None:
    await lab.create()
    claimed = await lab.claim()
    await lab.engine.renew(claimed.handle)
    await lab.engine.complete(claimed.handle)
    assert await listed(lab) == []


@scenario
async def test_a_refused_act_and_one_that_does_nothing_leave_no_entry(lab: Lab) -> None:
    async with lab.unchanged(), lab.refuses(NotFound):
        await lab.engine.revoke_access_token(token_id="none")
    made = await lab.engine.create_access_token(name="ci", scopes=("read",))
    await lab.engine.revoke_access_token(token_id=made.id)
    async with lab.unchanged():
        assert not (await lab.engine.revoke_access_token(token_id=made.id)).is_new


@scenario
async def test_a_call_of_a_request_has_its_actor_its_address_and_its_id(lab: Lab) -> None:
    """Also where nothing had to be done, and where many share a commit."""
    engine = lab.direct
    first, second = await lab.create(), await lab.create()
    gone = await engine.create_access_token(name="ci", scopes=("read",))
    await engine.revoke_access_token(token_id=gone.id)
    with coming_from(WEB):
        await engine.call(RevokeAccessToken(token_id=gone.id))
        wanted: list[Request[Any]] = [
            CancelExecution(
                execution_id=first, reason="x", source="operator_override", actor="user:ada"
            ),
            CancelExecution(execution_id=UNKNOWN, reason="x", source="operator_override"),
            HoldExecution(execution_id=second, reason="y", actor="user:ada"),
        ]
        replies = await engine.call_many(wanted)
    assert isinstance(replies[0], Cancelled)
    assert isinstance(replies[1], NotFound)
    found = await listed(lab, actor="user:ada")
    assert sorted(map(told, found)) == [
        ("cancel_execution", first, "user:ada", "x"),
        ("hold_execution", second, "user:ada", "y"),
        ("revoke_access_token", gone.id, "user:ada", ""),
    ]
    assert {(each.address, each.request_id) for each in found} == {("192.0.2.7", "r-1")}


@scenario
async def test_an_entry_is_found_by_each_filter_and_page_by_page(lab: Lab) -> None:
    execution_id = await furnished(lab)
    whole = await listed(lab)
    assert [each.subject for each in await listed(lab, subject=execution_id)] == [execution_id]
    assert len(await listed(lab, actor="bob")) == 2
    assert len(await listed(lab, actor="bob", action="create_budget", subject="pages")) == 1
    assert await listed(lab, actor="ann", action="create_budget") == []
    middle = whole[1].occurred_at
    assert await listed(lab, since=middle) == whole[:2]
    assert await listed(lab, until=middle) == whole[2:]
    assert await listed(lab, since=middle, until=middle + 1) == [whole[1]]
    pages: list[AuditEntry] = []
    cursor = None
    while True:
        page = await lab.engine.list_audit(limit=1, until=lab.now, cursor=cursor)
        pages += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert pages == whole
    assert await listed(lab, limit=0) == []


@scenario
async def test_what_belongs_to_a_namespace_is_found_for_it(lab: Lab) -> None:
    for space in ("a", "b", "c"):
        held = await lab.create(namespace=space)
        await lab.engine.hold_execution(execution_id=held, reason=space)
    assert [each.namespace for each in await listed(lab, namespaces=("c", "a"))] == ["c", "a"]
    assert len(await listed(lab, namespaces=("b",), action="hold_execution")) == 1


@scenario
async def test_refused_calls_are_added_as_they_were_gathered(lab: Lab) -> None:
    refused = Refusals(
        actor="token:x",
        address="192.0.2.7",
        action="GET /v1/tokens\0" + "x" * 2_000,
        code="missing_scope",
        request_id="r-9",
        namespace="",
        times=7,
    )
    assert await lab.engine.record_refusals(refusals=[refused]) == 1
    assert await lab.engine.record_refusals(refusals=[]) == 0
    (found,) = await listed(lab, actor="token:x")
    assert (found.code, found.times, found.request_id) == ("missing_scope", 7, "r-9")
    assert len(found.action.encode()) <= 1_024
    for wrong in ("x", ["x"], [refused] * 1_001):
        async with lab.refuses(InvalidInput, "refusals"):
            await lab.engine.record_refusals(refusals=wrong)  # type: ignore[arg-type]


@scenario
async def test_the_audit_trail_is_kept_for_its_retention_and_never_changed(lab: Lab) -> None:
    await furnished(lab)
    whole = await listed(lab)
    await lab.after(EngineConfig().audit_retention_ms - 40)
    await lab.engine.tick()
    assert await listed(lab) == whole
    await lab.after(40)
    await lab.engine.tick()
    assert await listed(lab) == []


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("actor", {"actor": 7}),
        ("action", {"action": "x" * 2_000}),
        ("since", {"since": -1}),
        ("until", {"until": "now"}),
        ("limit", {"limit": 1_001}),
        ("namespaces", {"namespaces": ()}),
    ],
)
@scenario
async def test_a_bad_filter_is_named(lab: Lab, field: str, fields: dict[str, Any]) -> None:
    async with lab.refuses(InvalidInput, field):
        await listed(lab, **fields)
    with pytest.raises(InvalidCursor):
        await listed(lab, cursor="nonsense")
