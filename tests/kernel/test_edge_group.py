"""Edge groups: every comparison of the table in flows 7.3, on both sides of its edge."""

from __future__ import annotations

from itertools import product

import pytest

from flowfabric.kernel.flow.join import (
    EdgeEnd,
    cancels_siblings,
    count_ends,
    edge_end,
    is_open,
    judge,
    judged,
    keeps_back,
    reopened,
    sibling_reason,
    spares_shared,
)
from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    EdgeRow,
    EdgeState,
    GroupState,
    MemberRow,
    OnSatisfied,
    Quorum,
)
from flowfabric.model.record import replace
from flowfabric.model.state import TerminalOutcome
from tests.support.builders import cancelled, completed, failed

CANCEL, LET_RUN = OnSatisfied.CANCEL_REMAINING, OnSatisfied.LET_RUN
PENDING, SATISFIED, IMPOSSIBLE = GroupState
NOW = 1000
LOSSES = (TerminalOutcome.FAILED, TerminalOutcome.CANCELLED, TerminalOutcome.EXPIRED)
EDGE = EdgeRow("f", "e", "up", "down", "success_only", EdgeState.APPLIED, 0)


def member(policy: EdgePolicy | None = None, **fields: object) -> MemberRow:
    return MemberRow("f", "down", policy=policy, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("policy", "counts", "expected"),
    [
        # AllSucceeded: all n, and the first loss ends it.
        (AllSucceeded(), (0, 0, 0, 0), PENDING),
        (AllSucceeded(), (2, 1, 0, 0), PENDING),
        (AllSucceeded(), (2, 2, 0, 0), SATISFIED),
        (AllSucceeded(), (2, 0, 1, 0), IMPOSSIBLE),
        (AllSucceeded(), (2, 1, 0, 1), IMPOSSIBLE),
        # AllDone: everybody ended, however.
        (AllDone(), (2, 1, 0, 0), PENDING),
        (AllDone(), (2, 0, 1, 0), PENDING),
        (AllDone(), (2, 0, 1, 1), SATISFIED),
        (AllDone(), (2, 2, 0, 0), SATISFIED),
        # AnySucceeded: the first success, or the last loss.
        (AnySucceeded(CANCEL), (3, 0, 0, 0), PENDING),
        (AnySucceeded(CANCEL), (3, 1, 0, 0), SATISFIED),
        (AnySucceeded(CANCEL), (3, 1, 2, 0), SATISFIED),
        (AnySucceeded(CANCEL), (3, 0, 1, 1), PENDING),
        (AnySucceeded(CANCEL), (3, 0, 2, 1), IMPOSSIBLE),
        # Quorum(k): s ≥ k, else f + sk > n − k.
        (Quorum(3, LET_RUN), (5, 2, 0, 0), PENDING),
        (Quorum(3, LET_RUN), (5, 3, 0, 0), SATISFIED),
        (Quorum(3, LET_RUN), (5, 3, 2, 0), SATISFIED),
        (Quorum(3, LET_RUN), (5, 2, 1, 1), PENDING),
        (Quorum(3, LET_RUN), (5, 0, 2, 0), PENDING),
        (Quorum(3, LET_RUN), (5, 0, 2, 1), IMPOSSIBLE),
        (Quorum(3, LET_RUN), (3, 2, 0, 0), PENDING),
        (Quorum(3, LET_RUN), (3, 2, 1, 0), IMPOSSIBLE),
        (Quorum(1, LET_RUN), (1, 0, 0, 1), IMPOSSIBLE),
        # k > n: lost whatever ends first.
        (Quorum(3, LET_RUN), (2, 1, 0, 0), IMPOSSIBLE),
        (Quorum(3, LET_RUN), (2, 0, 1, 0), IMPOSSIBLE),
    ],
)
def test_a_group_stands_as_the_table_says(
    policy: EdgePolicy, counts: tuple[int, int, int, int], expected: GroupState
) -> None:
    assert judge(policy, *counts) is expected
    total, succeeded, failed, skipped = counts
    row = member(policy, total=total, succeeded=succeeded, failed=failed, skipped=skipped)
    assert judged(row) is expected


