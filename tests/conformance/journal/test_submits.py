"""Submits by the owner of a lease: what they create, and the entries that tell of it, together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution, NewUnique
from flowfabric.errors import (
    Corruption,
    InvalidInput,
    JournalFull,
    LaneClosed,
    NotFound,
    StaleLease,
    UniqueConflict,
)
from flowfabric.limits import JOURNAL_ENTRIES_MAX
from flowfabric.model.flow_results import FlowDuplicate, FlowSubmitted
from flowfabric.model.journal import EntryKind, NewEntry
from flowfabric.model.record import replace
from flowfabric.model.results import Batched, Claimed, Created, Debounced, Duplicate, Existing
from flowfabric.model.state import PublicState
from flowfabric.model.submitted import answers_kept
from tests.support.flows import arrows, node
from tests.support.journal import entry, journal, keys
from tests.support.lab import Lab, scenario

KIND = "submitted"
NEW = NewExecution(execution_kind=KIND)


def told(position: int, count: int = 1, key: str = "") -> NewEntry:
    """An entry about so many submits, to be filled in."""
    name = key or f"submit:{KIND}#{position + 1}"
    return entry(position, name, str(count).encode(), kind=EntryKind.SUBMIT)


async def submit(lab: Lab, owner: Claimed, requests: Any, *entries: NewEntry) -> list[Any]:
    return await lab.engine.create_executions(requests, handle=owner.handle, entries=entries)


async def submitted(lab: Lab) -> set[str]:
    """The ids of all that was submitted by an owner."""
    page = await lab.engine.list_executions(execution_kind=KIND)
    return {each.execution_id for each in page.items}


@scenario
async def test_an_entry_and_what_it_tells_of_are_recorded_together(lab: Lab) -> None:
    owner = await lab.started()
    (made,) = await submit(lab, owner, [NEW], entry(0), told(1))
    assert isinstance(made, Created)
    assert await lab.state(made.execution_id) is PublicState.WAITING
    _, found = await journal(lab, owner.execution_id, values=True)
    assert (found.kind, found.key) == (EntryKind.SUBMIT, f"submit:{KIND}#2")
    assert answers_kept(found.value or b"") == [made]
    assert (found.value or b"").decode() == f'["{made.execution_id}"]'


@scenario
async def test_what_was_submitted_is_no_child(lab: Lab) -> None:
    owner = await lab.started()
    (made,) = await submit(lab, owner, [NEW], told(0))
    await lab.cancel(owner.execution_id)
    assert await lab.state(made.execution_id) is PublicState.WAITING


@scenario
async def test_the_same_call_sent_again_creates_nothing(lab: Lab) -> None:
    """Also after the engine has seen other calls, and for several submits of one call."""
    owner = await lab.started()
    calls: list[tuple[list[NewExecution], list[NewEntry]]] = [
        ([NEW], [told(0)]),
        ([NEW, NEW, NEW], [entry(1), told(2, 1), told(3, 2)]),
    ]
    first = [await submit(lab, owner, requests, *entries) for requests, entries in calls]
    known = await submitted(lab)
    again = [await submit(lab, owner, requests, *entries) for requests, entries in calls]
    assert again == first
    assert await submitted(lab) == known
    assert len(known) == 4


@scenario
async def test_equal_calls_at_once_create_one(lab: Lab) -> None:
    owner, other = await lab.started(), await lab.started()
    calls = [submit(lab, owner, [NEW], told(0)) for _ in range(4)]
    *equal, of_other = await asyncio.gather(*calls, submit(lab, other, [NEW], told(0)))
    assert len({answer.execution_id for (answer,) in equal}) == 1
    assert len(await submitted(lab)) == 2
    assert of_other != equal[0]


@scenario
async def test_a_stale_owner_creates_nothing(lab: Lab) -> None:
    """Another worker has the lease by now."""
    stale = await lab.lapsed()
    await lab.after(60_000)
    assert (await lab.claim("w2")).execution_id == stale.execution_id
    async with lab.unchanged():
        for requests, entries in (([NEW], [told(0)]), ([NEW, NEW], [told(0, 2)])):
            with pytest.raises(StaleLease):
                await submit(lab, stale, requests, *entries)
        with pytest.raises(StaleLease):
            await lab.engine.submit_flow(nodes=[node("a")], handle=stale.handle, entries=[told(0)])


@scenario
async def test_a_refused_submit_leaves_no_entry(lab: Lab) -> None:
    owner = await lab.started()
    await lab.engine.set_lane_state(lane_id="shut", lane_state="disabled")
    refused = replace(NEW, lane_id="shut")
    async with lab.unchanged():
        with pytest.raises(LaneClosed) as alone:
            await submit(lab, owner, [refused], entry(0), told(1))
        with pytest.raises(LaneClosed) as second:
            await submit(lab, owner, [NEW, refused], entry(0), told(1, 2))
        with pytest.raises(NotFound):
            await submit(lab, owner, [replace(NEW, budget_ids=("none",))], told(0))
    assert not alone.value.detail.startswith("requests")
    assert second.value.detail.startswith("requests[1]: ")
    assert second.value.fields["index"] == 1


@scenario
async def test_each_answer_is_kept_as_it_was(lab: Lab) -> None:
    """Of a key that was used before, and of every meaning of a unique key."""
    owner = await lab.started()
    start, batch = lab.now + 60_000, NewUnique(key="b", batch_items=9, batch_ms=9)
    cases = [
        replace(NEW, idempotency_key="k"),
        replace(NEW, idempotency_key="k"),
        replace(NEW, unique=NewUnique(key="u")),
        replace(NEW, unique=NewUnique(key="u")),
        replace(NEW, unique=NewUnique(key="r", on_conflict="replace")),
        replace(NEW, unique=NewUnique(key="r", on_conflict="replace")),
        replace(NEW, unique=NewUnique(key="d", debounce_ms=50)),
        replace(NEW, unique=NewUnique(key="d", debounce_ms=50)),
        replace(NEW, input_payload=b'{"n":[1]}', unique=batch),
        replace(NEW, input_payload=b'{"n":[2]}', unique=batch),
        replace(NEW, delay_until=start),
    ]
    encoded = [replace(each, payload_encoding="json") for each in cases]
    first = await submit(lab, owner, encoded, told(0, len(cases)))
    kinds = [Created, Duplicate, Created, Existing, Created, Created]
    kinds += [Created, Debounced, Created, Batched, Created]
    assert [type(each) for each in first] == kinds
    assert first[5].replaced_id == first[4].execution_id
    assert first[-1].public_state is PublicState.DELAYED
    (found,) = await journal(lab, owner.execution_id, values=True)
    assert answers_kept(found.value or b"") == first
    async with lab.unchanged():
        assert await submit(lab, owner, encoded, told(0, len(cases))) == first


@scenario
async def test_a_flow_and_its_entry_are_recorded_together(lab: Lab) -> None:
    owner = await lab.started()
    graph: dict[str, Any] = {"nodes": [node("a"), node("b")], "edges": arrows("a b")}
    recorded: dict[str, Any] = {"handle": owner.handle, "entries": [told(0)]}
    made = await lab.engine.submit_flow(**graph, **recorded)
    assert isinstance(made, FlowSubmitted)
    assert set(made.execution_ids) == {"a", "b"}
    (found,) = await journal(lab, owner.execution_id, values=True)
    assert answers_kept(found.value or b"") == [made]
    async with lab.unchanged():
        assert await lab.engine.submit_flow(**graph, **recorded) == made
    keyed = {**graph, "idempotency_key": "once"}
    first = await lab.engine.submit_flow(**keyed)
    again = await lab.engine.submit_flow(**keyed, handle=owner.handle, entries=[told(1)])
    assert again == FlowDuplicate(first.flow_id)


@scenario
async def test_many_owners_share_a_commit(lab: Lab) -> None:
    owners = [await lab.started() for _ in range(3)]
    made = await asyncio.gather(*(submit(lab, each, [NEW], told(0)) for each in owners))
    assert len({answer.execution_id for (answer,) in made}) == 3
    for each, (answer,) in zip(owners, made, strict=True):
        (found,) = await journal(lab, each.execution_id, values=True)
        assert answers_kept(found.value or b"") == [answer]


@scenario
async def test_bad_input_changes_nothing(lab: Lab) -> None:
    owner = await lab.started()
    create, flow = lab.engine.create_executions, lab.engine.submit_flow
    handle = owner.handle
    wrong: list[tuple[str, Any]] = [
        ("handle", lambda: create([NEW], entries=[told(0)])),
        ("entries", lambda: create([NEW], handle=handle)),
        ("entries", lambda: create([NEW], handle=handle, entries=[told(0, 2)])),
        ("entries", lambda: create([NEW, NEW], handle=handle, entries=[told(0)])),
        ("entries", lambda: create([NEW], handle=handle, entries=[entry(0)])),
        ("handle", lambda: flow(nodes=[node("a")], entries=[told(0)])),
        ("entries", lambda: flow(nodes=[node("a")], handle=handle, entries=[told(0, 2)])),
    ]
    async with lab.unchanged():
        for field, call in wrong:
            with pytest.raises(InvalidInput) as caught:
                await call()
            assert caught.value.fields["field"] == field
        with pytest.raises(JournalFull):
            await submit(lab, owner, [NEW], told(JOURNAL_ENTRIES_MAX))


@scenario
async def test_another_entry_at_the_place_is_damage(lab: Lab) -> None:
    owner = await lab.started()
    await submit(lab, owner, [NEW], told(0))
    async with lab.unchanged():
        with pytest.raises(Corruption):
            await submit(lab, owner, [NEW], told(0, key="submit:other"))
    assert await keys(lab, owner.execution_id) == [f"submit:{KIND}#1"]


@scenario
async def test_a_call_sent_again_is_answered_though_what_it_made_would_now_refuse_it(
    lab: Lab,
) -> None:
    owner = await lab.started()
    request = replace(NEW, unique=NewUnique(key="u", on_conflict="refuse"))
    first = await submit(lab, owner, [request], told(0))
    assert await submit(lab, owner, [request], told(0)) == first
    with pytest.raises(UniqueConflict):
        await submit(lab, owner, [request], told(1))
    assert len(await journal(lab, owner.execution_id)) == 1


@pytest.mark.parametrize("count", [1, 2])
@scenario
async def test_a_submit_may_replace_its_own_owner(lab: Lab, count: int) -> None:
    """It is recorded all the same, with what it created."""
    unique = NewUnique(key="u", on_conflict="replace")
    owner = await lab.started(kind=KIND, unique=unique)
    others = [NEW] * (count - 1)
    made = await submit(lab, owner, [replace(NEW, unique=unique), *others], told(0, count))
    assert made[0].replaced_id == owner.execution_id
    assert await lab.state(owner.execution_id) is PublicState.CANCELLED
    assert len(await journal(lab, owner.execution_id)) == 1
