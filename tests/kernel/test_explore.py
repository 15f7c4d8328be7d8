"""Every interleaving of two workers in small scopes, and faults that must not go unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowfabric.kernel.execution import (
    answer,
    cancel,
    complete,
    expire,
    fence,
    own,
    reclaim,
    replay,
    retry,
    revoke,
    transition,
)
from flowfabric.model.execution import Grant
from flowfabric.model.state import PublicState
from tests.kernel import test_due, test_fence, test_grants, test_lease_time, test_terminals
from tests.support import builders as make
from tests.support.explorer import Scope, explore
from tests.support.mutants import Mutant, plant

RULES: dict[str, Any] = {
    "retry_policy": make.retries(1, 1),
    "max_reclaim_count": 1,
    "max_replay_count": 1,
}
SCOPES = {
    "two workers": Scope(5, make.policy(**RULES)),
    "parking": Scope(
        4, make.policy(**RULES), ("complete", "delay", "cancel", "renew"), ("revoke",), 3
    ),
    "timeouts": Scope(
        5,
        make.policy(attempt_timeout_ms=2, execution_deadline_ms=4, **RULES),
        ("complete", "renew", "fail"),
        (),
    ),
    "replay": Scope(
        3,
        make.policy(retry_policy=make.retries(0), max_reclaim_count=0, max_replay_count=1),
        ("complete", "fail", "renew"),
        ("cancel", "revoke", "replay"),
    ),
    "takeover": Scope(4, make.policy(**RULES), ("complete", "fail"), ("revoke", "reclaim")),
}


@pytest.mark.parametrize("name", SCOPES)
def test_every_interleaving_keeps_the_invariants(name: str) -> None:
    """I2, I3, I4, I5, I6, I9: duplicated and late messages, expiry, requeue, cancel, revoke."""
    explored = explore(SCOPES[name])
    assert explored.worlds > 1000, "the scope is too small to mean anything"
    assert PublicState.COMPLETED in explored.outcomes


def exploring(name: str) -> Callable[[], None]:
    return lambda: test_every_interleaving_keeps_the_invariants(name)


TWO, TIMED, PARKED = exploring("two workers"), exploring("timeouts"), exploring("parking")
AGAIN, TAKEN = exploring("replay"), exploring("takeover")

WRONG_EPOCH = "execution.lease_epoch != epoch and not _lapsed_since(execution, epoch)"
OWNER = fence.refuse_unless_owner
FAULTS: dict[str, tuple[list[Mutant], Callable[[], None]]] = {
    "no epoch check": (
        [Mutant(OWNER, WRONG_EPOCH, "False")],
        lambda: test_fence.test_another_epoch_is_stale_even_with_the_right_secrets("complete", -1),
    ),
    "no secret check": (
        [Mutant(OWNER, "not same_secrets(execution, fence)", "False")],
        lambda: test_fence.test_another_lease_id_is_stale_even_with_the_right_epoch("renew"),
    ),
    "no identity check at all": (
        [
            Mutant(OWNER, WRONG_EPOCH, "False"),
            Mutant(fence.same_secrets, "known.encode()", "presented.encode()"),
        ],
        TWO,
    ),
    "a lease good at its last instant": (
        [
            Mutant(
                OWNER,
                "(execution.lease_expires_at or 0) <= now",
                "execution.lease_expires_at < now",
            )
        ],
        TWO,
    ),
    "a lease lapsing one instant late": (
        [
            Mutant(
                expire.expire_lease,
                "(execution.lease_expires_at or 0) > at.now",
                "execution.lease_expires_at >= at.now",
            )
        ],
        test_lease_time.test_a_lease_lapses_exactly_at_its_end,
    ),
    "a live lease taken away": (
        [Mutant(expire.expire_lease, "(execution.lease_expires_at or 0) > at.now", "False")],
        TWO,
    ),
    "a revoked owner let through": (
        [Mutant(OWNER, "ownership_state is _LEASE_REVOKED", "lifecycle_phase is None")],
        lambda: test_fence.test_a_revoked_owner_hears_lease_revoked("complete"),
    ),
    "cancel does not absorb": (
        [Mutant(cancel.cancel, "if execution.is_terminal:", "if False:")],
        TWO,
    ),
    "deadline does not absorb": (
        [Mutant(expire.expire_deadline, "or execution.is_terminal", "")],
        TIMED,
    ),
    "a deadline one instant late": (
        [
            Mutant(
                expire.expire_deadline,
                "execution.deadline_at > at.now",
                "execution.deadline_at >= at.now",
            )
        ],
        lambda: test_due.test_a_deadline_ends_every_phase_exactly_at_its_instant("waiting"),
    ),
    "an attempt one instant late": (
        [
            Mutant(
                expire.expire_attempt,
                "execution.attempt_due_at > at.now",
                "execution.attempt_due_at >= at.now",
            )
        ],
        test_due.test_an_attempt_runs_out_exactly_at_its_instant,
    ),
    "a delay one instant late": (
        [
            Mutant(
                expire.promote_delayed,
                "until > at.now",
                "until >= at.now",
            )
        ],
        lambda: test_due.test_a_delay_ends_exactly_at_its_instant_and_keeps_the_attempt("delayed"),
    ),
    "release keeps the epoch": (
        [Mutant(transition.unowned, "execution.lease_epoch + 1", "execution.lease_epoch")],
        TWO,
    ),
    "revoke keeps the epoch": (
        [
            Mutant(
                revoke.revoke_lease,
                "lease_epoch=execution.lease_epoch + 1",
                "lease_epoch=execution.lease_epoch",
            )
        ],
        TWO,
    ),
    "expiry keeps the epoch": (
        [
            Mutant(
                expire.expire_lease,
                "lease_epoch=execution.lease_epoch + 1",
                "lease_epoch=execution.lease_epoch",
            )
        ],
        TWO,
    ),
    "a new owner keeps the epoch": (
        [
            Mutant(
                transition.acquire,
                "epoch = execution.lease_epoch + 1",
                "epoch = execution.lease_epoch",
            )
        ],
        TWO,
    ),
    "retries never end": (
        [Mutant(retry.retry_delay_ms, "retry_count >= policy.max_retries", "False")],
        TWO,
    ),
    "one retry too many": (
        [
            Mutant(
                retry.retry_delay_ms,
                "retry_count >= policy.max_retries",
                "retry_count > policy.max_retries",
            )
        ],
        TWO,
    ),
    "reclaims never end": (
        [
            Mutant(
                reclaim.requeue_lost, "execution.reclaim_count >= reclaim_cap(execution)", "False"
            )
        ],
        TWO,
    ),
    "no completion event": (
        [Mutant(transition.finish, "(completion,)", "()")],
        TWO,
    ),
    "an event for a release that the completion implies": (
        [
            Mutant(
                transition.finish,
                "(completion,)",
                '(lease_event(execution, LeaseEventType.RELEASED, "", now), completion)',
            )
        ],
        TWO,
    ),
    "an attempt left open": (
        [
            Mutant(
                transition.finish, "if execution.state.attempt_state in _LIVE_ATTEMPT:", "if False:"
            )
        ],
        TWO,
    ),
    "an attempt ended twice": (
        [
            Mutant(
                transition.finish,
                "if execution.state.attempt_state in _LIVE_ATTEMPT:",
                "if attempted:",
            )
        ],
        TWO,
    ),
    "a repeated completion refused": (
        [
            Mutant(
                complete.complete,
                "is_repeated = _was_completed_by(execution, command)",
                "is_repeated = False",
            )
        ],
        TWO,
    ),
    "anybody answered as the owner": (
        [Mutant(fence.released_by, "and same_secrets(execution, fence)", "")],
        lambda: test_terminals.test_a_stranger_is_not_answered_as_the_owner("lease_id"),
    ),
    "any owner answered as the last": (
        [Mutant(fence.released_by, "and execution.lease_epoch == fence.lease_epoch + 1", "")],
        AGAIN,
    ),
    "a repeated delay refused": (
        [
            Mutant(own.delay, "command.fence is not None", "False"),
        ],
        PARKED,
    ),
    "an end forgotten at its replay": (
        [Mutant(replay.replay, "kept_end(execution, at)", "None")],
        AGAIN,
    ),
    "a stranger told what the owner was": (
        [Mutant(answer.answered_before, "same_lease(row, fence)", "True")],
        lambda: test_terminals.test_a_stranger_is_not_told_what_was_kept_for_the_owner("lease_id"),
    ),
    "replays never end": (
        [Mutant(replay._refuse_replay, "execution.replay_count >= most", "False")],
        AGAIN,
    ),
    "what runs is replayed": (
        [Mutant(replay._refuse_replay, "not execution.is_terminal", "False")],
        AGAIN,
    ),
    "a live lease is reclaimed": (
        [
            Mutant(reclaim.reclaim_execution, "if execution.reclaim_at is None:", "if False:"),
            Mutant(reclaim.reclaim_execution, "if not mine:", "if False:"),
        ],
        TAKEN,
    ),
    "a grant over at its last instant": (
        [Mutant(Grant.is_live, "now <= self.expires_at", "now < self.expires_at")],
        test_grants.test_a_grant_is_redeemed_up_to_its_last_millisecond,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The explorer and the edge tests are only worth what they notice."""
    mutants, check = FAULTS[name]
    plant(mutants, monkeypatch)
    with pytest.raises(AssertionError):
        check()