def test_any_of_is_a_quorum_of_one() -> None:
    for total, good, bad, gone in product(range(1, 5), repeat=4):
        if good + bad + gone <= total:
            counts = (total, good, bad, gone)
            assert judge(AnySucceeded(CANCEL), *counts) is judge(Quorum(1, CANCEL), *counts)


def test_satisfied_is_looked_at_before_impossible_and_a_decision_lasts() -> None:
    """Whatever ends later, a group that was met stays met, and a lost one lost."""
    for k, total in product(range(1, 5), range(1, 6)):
        policy = Quorum(k, LET_RUN)
        for good, bad in product(range(total + 1), repeat=2):
            stands = judge(policy, total, good, bad, 0)
            if stands is PENDING or good + bad >= total:
                continue
            assert judge(policy, total, good + 1, bad, 0) is stands or k > total
            assert judge(policy, total, good, bad, 1) is stands


def test_a_member_without_policy_joins_all() -> None:
    assert member().joins == AllSucceeded()
    assert judged(member(total=1, failed=1)) is IMPOSSIBLE


# --- counting ends -----------------------------------------------------------------------------

SUCCESS, FAILED = TerminalOutcome.SUCCESS, TerminalOutcome.FAILED


def test_an_upstream_s_end_says_what_becomes_of_its_edges() -> None:
    """With the time and the life of the upstream that counted."""
    met = edge_end(replace(completed(), replay_count=3), NOW)
    assert met == EdgeEnd(EdgeState.SATISFIED, NOW, 3)
    for lost in (failed(), cancelled()):
        assert edge_end(lost, NOW) == EdgeEnd(EdgeState.IMPOSSIBLE, NOW, 0)


def test_a_success_is_counted() -> None:
    counted = count_ends(member(total=2), [SUCCESS], NOW)
    assert counted == (member(total=2, succeeded=1), None, 0)


@pytest.mark.parametrize("outcome", [*LOSSES, TerminalOutcome.SKIPPED])
def test_every_loss_has_its_bucket(outcome: TerminalOutcome) -> None:
    counted = count_ends(member(AnySucceeded(CANCEL), total=2), [outcome], NOW)
    skipped = outcome is TerminalOutcome.SKIPPED
    assert (counted.member.failed, counted.member.skipped) == (not skipped, skipped)
    assert counted.fires is None


def test_the_end_that_decides_fires_the_group() -> None:
    met = count_ends(member(total=2, succeeded=1), [SUCCESS], NOW)
    assert (met.fires, met.member.group_state, met.member.satisfied_at) == (
        SATISFIED,
        SATISFIED,
        NOW,
    )
    lost = count_ends(member(total=2, succeeded=1), [FAILED], NOW)
    assert (lost.fires, lost.member.group_state, lost.member.satisfied_at) == (
        IMPOSSIBLE,
        IMPOSSIBLE,
        NOW,
    )


def test_of_several_ends_the_first_that_suffices_decides() -> None:
    group = member(Quorum(2, LET_RUN), total=5)
    met = count_ends(group, [FAILED, SUCCESS, SUCCESS, SUCCESS, FAILED], NOW)
    assert (met.fires, met.decisive) == (SATISFIED, 2)
    assert (met.member.succeeded, met.member.failed) == (3, 2)
    lost = count_ends(group, [FAILED] * 3 + [SUCCESS] + [FAILED], NOW)
    assert (lost.fires, lost.decisive, lost.member.group_state) == (IMPOSSIBLE, 4, IMPOSSIBLE)


@pytest.mark.parametrize("policy", [None, AnySucceeded(LET_RUN), Quorum(2, LET_RUN), AllDone()])
def test_ends_count_alike_together_and_one_by_one(policy: EdgePolicy | None) -> None:
    for outcomes in product([SUCCESS, FAILED, TerminalOutcome.SKIPPED], repeat=3):
        single, fires = member(policy, total=3), None
        for at, outcome in enumerate(outcomes):
            step = count_ends(single, [outcome], NOW)
            single = step.member
            fires = fires or (step.fires and (step.fires, at))
        together = count_ends(member(policy, total=3), outcomes, NOW)
        assert together.member == single
        assert (together.fires and (together.fires, together.decisive)) == fires


