"""The state vector: exactly the legal combinations exist."""

from __future__ import annotations

from itertools import product

import pytest

from flowfabric.errors import Corruption, InvalidBlockingReason
from flowfabric.model import state as s
from flowfabric.model.state import (
    ALL_VECTORS,
    AttemptState,
    BlockingReason,
    EligibilityState,
    LifecyclePhase,
    OwnershipState,
    PublicState,
    StateVector,
    TerminalOutcome,
)
from tests.support import builders as make

DIMENSIONS = (
    LifecyclePhase,
    OwnershipState,
    EligibilityState,
    BlockingReason,
    TerminalOutcome,
    AttemptState,
)
Combination = tuple[
    LifecyclePhase,
    OwnershipState,
    EligibilityState,
    BlockingReason,
    TerminalOutcome,
    AttemptState,
]
# How each phase may look, written independently of the code.
_LOST = (OwnershipState.LEASE_EXPIRED_RECLAIMABLE, OwnershipState.LEASE_REVOKED)
_PENDING = (
    AttemptState.PENDING_FIRST_ATTEMPT,
    AttemptState.PENDING_RETRY_ATTEMPT,
    AttemptState.PENDING_REPLAY_ATTEMPT,
    AttemptState.ATTEMPT_INTERRUPTED,
)
_EXPLAINS = {
    BlockingReason.WAITING_FOR_WORKER: EligibilityState.ELIGIBLE_NOW,
    BlockingReason.WAITING_FOR_DELAY: EligibilityState.NOT_ELIGIBLE_UNTIL_TIME,
    BlockingReason.WAITING_FOR_RETRY_BACKOFF: EligibilityState.NOT_ELIGIBLE_UNTIL_TIME,
    BlockingReason.WAITING_FOR_RESUME_DELAY: EligibilityState.NOT_ELIGIBLE_UNTIL_TIME,
    BlockingReason.WAITING_FOR_CHILDREN: EligibilityState.BLOCKED_BY_DEPENDENCIES,
    BlockingReason.WAITING_FOR_BUDGET: EligibilityState.BLOCKED_BY_BUDGET,
    BlockingReason.WAITING_FOR_QUOTA: EligibilityState.BLOCKED_BY_QUOTA,
    BlockingReason.WAITING_FOR_CAPABLE_WORKER: EligibilityState.BLOCKED_BY_ROUTE,
    BlockingReason.PAUSED_BY_OPERATOR: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY: EligibilityState.BLOCKED_BY_LANE_STATE,
    BlockingReason.PAUSED_BY_FLOW_CANCEL: EligibilityState.BLOCKED_BY_OPERATOR,
    BlockingReason.WAITING_FOR_TURN: EligibilityState.BLOCKED_BY_TURN,
}
_SUSPENDS = (
    BlockingReason.WAITING_FOR_SIGNAL,
    BlockingReason.WAITING_FOR_APPROVAL,
    BlockingReason.WAITING_FOR_CALLBACK,
    BlockingReason.WAITING_FOR_TOOL_RESULT,
    BlockingReason.WAITING_FOR_BUDGET,
    BlockingReason.PAUSED_BY_OPERATOR,
    BlockingReason.PAUSED_BY_POLICY,
)


def is_legal(combination: Combination) -> bool:
    phase, ownership, eligibility, reason, outcome, attempt = combination
    unowned = ownership is OwnershipState.UNOWNED
    not_applicable = eligibility is EligibilityState.NOT_APPLICABLE
    if phase is LifecyclePhase.TERMINAL:
        return (
            unowned
            and not_applicable
            and reason is BlockingReason.NONE
            and outcome is not TerminalOutcome.NONE
            and attempt in (AttemptState.ATTEMPT_TERMINAL, AttemptState.NONE)
        )
    if outcome is not TerminalOutcome.NONE:
        return False
    if phase is LifecyclePhase.RUNNABLE:
        return unowned and _EXPLAINS.get(reason) is eligibility and attempt in _PENDING
    if not not_applicable:
        return False
    if phase is LifecyclePhase.SUSPENDED:
        return unowned and reason in _SUSPENDS and attempt is AttemptState.ATTEMPT_INTERRUPTED
    if ownership is OwnershipState.LEASED:
        return reason is BlockingReason.NONE and attempt is AttemptState.RUNNING_ATTEMPT
    lost_waits = reason is BlockingReason.WAITING_FOR_WORKER
    return ownership in _LOST and lost_waits and attempt is AttemptState.ATTEMPT_INTERRUPTED


