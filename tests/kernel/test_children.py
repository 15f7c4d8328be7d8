"""Parents and children: spawning, counting, waking; and what a replay means to a member."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import BudgetScopeMismatch, FlowAlreadyTerminal, LaneClosed
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.flow.children import (
    SpawnChildren,
    cancels_children,
    count_child,
    family_of,
    known_children,
    spawn,
    spawned_before,
    wake_parent,
)
from flowfabric.kernel.flow.dependent import skip
from flowfabric.kernel.flow.revival import lacks_input, replays_along, waits_again
from flowfabric.model.execution import Execution
from flowfabric.model.flow import FlowRow, FlowState, GroupState, MemberRow
from flowfabric.model.flow_results import Spawned
from flowfabric.model.record import replace
from flowfabric.model.results import Created, CreateResult, Duplicate
from flowfabric.model.state import AttemptState, BlockingReason, PublicState, blocked
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, fence_of, refusal

AT = Moment(NOW)
FAMILY = EXECUTION_ID[-36:]
FLOW = FlowRow("f", "default", "dag", FlowState.OPEN, 1, 1, node_count=1, child_count=2)


def spawning(parent: Execution, **fields: Any) -> SpawnChildren:
    return SpawnChildren(execution_id=EXECUTION_ID, fence=fence_of(parent), children=(), **fields)


def born(key: str) -> Decision[CreateResult]:
    child = replace(make.created(), execution_id=key)
    return Decision(Created(key, PublicState.WAITING), child)


# --- spawning ------------------------------------------------------------------------------------


def test_a_parent_without_a_flow_begins_one_under_its_own_id() -> None:
    parent = make.leased()
    decision = spawn(parent, None, None, [born("a"), born("b")], spawning(parent), AT)
    assert decision.reply == Spawned(FAMILY, ("a", "b"))
    assert decision.execution == replace(parent, flow_id=FAMILY, last_mutation_at=NOW)
    flow, row, *children = decision.saves
    assert isinstance(flow, FlowRow)
    assert (flow.flow_id, flow.flow_kind, flow.node_count, flow.child_count) == (
        FAMILY,
        "children",
        3,
        2,
    )
    assert row == MemberRow(FAMILY, EXECUTION_ID, "kind", open_children=2)
    assert children == [
        MemberRow(FAMILY, key, "kind", parent_id=EXECUTION_ID) for key in ("a", "b")
    ]


def test_a_member_spawns_into_its_own_flow() -> None:
    parent = replace(make.leased(), flow_id="f")
    assert family_of(parent) == "f"
    row = MemberRow("f", EXECUTION_ID, open_children=1)
    decision = spawn(parent, FLOW, row, [born("a")], spawning(parent), AT)
    assert decision.execution is None
    flow, its_row, _ = decision.saves
    assert isinstance(flow, FlowRow)
    assert (flow.node_count, flow.child_count) == (2, 3)
    assert its_row == replace(row, open_children=2)


def test_known_children_are_neither_counted_nor_made_again() -> None:
    parent, row = replace(make.leased(), flow_id="f"), MemberRow("f", EXECUTION_ID)
    known: Decision[CreateResult] = Decision(Duplicate("a"))
    decision = spawn(parent, FLOW, row, [known], spawning(parent), AT)
    assert decision.reply == Spawned("f", ("a",))
    assert [type(each) for each in decision.saves] == [FlowRow]


def test_one_refused_child_refuses_all_and_is_named() -> None:
    parent = make.leased()
    bad: Decision[CreateResult] = Decision(Refused(LaneClosed, "lane_id: closed"))
    decision = spawn(parent, None, None, [born("a"), bad], spawning(parent), AT)
    assert refusal(decision) is LaneClosed
    assert isinstance(decision.reply, Refused)
    assert decision.reply.detail == "children[1]: lane_id: closed"
    assert decision.saves == ()


def test_a_closed_flow_takes_no_children() -> None:
    parent = replace(make.leased(), flow_id="f")
    over = replace(FLOW, public_flow_state=FlowState.CANCELLED)
    assert refusal(spawn(parent, over, None, [], spawning(parent), AT)) is FlowAlreadyTerminal


def test_children_name_budgets_of_their_own_flow_only() -> None:
    parent = make.leased()
    own, other = ({"b": each} for each in (FAMILY, "other"))
    command = spawning(parent, flow_budgets=other)
    assert refusal(spawn(parent, None, None, [], command, AT)) is BudgetScopeMismatch
    reply = spawn(parent, None, None, [], spawning(parent, flow_budgets=own), AT).reply
    assert reply == Spawned(FAMILY, ())


def test_a_repeated_spawn_is_answered_if_all_children_are_this_parents() -> None:
    parent = replace(make.completed(), flow_id="f")
    mine = MemberRow("f", "a", parent_id=EXECUTION_ID)
    assert spawned_before(parent, ["a"], [mine]) == Spawned("f", ("a",))
    assert spawned_before(parent, ["a"], [replace(mine, parent_id="other")]) is None
    assert spawned_before(parent, ["a"], [None]) is None
    assert spawned_before(parent, [], []) is None
    assert spawned_before(make.completed(), ["a"], [mine]) is None


def test_children_are_known_only_by_their_keys_and_all_together() -> None:
    parent = replace(make.completed(), flow_id="f")
    same: Decision[CreateResult] = Decision(Duplicate("a"))
    keyed: Any = type("Keyed", (), {"idempotency_key": "k"})()
    bare: Any = type("Bare", (), {"idempotency_key": None})()
    assert known_children(parent, [keyed], [same]) == ["a"]
    assert known_children(parent, [keyed, keyed], [same, born("b")]) == []
    assert known_children(parent, [bare], [same]) == []
    assert known_children(make.completed(), [keyed], [same]) == []


# --- counting and waking -------------------------------------------------------------------------


def test_a_parent_counts_children_that_end_and_that_live_again() -> None:
    row = MemberRow("f", "p", open_children=1)
    assert count_child(row, make.completed()).open_children == 0
    assert count_child(row, make.created()).open_children == 2
    assert count_child(replace(row, open_children=0), make.failed()).open_children == 0


@pytest.mark.parametrize("situation", make.SITUATIONS)
def test_a_parent_that_did_not_succeed_cancels_its_open_children(situation: str) -> None:
    parent = make.SITUATIONS[situation]()
    lost = parent.is_terminal and parent.public_state is not PublicState.COMPLETED
    row = MemberRow("f", "p", open_children=1)
    assert cancels_children(row, parent) is lost
    assert not cancels_children(replace(row, open_children=0), parent)


def parked() -> Execution:
    state = blocked(BlockingReason.WAITING_FOR_CHILDREN, AttemptState.ATTEMPT_INTERRUPTED)
    return replace(make.created(), state=state, open_group=1)


def test_a_parked_parent_goes_on_when_nothing_keeps_it_back() -> None:
    row = MemberRow("f", "p")
    woken = wake_parent(parked(), row, AT)
    assert woken is not None
    assert woken.execution is not None
    assert woken.execution.is_waiting
    assert wake_parent(parked(), replace(row, open_children=1), AT) is None
    assert wake_parent(parked(), replace(row, total=1), AT) is None
    assert wake_parent(make.leased(), row, AT) is None
    assert wake_parent(None, row, AT) is None
    assert wake_parent(parked(), None, AT) is None


# --- replays -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("total", "state", "again", "lacks"),
    [
        (0, GroupState.PENDING, False, False),
        (1, GroupState.PENDING, True, False),
        (1, GroupState.IMPOSSIBLE, True, False),
        (1, GroupState.SATISFIED, False, True),
    ],
)
def test_what_a_replayed_member_still_lacks(
    total: int, state: GroupState, again: bool, lacks: bool
) -> None:
    row = MemberRow("f", "a", total=total, group_state=state)
    assert waits_again(row) is again
    assert lacks_input(row, make.created()) is lacks
    assert not lacks_input(row, make.leased())  # it ran, so it was handed its input


def test_a_replay_takes_along_only_what_was_skipped() -> None:
    skipped = skip(make.created(), AT).execution
    assert skipped is not None
    (command,) = replays_along(make.created(), [skipped, make.failed(), make.created()])
    assert (command.execution_id, command.cascade) == (EXECUTION_ID, True)
    assert command.requested_by == "flow"
