"""The steps of a cascade: which edges an end resolves, which groups that decides, what follows."""

from __future__ import annotations

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.flow.cascade import (
    Child,
    after_decision,
    concerned,
    conclude,
    count_groups,
    is_handed_input,
    sort_ends,
)
from flowfabric.kernel.flow.dependent import hold_back
from flowfabric.kernel.flow.inputs import TooLarge
from flowfabric.kernel.flow.join import siblings_to_cancel
from flowfabric.model.execution import Execution
from flowfabric.model.flow import (
    AnySucceeded,
    EdgeAhead,
    EdgeState,
    GroupState,
    MemberRow,
    OnSatisfied,
)
from flowfabric.model.record import replace
from flowfabric.model.state import AttemptState, TerminalOutcome, blocked
from flowfabric.model.state import BlockingReason as Reason
from tests.support import builders as make
from tests.support.builders import NOW

AT = Moment(NOW)
ANY = AnySucceeded(OnSatisfied.CANCEL_REMAINING)
MET, LOST = GroupState.SATISFIED, GroupState.IMPOSSIBLE


def edge(upstream: str, downstream: str, **fields: int) -> EdgeAhead:
    key = upstream + downstream
    return EdgeAhead("f", key, upstream, downstream, EdgeState.APPLIED, **fields)


def waiting() -> Execution:
    held = hold_back(make.created(), "waiting", AT).execution
    assert held is not None
    return held


# --- which edges ---------------------------------------------------------------------------------


def test_edges_are_sorted_by_their_downstream() -> None:
    edges = [edge("u", "a"), edge("v", "a"), edge("u", "b")]
    ends = sort_ends(edges, {"u": make.completed(), "v": make.failed()}, set())
    assert ends.alone == []
    assert ends.groups == {("f", "a"): edges[:2], ("f", "b"): edges[2:]}
    assert ends.size == 3


def test_an_edge_that_counted_in_this_life_counts_no_more() -> None:
    edges = [edge("u", "a", resolved_generation=0), edge("u", "b")]
    ends = sort_ends(edges, {"u": make.completed()}, set())
    assert list(ends.groups) == [("f", "b")]


def test_a_success_that_meets_its_group_alone_is_not_counted() -> None:
    sole = [edge("u", "a", is_sole=1)]
    assert sort_ends(sole, {"u": make.completed()}, set()).alone == sole
    assert sort_ends(sole, {"u": make.failed()}, set()).alone == []
    seen = sort_ends(sole, {"u": make.completed()}, {("f", "a")})
    assert (seen.alone, list(seen.groups)) == ([], [("f", "a")])


# --- which groups --------------------------------------------------------------------------------


def test_groups_are_counted_in_the_order_of_their_ends() -> None:
    groups = {("f", "a"): [edge("u", "a"), edge("v", "a")], ("f", "gone"): [edge("u", "gone")]}
    members = {("f", "a"): MemberRow("f", "a", policy=ANY, total=3)}
    counted = count_groups(groups, members, {"u": make.failed(), "v": make.completed()}, AT)
    (only,) = counted.values()
    assert (only.fires, only.decisive, only.member.resolved) == (MET, 1, 2)


def test_ends_after_the_decision_hand_nothing_on() -> None:
    groups = {("f", "a"): [edge("u", "a"), edge("v", "a"), edge("w", "a")]}
    members = {("f", "a"): MemberRow("f", "a", policy=ANY, total=3)}
    counted = count_groups(groups, members, dict.fromkeys("uvw", make.completed()), AT)
    child = waiting()
    done = conclude(groups, counted, {"a": child})
    assert done.late == {"va", "wa"}
    assert done.decided == [Child(counted[("f", "a")].member, child)]
    assert done.resolved == groups[("f", "a")]
    assert done.locked == set()


def test_an_end_that_would_decide_a_locked_member_is_not_counted_yet() -> None:
    groups = {("f", "a"): [edge("u", "a")], ("f", "b"): [edge("v", "b")]}
    members = {
        ("f", "a"): MemberRow("f", "a", total=1),
        ("f", "b"): MemberRow("f", "b", total=2),
    }
    counted = count_groups(groups, members, dict.fromkeys("uv", make.completed()), AT)
    done = conclude(groups, counted, {})
    assert done.locked == {"u"}
    assert done.resolved == groups[("f", "b")]
    assert [each.execution_id for each in done.members] == ["b"]
    assert done.decided == []


# --- what follows --------------------------------------------------------------------------------


def test_a_decision_concerns_only_members_that_wait_for_it() -> None:
    met, held = MemberRow("f", "a", group_state=MET), waiting()
    free, ended = make.created(), make.cancelled()
    assert concerned([Child(met, held)]) == [(met, held)]
    assert concerned([Child(met, free), Child(met, ended), Child(met, None)]) == []


def test_only_a_met_join_hands_results_on() -> None:
    assert is_handed_input(MemberRow("f", "a", group_state=MET, passing=1))
    assert not is_handed_input(MemberRow("f", "a", group_state=MET))
    assert not is_handed_input(MemberRow("f", "a", group_state=LOST, passing=1))


def test_a_decided_member_is_released_skipped_or_rejected() -> None:
    met, lost = MemberRow("f", "a", group_state=MET), MemberRow("f", "a", group_state=LOST)
    outcomes = [
        each.execution.state.terminal_outcome
        for each in (
            after_decision(met, waiting(), None, AT),
            after_decision(lost, waiting(), None, AT),
            after_decision(met, waiting(), TooLarge(9, 8), AT),
        )
        if each is not None and each.execution is not None
    ]
    assert outcomes == [TerminalOutcome.NONE, TerminalOutcome.SKIPPED, TerminalOutcome.FAILED]


def test_a_parked_parent_waits_on_for_its_children() -> None:
    state = blocked(Reason.WAITING_FOR_CHILDREN, AttemptState.ATTEMPT_INTERRUPTED)
    parent = replace(waiting(), state=state)
    row = MemberRow("f", "a", group_state=MET, open_children=1)
    assert after_decision(row, parent, None, AT) is None
    assert after_decision(replace(row, open_children=0), parent, None, AT) is not None
    assert after_decision(row, waiting(), None, AT) is not None  # it has not begun


def test_siblings_that_an_open_group_waits_for_are_spared() -> None:
    edges = [edge("s", "open"), edge("t", "decided"), edge("u", "gone")]
    members = {
        ("f", "open"): MemberRow("f", "open"),
        ("f", "decided"): MemberRow("f", "decided", group_state=MET),
    }
    assert siblings_to_cancel(["s", "t", "u", "v"], edges, members) == ["t", "u", "v"]