@pytest.mark.parametrize("state", [SATISFIED, IMPOSSIBLE])
def test_q1_a_decided_group_only_counts(state: GroupState) -> None:
    decided = member(AnySucceeded(LET_RUN), total=3, succeeded=1, group_state=state, satisfied_at=5)
    assert count_ends(decided, [SUCCESS], NOW) == (replace(decided, succeeded=2), None, 0)


@pytest.mark.parametrize(
    ("state", "seen", "life", "expected"),
    [
        (EdgeState.APPLIED, None, 0, True),
        (EdgeState.APPLIED, 0, 0, False),  # opened again by a replay: this life was counted
        (EdgeState.APPLIED, 0, 1, True),
        (EdgeState.APPLIED, 2, 1, False),
        (EdgeState.PENDING, None, 0, False),
        (EdgeState.SATISFIED, 0, 1, False),
        (EdgeState.IMPOSSIBLE, 0, 1, False),
    ],
)
def test_each_life_of_an_upstream_counts_once(
    state: EdgeState, seen: int | None, life: int, expected: bool
) -> None:
    edge = replace(EDGE, edge_state=state, resolved_generation=seen)
    assert is_open(edge, life) is expected


# --- siblings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, False),
        (AllSucceeded(), False),
        (AllDone(), False),
        (AnySucceeded(LET_RUN), False),
        (Quorum(2, LET_RUN), False),
        (AnySucceeded(CANCEL), True),
        (Quorum(2, CANCEL), True),
    ],
)
def test_only_cancel_remaining_cancels_and_only_while_some_are_left(
    policy: EdgePolicy | None, expected: bool
) -> None:
    """let_run and all_of never do."""
    assert cancels_siblings(member(policy, total=3, succeeded=2)) is expected
    assert not cancels_siblings(member(policy, total=3, succeeded=2, failed=1))


def test_the_reason_tells_which_way_the_group_went() -> None:
    assert sibling_reason(member(group_state=SATISFIED)) == "sibling_quorum_satisfied"
    assert sibling_reason(member(group_state=IMPOSSIBLE)) == "sibling_quorum_impossible"


def test_shared_siblings_are_spared_only_on_request() -> None:
    assert not spares_shared(member())
    assert not spares_shared(member(AnySucceeded(CANCEL)))
    assert spares_shared(member(AnySucceeded(CANCEL, only_if_unshared=True)))
    assert spares_shared(member(Quorum(2, CANCEL, only_if_unshared=True)))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"open_children": 1}, True),
        ({"total": 1}, True),
        ({"total": 1, "group_state": SATISFIED}, False),
        ({"total": 1, "group_state": SATISFIED, "open_children": 2}, True),
    ],
)
def test_a_parked_parent_waits_for_children_and_for_its_group(
    fields: dict[str, object], expected: bool
) -> None:
    assert keeps_back(member(**fields)) is expected  # type: ignore[arg-type]


# --- replay ------------------------------------------------------------------------------------


def test_a_reopened_group_forgets_its_losses_and_keeps_its_successes() -> None:
    lost = replace(
        EDGE, edge_state=EdgeState.IMPOSSIBLE, resolved_at=5, resolved_generation=0, edge_id="l"
    )
    met = replace(EDGE, edge_state=EdgeState.SATISFIED, resolved_at=4, resolved_generation=0)
    row = member(
        Quorum(2, CANCEL),
        total=3,
        succeeded=1,
        failed=1,
        skipped=1,
        group_state=IMPOSSIBLE,
        satisfied_at=5,
    )
    again, opened = reopened(row, [lost, met])
    assert (again.succeeded, again.failed, again.skipped) == (1, 0, 0)
    assert (again.group_state, again.generation, again.satisfied_at) == (PENDING, 1, None)
    (edge,) = opened
    assert (edge.edge_id, edge.edge_state, edge.resolved_at) == ("l", EdgeState.APPLIED, None)
    assert edge.resolved_generation == 0  # so that the life that lost is not counted again
