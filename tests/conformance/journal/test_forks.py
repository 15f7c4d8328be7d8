"""Forks: a new execution goes on from a copy of a journal; the one it comes from stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.waits import Fresh, SuspendRequest
from flowfabric.errors import InvalidInput, LaneClosed, NotFound, PayloadTooLarge
from flowfabric.model.event import OperatorEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.journal import (
    CodeMark,
    EntryKind,
    EntryState,
    Forked,
    JournalEntry,
    copied_outcome,
)
from flowfabric.model.results import Claimed
from flowfabric.model.state import PublicState
from flowfabric.model.suspension import ResumeCause, Single, Suspended
from tests.support.budgets import BUDGET, make_budget
from tests.support.journal import entry, failed, journal, keys, record
from tests.support.lab import Lab, scenario
from tests.support.waits import Waiting

PAYLOAD = b'{"a":1,"b":[2]}'


async def worked(lab: Lab, **more: Any) -> Claimed:
    """An execution with five entries, the last but one secret."""
    claimed = await lab.started(input_payload=PAYLOAD, payload_encoding="json", **more)
    await record(
        lab,
        claimed,
        entry(0, "fetch", b'"page"', code=CodeMark(version="2"), digest=b"12345678"),
        entry(1, "quote", b"5"),
        failed(2, "mail"),
        entry(3, "token", b'"s"', is_secret=True),
        entry(4, "charge", b"true"),
        next_key="ship",
    )
    return claimed


async def fork(lab: Lab, claimed: Claimed, before: str = "charge", **more: Any) -> Forked:
    return await lab.engine.fork_execution(execution_id=claimed.execution_id, before=before, **more)


async def started(lab: Lab, forked: Forked) -> tuple[Claimed, tuple[JournalEntry, ...]]:
    """The fork as its worker gets it."""
    claimed = await lab.claim("w2")
    assert claimed.execution_id == forked.execution_id
    return claimed, (await lab.engine.load_journal(claimed.handle)).entries


@scenario
async def test_a_fork_has_all_before_the_key_and_runs_at_once(lab: Lab) -> None:
    """7.1.30, in the engine."""
    source = await worked(lab, priority=7, tags={"a.b": "c"}, idempotency_key="k")
    before = await lab.record(source.execution_id)
    forked = await fork(lab, source, actor="ada")
    assert (forked.forked_from, forked.entry_count) == (source.execution_id, 4)
    assert await lab.record(source.execution_id) == before
    assert len(await journal(lab, source.execution_id)) == 5
    claimed, entries = await started(lab, forked)
    assert (claimed.attempt_index, claimed.handle.kind) == (0, HandleKind.FRESH)
    assert (claimed.forked_from, claimed.idempotency_key) == (source.execution_id, None)
    assert (claimed.payload, claimed.priority, claimed.tags) == (PAYLOAD, 7, {"a.b": "c"})
    assert [each.key for each in entries] == ["fetch", "quote", "mail", "token"]
    assert (entries[0].code, entries[0].digest) == (CodeMark(version="2"), b"12345678")
    assert (entries[2].state, entries[3].value) == (EntryState.FAILED, b'"s"')
    assert {each.next_key for each in entries} == {None}
    await record(lab, claimed, entry(4, "charge"))
    found = await lab.engine.describe_execution(execution_id=forked.execution_id)
    assert found is not None
    assert found.forked_from == source.execution_id
    event = (await lab.operator_events(source.execution_id))[-1]
    assert (event.event_type, event.actor) == (OperatorEventType.FORKED, "ada")
    assert event.details == {"fork": forked.execution_id, "before": "charge"}


@scenario
async def test_results_and_arguments_are_replaced(lab: Lab) -> None:
    source = await worked(lab)
    forked = await fork(
        lab, source, results={"quote": b"7", "mail": b"null"}, arguments={"a": b'"x"', "c": b"3"}
    )
    claimed, entries = await started(lab, forked)
    assert claimed.payload == b'{"a":"x","b":[2],"c":3}'
    values = {each.key: (each.state, each.value, each.error) for each in entries}
    assert values["quote"] == (EntryState.OK, b"7", None)
    assert values["mail"] == (EntryState.OK, b"null", None)


@scenario
async def test_any_state_may_be_forked(lab: Lab) -> None:
    source = await worked(lab)
    await lab.engine.complete(source.handle, result=b"1")
    await fork(lab, source)
    assert (await lab.record(source.execution_id)).public_state is PublicState.COMPLETED
    await lab.engine.replay_execution(execution_id=source.execution_id)
    await lab.engine.hold_execution(execution_id=source.execution_id)
    forked = await fork(lab, source, "fetch")
    assert forked.entry_count == 0


@scenario
async def test_how_a_wait_ended_is_copied_by_value(lab: Lab) -> None:
    claimed = await lab.started()
    wait = entry(0, "wait:go", None, kind=EntryKind.WAIT, state=EntryState.OPEN)
    request = SuspendRequest(resume_condition=Single("go", "go"), waitpoints=(Fresh("go"),))
    outcome = await lab.engine.suspend(claimed.handle, request, entries=(wait,))
    assert isinstance(outcome, Suspended)
    await Waiting(lab, claimed, outcome).send(payload=b'{"x":1}')
    again = await lab.claim()
    await record(lab, again, entry(1, "charge"))
    forked = await fork(lab, again)
    await lab.engine.complete(again.handle)
    _, (copied,) = await started(lab, forked)
    assert (copied.state, copied.refers_to) == (EntryState.OK, None)
    ended = copied_outcome(copied)
    assert ended is not None
    assert ended.cause is ResumeCause.SIGNAL
    (came,) = ended.signals
    assert (came.payload, came.source_identity) == (b'{"x":1}', "alice")


@scenario
async def test_a_later_chapter_is_forked_with_its_own_arguments(lab: Lab) -> None:
    source = await worked(lab)
    await lab.engine.continue_execution(source.handle, arguments=b'{"a":2}')
    again = await lab.claim()
    await record(lab, again, entry(1, "fetch"), entry(2, "pay"))
    async with lab.refuses(InvalidInput, "earlier ones cannot be gone back to"):
        await fork(lab, again, "charge")
    forked = await fork(lab, again, "pay", arguments={"b": b"9"})
    await lab.engine.complete(again.handle)
    _, entries = await started(lab, forked)
    assert [(each.key, each.kind) for each in entries] == [
        ("chapter", EntryKind.CHAPTER),
        ("fetch", EntryKind.STEP),
    ]
    assert entries[0].value == b'{"a":2,"b":9}'
    page = await lab.engine.read_journal(execution_id=forked.execution_id)
    assert (page.journal_index, page.chapter_index) == (0, 0)


@scenario
async def test_nothing_is_charged_for_what_is_copied(lab: Lab) -> None:
    await make_budget(lab, hard={"tokens": 10})
    source = await worked(lab, budget_ids=[BUDGET])
    before = (await lab.dump())["ff_budget_usage"]
    forked = await fork(lab, source)
    assert (await lab.dump())["ff_budget_usage"] == before
    assert (await lab.record(forked.execution_id)).bounds.budget_ids == (BUDGET,)


@scenario
async def test_a_fork_of_a_member_is_in_no_flow(lab: Lab) -> None:
    source = await worked(lab)
    await lab.engine.spawn_children(source.handle, [NewExecution(execution_kind="child")])
    forked = await fork(lab, source)
    assert (await lab.record(forked.execution_id)).flow_id is None


@pytest.mark.parametrize(
    ("word", "more"),
    [
        ("the nearest keys are charge", {"before": "chrage"}),
        ("before", {"before": ""}),
        ("before", {"before": 7}),
        ("'charge' is not recorded before the cut", {"results": {"charge": b"1"}}),
        ("nearest keys are quote", {"results": {"quot": b"1"}}),
        ("is not JSON", {"results": {"quote": b"{"}}),
        ("results", {"results": {"quote": "text"}}),
        ("results", {"results": [1]}),
        ("results", {"results": {7: b"1"}}),
        ("arguments", {"arguments": {"a": b"x"}}),
        ("arguments", {"arguments": {"": b"1"}}),
    ],
)
@scenario
async def test_what_makes_no_sense_is_refused(lab: Lab, word: str, more: dict[str, Any]) -> None:
    source = await worked(lab)
    async with lab.refuses(InvalidInput, word):
        await fork(lab, source, **more)


@scenario
async def test_a_wait_has_no_result_that_could_be_set(lab: Lab) -> None:
    claimed = await lab.started()
    wait = entry(0, "sleep", None, kind=EntryKind.WAIT)
    await record(lab, claimed, wait, entry(1, "charge"))
    async with lab.refuses(InvalidInput, "is of the kind wait"):
        await fork(lab, claimed, results={"sleep": b"1"})


@scenario
async def test_without_a_journal_there_is_nothing_to_fork(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, "has no journal"):
        await fork(lab, claimed)
    async with lab.refuses(NotFound):
        key = claimed.execution_id
        unknown = key[:-1] + ("0" if key[-1] != "0" else "1")
        await lab.engine.fork_execution(execution_id=unknown, before="a")


@scenario
async def test_a_closed_lane_and_an_input_that_is_too_large(lab: Lab) -> None:
    source = await worked(lab)
    async with lab.refuses(PayloadTooLarge):
        await fork(lab, source, arguments={"a": b'"' + b"x" * ((1 << 20) - 5) + b'"'})
    await lab.engine.drain_lane(lane_id="default")
    async with lab.refuses(LaneClosed):
        await fork(lab, source)


@scenario
async def test_a_long_journal_is_forked_whole(lab: Lab) -> None:
    claimed = await lab.started()
    for start in range(0, 2_500, 100):
        await record(lab, claimed, *map(entry, range(start, start + 100)))
    forked = await fork(lab, claimed, "step#2400")
    assert forked.entry_count == 2_399
    assert (await keys(lab, forked.execution_id, after=2_397)) == ["step#2399"]
