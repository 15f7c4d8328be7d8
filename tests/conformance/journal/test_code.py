"""Versions of code: pins are capabilities, and journals tell which version began them."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.page import Page, every_item
from flowfabric.errors import ExecutionNotEligible, InvalidInput, NotFound
from flowfabric.model.code import CodeUse, Repinned, pin_of
from flowfabric.model.event import OperatorEventType
from flowfabric.model.journal import CodeMark, EntryKind
from flowfabric.model.state import PublicState
from tests.support.journal import entry, record
from tests.support.lab import Lab, scenario


def pinned(version: str, *more: str) -> dict[str, Any]:
    """The policy of an execution that belongs to a version."""
    needs = [*more, pin_of("work", version)]
    return {"routing_requirements": {"required_capabilities": needs}}


def offer(*versions: str) -> dict[str, Any]:
    return {"capabilities": [pin_of("work", each) for each in versions], "kinds": ["work"]}


async def uses(lab: Lab, **more: Any) -> list[CodeUse]:
    async def ask(cursor: str | None) -> Page[CodeUse]:
        return await lab.engine.list_code(cursor=cursor, limit=2, **more)

    return await every_item(ask)


@scenario
async def test_only_a_worker_with_the_version_claims(lab: Lab) -> None:
    """7.1.29, in the engine."""
    key = await lab.create(policy=pinned("2"))
    assert await lab.claims(**offer("3")) == []
    assert await lab.claims(kinds=["work"]) == []
    assert (await lab.claim(**offer("3", "2"))).execution_id == key


@scenario
async def test_a_moved_execution_is_claimed_by_the_other_version_alone(lab: Lab) -> None:
    key = await lab.create(policy=pinned("2", "gpu"))
    reply = await lab.engine.repin_execution(
        execution_id=key, expected="2", version="3", actor="ada"
    )
    assert reply == Repinned(key, "3")
    found = await lab.engine.describe_execution(execution_id=key)
    assert found is not None
    assert found.required_capabilities == ("gpu", pin_of("work", "3"))
    two, three = offer("2"), offer("3")
    for each in (two, three):
        each["capabilities"] = [*each["capabilities"], "gpu"]
    assert await lab.claims(**two) == []
    listed = await lab.engine.list_executions(execution_kind="work")
    assert [each.execution_id for each in listed.items] == [key]
    event = (await lab.operator_events(key))[-1]
    assert (event.event_type, event.actor) == (OperatorEventType.REPINNED, "ada")
    assert event.details == {"old_version": "2", "new_version": "3"}
    claimed = await lab.claim(**three)
    await lab.engine.complete(claimed.handle)
    counts = await lab.engine.count_listed(execution_kind="work", states=["completed"])
    assert counts == 1


@scenario
async def test_what_waits_delayed_held_or_suspended_is_moved_and_what_runs_is_not(
    lab: Lab,
) -> None:
    delayed = await lab.create(policy=pinned("2"), delay_until=lab.now + 10)
    held = await lab.create(policy=pinned("2"))
    await lab.engine.hold_execution(execution_id=held)
    for key in (delayed, held):
        await lab.engine.repin_execution(execution_id=key, expected="2", version="3")
    await lab.engine.release_execution(execution_id=held)
    await lab.after(10)
    found = await lab.claims(limit=5, **offer("3"))
    assert {each.execution_id for each in found} == {delayed, held}
    async with lab.refuses(ExecutionNotEligible, "active"):
        await lab.engine.repin_execution(execution_id=held, expected="3", version="4")
    await lab.engine.complete(found[0].handle)
    async with lab.refuses(ExecutionNotEligible):
        key = found[0].execution_id
        await lab.engine.repin_execution(execution_id=key, expected="3", version="4")


@scenario
async def test_a_blocked_route_is_blocked_under_its_new_name(lab: Lab) -> None:
    key = await lab.create(policy=pinned("2"))
    await lab.engine.block_route(
        execution_id=key, lane_id="default", reason_code="waiting_for_capable_worker"
    )
    await lab.engine.repin_execution(execution_id=key, expected="2", version="3")
    await lab.engine.register_worker(
        worker_id="w",
        worker_instance_id="w-1",
        lanes=["default"],
        capabilities=[pin_of("work", "3")],
        kinds=["work"],
        liveness_ttl_ms=60_000,
    )
    await lab.after(1)
    assert (await lab.record(key)).is_waiting


@scenario
async def test_a_move_says_what_it_expects(lab: Lab) -> None:
    key, free = await lab.create(policy=pinned("2")), await lab.create()
    for execution_id, expected in ((key, "1"), (free, "2")):
        async with lab.refuses(ExecutionNotEligible, "belongs to"):
            await lab.engine.repin_execution(
                execution_id=execution_id, expected=expected, version="3"
            )
    await lab.engine.repin_execution(execution_id=key, expected="2", version="3")
    async with lab.unchanged():  # repeated
        await lab.engine.repin_execution(execution_id=key, expected="2", version="3")
    async with lab.refuses(NotFound):
        unknown = key[:-1] + ("0" if key[-1] != "0" else "1")
        await lab.engine.repin_execution(execution_id=unknown, expected="2", version="3")


@pytest.mark.parametrize("version", ["", "a b", "a,b", "a@b", "x" * 129, 7])
@scenario
async def test_bad_versions_are_refused(lab: Lab, version: str) -> None:
    key = await lab.create(policy=pinned("2"))
    for field, words in (
        ("version", {"expected": "2", "version": version}),
        ("expected", {"expected": version, "version": "3"}),
    ):
        async with lab.refuses(InvalidInput, field):
            await lab.engine.repin_execution(execution_id=key, **words)


@scenario
async def test_the_code_of_live_executions_is_listed(lab: Lab) -> None:
    begun = await lab.started()
    mark = CodeMark(version="2")
    await record(lab, begun, entry(0, code=mark), entry(1, "patch:fraud", kind=EntryKind.PATCH))
    await record(lab, begun, entry(2, "patch:vat", kind=EntryKind.PATCH), entry(3))
    plain = await lab.started()
    await record(lab, plain, entry(0, "patch:vat", kind=EntryKind.PATCH))
    fresh = await lab.create(policy=pinned("3"))
    ended = await lab.started()
    await record(lab, ended, entry(0))
    await lab.engine.complete(ended.handle)
    await lab.create("other")
    found = {each.execution_id: each for each in await uses(lab, execution_kind="work")}
    active, waiting = PublicState.ACTIVE, PublicState.WAITING
    assert found == {
        begun.execution_id: CodeUse(
            begun.execution_id, "work", active, True, None, "2", ("fraud", "vat")
        ),
        plain.execution_id: CodeUse(plain.execution_id, "work", active, True, markers=("vat",)),
        fresh: CodeUse(fresh, "work", waiting, False, "3"),
    }
    assert len(await uses(lab)) == 4
    assert await uses(lab, execution_kind="none") == []
    assert await uses(lab, namespace="elsewhere") == []
