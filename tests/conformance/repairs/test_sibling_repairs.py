"""The deferred cancels of a decided group are performed now, restored, or dropped when stale."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidInput, NotFound
from flowfabric.ids import new_uuid7s
from flowfabric.model.event import OperatorEventType
from flowfabric.model.flow import GroupState
from flowfabric.model.flow_results import FlowSubmitted
from flowfabric.model.record import replace
from flowfabric.model.repair import SiblingAction, SiblingsDrained, SiblingsReconciled
from flowfabric.model.state import PublicState
from flowfabric.stores.base import RowChanges
from flowfabric.stores.tables import FLOW_TASKS, MEMBERS
from tests.support.lab import Lab, scenario
from tests.support.spoiling import busy, write


def group(made: FlowSubmitted) -> dict[str, str]:
    """The group that one success has decided: two others still run for it."""
    return {"flow_id": made.flow_id, "downstream_execution_id": made.execution_ids["any"]}


async def drain(lab: Lab, made: FlowSubmitted) -> SiblingsDrained:
    return await lab.engine.drain_sibling_cancel_group(**group(made))


async def reconcile(lab: Lab, made: FlowSubmitted) -> SiblingsReconciled:
    return await lab.engine.reconcile_sibling_cancel_group(**group(made))


async def tasks(lab: Lab) -> list[Any]:
    return (await lab.dump())[FLOW_TASKS.name]


async def forget_tasks(lab: Lab) -> None:
    change = RowChanges()
    change.deleted += [FLOW_TASKS.key_of(row) for row in await tasks(lab)]
    await write(lab, FLOW_TASKS, change)


def rivals(made: FlowSubmitted) -> list[str]:
    return sorted(made.execution_ids[name] for name in "bc")


@scenario
async def test_deferred_cancels_are_performed_now(lab: Lab) -> None:
    made = await busy(lab)
    assert await drain(lab, made) == SiblingsDrained(tuple(rivals(made)), is_drained=True)
    for key in rivals(made):
        assert await lab.state(key) is PublicState.CANCELLED
        assert (await lab.record(key)).cancellation_reason == "sibling_quorum_satisfied"
    assert await tasks(lab) == []
    (event,) = await lab.operator_events(made.flow_id)
    assert event.event_type is OperatorEventType.SIBLINGS_DRAINED
    assert event.details["cancelled"] == 2
    async with lab.unchanged():
        assert await drain(lab, made) == SiblingsDrained((), is_drained=True)
    assert (await lab.engine.doctor()).problems == ()


@scenario
async def test_a_wide_group_is_drained_in_several_transactions(lab: Lab, monkeypatch: Any) -> None:
    monkeypatch.setattr("flowfabric.engine.unit.flows.catch_up.CatchUp.cancels_remaining", 1)
    made = await busy(lab)
    done = await drain(lab, made)
    assert (sorted(done.cancelled), done.is_drained) == (rivals(made), True)


@scenario
async def test_a_sibling_that_has_ended_is_stepped_over(lab: Lab) -> None:
    made = await busy(lab)
    await lab.cancel(made.execution_ids["b"])
    assert (await drain(lab, made)).cancelled == (made.execution_ids["c"],)


@scenario
async def test_missing_cancels_are_restored(lab: Lab) -> None:
    made = await busy(lab)
    await forget_tasks(lab)
    assert await drain(lab, made) == SiblingsDrained((), is_drained=True)
    assert await reconcile(lab, made) == SiblingsReconciled(SiblingAction.RESTORED, 2)
    async with lab.unchanged():
        assert await reconcile(lab, made) == SiblingsReconciled(SiblingAction.NO_OP, 2)
    assert (await drain(lab, made)).cancelled == tuple(rivals(made))
    async with lab.unchanged():
        assert await reconcile(lab, made) == SiblingsReconciled(SiblingAction.NO_OP, 0)


@scenario
async def test_cancels_that_are_still_to_be_done_are_left_alone(lab: Lab) -> None:
    made = await busy(lab)
    async with lab.unchanged():
        assert (await reconcile(lab, made)).action is SiblingAction.NO_OP


@scenario
async def test_an_interrupted_drain_is_completed(lab: Lab) -> None:
    made = await busy(lab)
    for key in rivals(made):
        await lab.cancel(key)
    assert await reconcile(lab, made) == SiblingsReconciled(SiblingAction.COMPLETED_DRAIN, 0)
    assert await tasks(lab) == []


@scenario
async def test_cancels_of_a_group_that_is_open_are_dropped(lab: Lab) -> None:
    made = await busy(lab)
    rows = [r for r in (await lab.dump())[MEMBERS.name] if r.group_state is GroupState.SATISFIED]
    change = RowChanges()
    change.updated += [replace(row, group_state=GroupState.PENDING) for row in rows]
    change.fields.add("group_state")
    await write(lab, MEMBERS, change)
    assert (await reconcile(lab, made)).action is SiblingAction.SREMMED_STALE
    assert await tasks(lab) == []


@pytest.mark.parametrize("name", ["drain_sibling_cancel_group", "reconcile_sibling_cancel_group"])
@scenario
async def test_bad_input_is_refused(lab: Lab, name: str) -> None:
    made, call = await busy(lab), getattr(lab.engine, name)
    async with lab.refuses(InvalidInput, "flow_id"):
        await call(**{**group(made), "flow_id": "x"})
    async with lab.refuses(InvalidInput, "downstream_execution_id"):
        await call(**{**group(made), "downstream_execution_id": "x"})
    async with lab.refuses(NotFound):
        await call(**{**group(made), "flow_id": new_uuid7s(1)[0]})
    async with lab.unchanged():
        await call(**{**group(made), "downstream_execution_id": made.execution_ids["a"]})