def test_every_combination_is_either_listed_or_refused() -> None:
    """All 130,000 combinations, judged by a table of its own."""
    listed = set(ALL_VECTORS)
    for combination in product(*DIMENSIONS):
        if is_legal(combination):
            assert StateVector(*combination) in listed
        else:
            with pytest.raises(Corruption, match="state vector"):
                StateVector(*combination)


def test_no_legal_vector_is_listed_twice() -> None:
    assert len(set(ALL_VECTORS)) == len(ALL_VECTORS)


def test_every_legal_vector_has_a_label_and_a_number_of_its_own() -> None:
    """One derivation; the stored number leads back to the same vector."""
    assert set(s.ID_OF_VECTOR) == set(ALL_VECTORS)
    for vector in ALL_VECTORS:
        number = s.ID_OF_VECTOR[vector]
        assert s.VECTOR_OF_ID[number] is vector
        assert number in s.IDS_OF_PUBLIC_STATE[vector.public_state.value]
        assert vector.is_terminal == (vector.public_state in s.TERMINAL_STATES)


def test_the_stored_numbers_are_for_ever() -> None:
    """A database of yesterday must mean the same today: a few numbers pinned by hand."""
    pending, interrupted = AttemptState.PENDING_FIRST_ATTEMPT, AttemptState.ATTEMPT_INTERRUPTED
    assert s.ID_OF_VECTOR[s.waiting(pending)] == 1
    assert s.ID_OF_VECTOR[s.waiting(interrupted)] == 4
    assert s.ID_OF_VECTOR[s.delayed(BlockingReason.WAITING_FOR_DELAY, pending)] == 10
    assert s.ID_OF_VECTOR[s.blocked(BlockingReason.WAITING_FOR_CHILDREN, pending)] == 30
    assert s.ID_OF_VECTOR[s.blocked(BlockingReason.PAUSED_BY_FLOW_CANCEL, pending)] == 54
    assert s.ID_OF_VECTOR[s.blocked(BlockingReason.PAUSED_BY_FLOW_CANCEL, interrupted)] == 57
    assert s.ID_OF_VECTOR[s.blocked(BlockingReason.WAITING_FOR_TURN, pending)] == 22
    assert s.ID_OF_VECTOR[s.LEASED] == 60
    assert s.ID_OF_VECTOR[s.terminal(TerminalOutcome.SUCCESS, attempted=True)] == 80


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        (BlockingReason.WAITING_FOR_BUDGET, PublicState.RATE_LIMITED),
        (BlockingReason.WAITING_FOR_QUOTA, PublicState.RATE_LIMITED),
        (BlockingReason.WAITING_FOR_CHILDREN, PublicState.WAITING_CHILDREN),
        (BlockingReason.WAITING_FOR_CAPABLE_WORKER, PublicState.WAITING),
        (BlockingReason.PAUSED_BY_OPERATOR, PublicState.WAITING),
        (BlockingReason.PAUSED_BY_POLICY, PublicState.WAITING),
        (BlockingReason.PAUSED_BY_FLOW_CANCEL, PublicState.WAITING),
        (BlockingReason.WAITING_FOR_TURN, PublicState.WAITING),
    ],
)
def test_a_block_is_labelled_by_its_reason(reason: BlockingReason, label: PublicState) -> None:
    """Only budgets and quotas read as rate limited."""
    blocked = s.blocked(reason, AttemptState.PENDING_FIRST_ATTEMPT)
    assert blocked.public_state is label


def test_a_reason_that_blocks_nothing_is_refused() -> None:
    with pytest.raises(InvalidBlockingReason, match="waiting_for_worker"):
        s.blocked(BlockingReason.WAITING_FOR_WORKER, AttemptState.PENDING_FIRST_ATTEMPT)


def test_admission_may_not_ask_for_the_blocks_of_flows_and_lines() -> None:
    """Only the flow, or the line, sets or lifts these."""
    own = {
        BlockingReason.WAITING_FOR_CHILDREN,
        BlockingReason.PAUSED_BY_FLOW_CANCEL,
        BlockingReason.WAITING_FOR_TURN,
    }
    assert not own & s.ADMISSION_BLOCK_REASONS
    assert set(s.ELIGIBILITY_OF_BLOCK) - own == s.ADMISSION_BLOCK_REASONS


@pytest.mark.parametrize("situation", make.SITUATIONS)
def test_every_situation_the_rules_lead_to_is_a_listed_vector(situation: str) -> None:
    """Nothing is created in a state that no worker claims from."""
    assert make.SITUATIONS[situation]().state in ALL_VECTORS
