"""Undo as data: what the end of an execution undoes, in its transaction, without any handler."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.errors import ExecutionNotActive, InvalidInput, JournalFull, UndosNotRun
from flowfabric.model.attempt import FailureClass
from flowfabric.model.flow import FlowState
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.successor import Origin, Role, SuccessorInfo
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario


def undo(kind: str, arguments: bytes = b"{}", **fields: Any) -> NewExecution:
    return NewExecution(
        execution_kind=kind, input_payload=arguments, payload_encoding="json", **fields
    )


def entry(position: int, key: str, kind: EntryKind = EntryKind.UNDO) -> NewEntry:
    return NewEntry(position=position, key=key, kind=kind)


async def register(lab: Lab, claimed: Claimed, *kinds: str, at: int = 0) -> None:
    """Each by itself, as a handler does."""
    for position, kind in enumerate(kinds, at):
        one = undo(kind, f'{{"n": {position}}}'.encode(), priority=position)
        await lab.engine.register_undo(claimed.handle, [one], [entry(position, f"undo:{kind}")])


async def begun(lab: Lab, *kinds: str, **fields: Any) -> Claimed:
    claimed = await lab.started(**fields)
    await register(lab, claimed, *kinds)
    return claimed


async def told(lab: Lab, execution_id: str) -> SuccessorInfo | None:
    infos = (await lab.describe(execution_id)).successors
    return next((each for each in infos if each.role is Role.UNDO), None)


async def chain(lab: Lab, execution_id: str) -> list[str]:
    """The kinds of the calls that undo an execution, in their order; checks what each is."""
    info = await told(lab, execution_id)
    if info is None or info.flow_id is None:
        return []
    members = sorted(
        await lab.engine.list_flow_members(flow_id=info.flow_id), key=lambda each: each.rank
    )
    assert [each.rank for each in members] == list(range(info.count))
    ended = await lab.describe(execution_id)
    for place, member in enumerate(members):
        found = await lab.describe(member.execution_id)
        assert found.origin == Origin(Role.UNDO, ended.replay_count, execution_id)
        assert found.namespace == ended.namespace
        assert found.public_state is (
            PublicState.WAITING_CHILDREN if place else PublicState.WAITING
        )
    return [each.execution_kind for each in members]


async def calls(lab: Lab) -> int:
    return len((await lab.dump())["executions"]) - 1


@pytest.mark.parametrize(
    "how", ["sleeping", "cancel", "operator", "deadline", "timeout", "fail", "cap", "waiting"]
)
@scenario
async def test_every_end_without_success_undoes_last_first(lab: Lab, how: str) -> None:
    """Scenario 38: cancelled while it sleeps, expired, failed, killed beyond its recoveries: the
    chain is there with the end, created once, and each call with its own arguments."""
    rules = policy(
        attempt_timeout_ms=5000 if how == "timeout" else None,
        max_reclaim_count=0 if how == "cap" else None,
        retry_policy=retries(0),
    )
    deadline_at = lab.now + 5000 if how == "deadline" else None
    claimed = await begun(
        lab, "refund", "restock", "unbook", policy=rules, execution_deadline_at=deadline_at
    )
    engine, key = lab.engine, claimed.execution_id
    assert await told(lab, key) == SuccessorInfo(Role.UNDO, "undo", count=3)
    if how == "sleeping":
        await engine.delay(claimed.handle, delay_until=lab.now + 60_000)
        await lab.cancel(key)
    elif how == "waiting":
        await engine.revoke_lease(execution_id=key, reason="x")
        await lab.after(60_000)
        await lab.cancel(key)
    elif how == "cancel":
        await engine.cancel(claimed.handle, reason="x")
    elif how == "operator":
        await lab.cancel(key)
    elif how == "fail":
        await engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    else:
        await lab.after(claimed.lease_expires_at - lab.now)
    ended = await lab.describe(key)
    assert ended.completed_at == lab.now
    assert await chain(lab, key) == ["unbook", "restock", "refund"]
    async with lab.unchanged():
        await lab.after(0)
    for kind, n in (("unbook", 2), ("restock", 1), ("refund", 0)):
        (one,) = await lab.claims(worker=kind)
        assert (one.execution_kind, one.payload) == (kind, f'{{"n": {n}}}'.encode())
        assert one.priority == n
        assert one.created_at == ended.completed_at
        await engine.fail(one.handle, reason="x", failure_class=FailureClass.PERMANENT)
    assert await lab.claims() == []
    info = await told(lab, key)
    assert info is not None
    flow = await engine.describe_flow(flow_id=info.flow_id or "")
    assert flow is not None
    assert (flow.flow_kind, flow.public_flow_state) == ("undo", FlowState.FAILED)


@scenario
async def test_a_success_undoes_nothing(lab: Lab) -> None:
    """And a replay of it goes on by the journal, and may still have to undo."""
    claimed = await begun(lab, "refund")
    await lab.engine.complete(claimed.handle)
    assert (await told(lab, claimed.execution_id), await calls(lab)) == (None, 0)
    await lab.engine.replay_execution(
        execution_id=claimed.execution_id, requested_by="t", reason="again"
    )
    await lab.cancel(claimed.execution_id)
    assert await chain(lab, claimed.execution_id) == ["refund"]


@scenario
async def test_a_failed_undo_stops_the_chain_where_that_is_asked(lab: Lab) -> None:
    claimed = await begun(lab, "refund", "restock", undo_stops=True)
    await lab.cancel(claimed.execution_id)
    one = await lab.claim()
    await lab.engine.fail(one.handle, reason="x", failure_class=FailureClass.PERMANENT)
    info = await told(lab, claimed.execution_id)
    members = await lab.engine.list_flow_members(flow_id=(info.flow_id or "") if info else "")
    states = {each.execution_kind: each.public_state for each in members}
    assert states == {"restock": PublicState.FAILED, "refund": PublicState.SKIPPED}


@scenario
async def test_what_was_undone_is_begun_afresh(lab: Lab) -> None:
    """The journal tells of effects that are no longer there: a replay does not go on by it, and
    what it registers is undone by its own end."""
    claimed = await begun(lab, "refund")
    key = claimed.execution_id
    await lab.engine.fail(claimed.handle, reason="x", failure_class=FailureClass.PERMANENT)
    first = await told(lab, key)
    await lab.engine.replay_execution(execution_id=key, requested_by="t", reason="again")
    assert (await lab.describe(key)).journal_index == 1
    assert await told(lab, key) is None
    again = await lab.claim(kinds=("work",))
    await register(lab, again, "restock")
    await lab.cancel(key)
    assert await chain(lab, key) == ["restock"]
    assert await told(lab, key) != first
    assert await calls(lab) == 2


@scenario
async def test_a_repeated_registration_counts_once(lab: Lab) -> None:
    claimed = await lab.started()
    several = [undo("a"), undo("b")]
    entries = [entry(0, "undo:a"), entry(1, "step", EntryKind.STEP), entry(2, "undo:b")]
    first = await lab.engine.register_undo(claimed.handle, several, entries)
    async with lab.unchanged():
        assert await lab.engine.register_undo(claimed.handle, several, entries) == first
    info = await told(lab, claimed.execution_id)
    assert info is not None
    assert info.count == 2
    await lab.cancel(claimed.execution_id)
    assert await chain(lab, claimed.execution_id) == ["b", "a"]
    async with lab.refuses(ExecutionNotActive):
        await lab.engine.register_undo(claimed.handle, several, entries)


@scenario
async def test_at_most_a_hundred_and_these_in_one_transaction(lab: Lab) -> None:
    claimed = await lab.started()
    entries = [entry(at, f"undo#{at}") for at in range(100)]
    await lab.engine.register_undo(claimed.handle, [undo("u")] * 100, entries)
    async with lab.refuses(JournalFull, "100"):
        await lab.engine.register_undo(claimed.handle, [undo("u")], [entry(100, "more")])
    await lab.cancel(claimed.execution_id)
    assert len(await chain(lab, claimed.execution_id)) == 100


@scenario
async def test_a_handler_has_it_undone_itself(lab: Lab) -> None:
    """At once, once, with nothing left for the end; neither a retry nor a replay goes on by that
    journal."""
    claimed = await begun(lab, "refund", "restock", policy=policy(retry_policy=retries(1)))
    engine, key = lab.engine, claimed.execution_id
    ran = await engine.run_undo(claimed.handle, [entry(2, "undo_now", EntryKind.UNDONE)])
    assert [(await lab.describe(each)).execution_kind for each in ran.execution_ids] == [
        "restock",
        "refund",
    ]
    async with lab.unchanged():
        again = await engine.run_undo(claimed.handle, [entry(2, "undo_now", EntryKind.UNDONE)])
        assert again == ran
    nothing = await engine.run_undo(claimed.handle, [entry(3, "undo_now#2", EntryKind.UNDONE)])
    assert (nothing.flow_id, nothing.execution_ids) == (None, ())
    await register(lab, claimed, "unbook", at=4)
    await engine.fail(claimed.handle, reason="x")
    assert (await lab.describe(key)).journal_index == 1
    await lab.after(2000)
    again_claimed = await lab.claim(kinds=("work",))
    page = await engine.load_journal(again_claimed.handle)
    assert page.entries == ()
    await lab.cancel(key)
    assert (await told(lab, key), await calls(lab)) == (None, 2)


@scenario
async def test_no_chapter_ends_before_its_undos(lab: Lab) -> None:
    claimed = await begun(lab, "refund")
    async with lab.refuses(UndosNotRun, "undo:refund"):
        await lab.engine.continue_execution(claimed.handle, arguments=b"{}")
    await lab.engine.run_undo(claimed.handle, [entry(1, "undo_now", EntryKind.UNDONE)])
    await lab.engine.continue_execution(claimed.handle, arguments=b"{}")
    await lab.cancel(claimed.execution_id)
    assert await calls(lab) == 1


@scenario
async def test_a_fork_undoes_nothing_of_its_source(lab: Lab) -> None:
    claimed = await begun(lab, "refund")
    step = entry(1, "step", EntryKind.STEP)
    await lab.engine.checkpoint(claimed.handle, entries=[step])
    forked = await lab.engine.fork_execution(execution_id=claimed.execution_id, before="step")
    assert forked.entry_count == 1
    await lab.cancel(forked.execution_id)
    assert await told(lab, forked.execution_id) is None
    assert await told(lab, claimed.execution_id) is not None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"execution_kind": ""}, "execution_kind"),
        ({"execution_kind": "a", "idempotency_key": "k"}, "idempotency_key"),
        ({"execution_kind": "a", "tags": {"a.b": "c"}}, "tags"),
        ({"execution_kind": "a", "input_payload": b"\xff"}, "input_payload"),
        ({"execution_kind": "a", "payload_encoding": None}, "payload_encoding"),
        ({"execution_kind": "a", "namespace": "other"}, "namespace"),
        ({"execution_kind": "a", "undo_stops": True}, "undo_stops"),
    ],
)
@scenario
async def test_a_wrong_undo_is_refused_when_it_is_registered(
    lab: Lab, fields: dict[str, Any], field: str
) -> None:
    claimed = await lab.started()
    one = NewExecution(**{"payload_encoding": "json", **fields})
    async with lab.refuses(InvalidInput, field):
        await lab.engine.register_undo(claimed.handle, [one], [entry(0, "undo")])
    async with lab.refuses(InvalidInput, "entries"):
        await lab.engine.register_undo(claimed.handle, [], [entry(0, "undo")])


def test_an_entry_that_cannot_be_read_prevents_no_end(
    durable_lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are undone, and the log tells of it."""
    lab = durable_lab

    async def end() -> None:
        claimed = await begun(lab, "a", "b", "c")
        await lab.sql("UPDATE ff_journal SET value = NULL WHERE position = 1")
        await lab.cancel(claimed.execution_id)
        assert await lab.state(claimed.execution_id) is PublicState.CANCELLED
        kinds = [each.execution_kind for each in (await lab.dump())["executions"]]
        assert sorted(kinds) == ["a", "c", "work"]

    lab.run(end())
    assert "undoes nothing" in caplog.text
