"""Grants: one worker's short right to one execution."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import (
    CapabilityMismatch,
    ClaimGrantExpired,
    ExecutionNotEligible,
    ExecutionNotLeaseable,
    GrantAlreadyExists,
    InvalidClaimGrant,
    LeaseConflict,
    NotAResumedExecution,
    NotFound,
    UseClaimResumedExecution,
)
from flowfabric.kernel.execution.claim import NewIds, is_claimable
from flowfabric.kernel.execution.expire import PromoteDelayed
from flowfabric.kernel.execution.grant import ClaimGranted, ClaimNamed, IssueClaimGrant
from flowfabric.kernel.execution.operate import Block, Hold
from flowfabric.kernel.execution.reclaim import (
    IssueReclaimGrant,
    ReclaimExecution,
    RequeueLost,
    reclaim_cap,
)
from flowfabric.model.attempt import AttemptOutcome, AttemptType
from flowfabric.model.event import OperatorEvent
from flowfabric.model.execution import Execution
from flowfabric.model.handle import HandleKind
from flowfabric.model.results import (
    Claimed,
    GrantIssued,
    GrantNotFound,
    NotReclaimable,
    ReclaimCapExceeded,
    Rejected,
)
from flowfabric.model.route import Route
from flowfabric.model.state import BlockingReason, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, decide, image, refusal

GRANT_MS = 1000
IDS = NewIds("lease-new", "attempt-new")
NEEDS_GPU = Route("default", "lane", "kind", ("cuda", "gpu"))


def issue(worker: str = "w1", capabilities: tuple[str, ...] = (), **fields: Any) -> IssueClaimGrant:
    ttl = fields.get("ttl_ms", GRANT_MS)
    return IssueClaimGrant(
        execution_id=EXECUTION_ID,
        worker_id=worker,
        worker_instance_id=f"{worker}-1",
        worker_capabilities=capabilities,
        grant_ttl_ms=ttl,
        grant_id="grant-1",
    )


def redeem(worker: str = "w1", *, resumed: bool = False, instance: str = "") -> ClaimGranted:
    instance = instance or f"{worker}-1"
    return ClaimGranted(
        execution_id=EXECUTION_ID,
        worker_id=worker,
        worker_instance_id=instance,
        lease_ttl_ms=TTL_MS,
        backend="memory",
        ids=IDS,
        resumed=resumed,
    )


def issue_reclaim(worker: str = "w2", capabilities: tuple[str, ...] = ()) -> IssueReclaimGrant:
    instance = f"{worker}-1"
    return IssueReclaimGrant(
        execution_id=EXECUTION_ID,
        worker_id=worker,
        worker_instance_id=instance,
        worker_capabilities=capabilities,
        grant_ttl_ms=GRANT_MS,
        grant_id="grant-2",
    )


def reclaim(worker: str = "w2", cap: int | None = None) -> ReclaimExecution:
    return ReclaimExecution(
        execution_id=EXECUTION_ID,
        worker_id=worker,
        worker_instance_id=f"{worker}-1",
        lease_ttl_ms=TTL_MS,
        backend="memory",
        ids=IDS,
        max_reclaim_count=cap,
    )


def granted(execution: Execution | None = None, now: int = NOW) -> Execution:
    return image(make.created() if execution is None else execution, issue(), now)


def test_a_grant_changes_no_eligibility() -> None:
    before = make.created()
    decision = decide(before, issue())
    assert decision.execution is not None
    assert decision.execution.state is before.state
    assert decision.execution.lease_epoch == before.lease_epoch
    assert decision.reply == GrantIssued(EXECUTION_ID, 7, "grant-1", NOW + GRANT_MS, "lane")


def test_the_common_claim_passes_over_what_is_promised_until_the_promise_lapses() -> None:
    """Valid at the instant of expiry itself, over one millisecond later."""
    execution = granted()
    assert not is_claimable(execution, NOW)
    assert not is_claimable(execution, NOW + GRANT_MS)
    assert is_claimable(execution, NOW + GRANT_MS + 1)


def test_a_second_grant_is_refused_while_the_first_lives() -> None:
    """Equality is still valid; after that it can be granted again."""
    execution = granted()
    assert refusal(decide(execution, issue("w2"), NOW + GRANT_MS)) is GrantAlreadyExists
    assert decide(execution, issue("w2"), NOW + GRANT_MS + 1).execution is not None


def test_a_grant_is_redeemed_up_to_its_last_millisecond() -> None:
    """Strictly less is expired, equality is valid."""
    execution = granted()
    assert refusal(decide(execution, redeem(), NOW + GRANT_MS + 1)) is ClaimGrantExpired
    decision = decide(execution, redeem(), NOW + GRANT_MS)
    assert isinstance(decision.reply, Claimed)
    assert decision.execution is not None
    assert decision.execution.grant is None


def test_a_grant_is_bound_to_the_pool_and_not_to_the_process() -> None:
    """Another worker is refused, another instance of the same one is not."""
    assert refusal(decide(granted(), redeem("w2"))) is InvalidClaimGrant
    assert isinstance(decide(granted(), redeem(instance="w1-2")).reply, Claimed)


def test_without_a_grant_nothing_is_redeemed() -> None:
    assert refusal(decide(make.created(), redeem())) is InvalidClaimGrant
    assert refusal(decide(None, redeem())) is NotFound


@pytest.mark.parametrize("situation", ["delayed", "held", "leased", "parked", "completed"])
def test_only_waiting_work_is_granted(situation: str) -> None:
    assert refusal(decide(make.SITUATIONS[situation](), issue())) is ExecutionNotEligible


def test_a_grant_needs_every_capability_and_names_the_missing() -> None:
    """Sorted; case-sensitive."""
    execution = make.created(route=NEEDS_GPU)
    decision = decide(execution, issue(capabilities=("GPU",)))
    assert refusal(decision) is CapabilityMismatch
    assert decision.reply.detail == "cuda,gpu"
    assert decide(execution, issue(capabilities=("cuda", "gpu", "x"))).execution is not None


def test_the_claim_must_fit_the_attempt() -> None:
    """Routed by the attempt's state."""
    fresh = granted()
    assert refusal(decide(fresh, redeem(resumed=True))) is NotAResumedExecution
    parked = image(make.parked(delay_ms=1), PromoteDelayed(execution_id=EXECUTION_ID), NOW + 1)
    resumed = granted(parked, NOW + 1)
    assert refusal(decide(resumed, redeem(), NOW + 1)) is UseClaimResumedExecution
    decision = decide(resumed, redeem(resumed=True), NOW + 1)
    assert isinstance(decision.reply, Claimed)
    assert decision.reply.handle.kind is HandleKind.RESUMED
    assert decision.reply.attempt_id == parked.attempt_id
    assert decision.reply.attempt_index == parked.attempt_index


@pytest.mark.parametrize(
    ("situation", "error"),
    [
        ("leased", LeaseConflict),
        ("lapsed", LeaseConflict),
        ("revoked", LeaseConflict),
        ("delayed", ExecutionNotLeaseable),
        ("held", ExecutionNotLeaseable),
        ("completed", ExecutionNotLeaseable),
        ("cancelled", ExecutionNotLeaseable),
    ],
)
def test_no_claim_revives_or_steals(situation: str, error: type) -> None:
    """The grant path and the operator's path have the same gates."""
    execution = make.SITUATIONS[situation]()
    for command in (
        redeem(),
        redeem(resumed=True),
        ClaimNamed(execution_id=EXECUTION_ID, lease_ttl_ms=TTL_MS, backend="m", ids=IDS),
    ):
        assert refusal(decide(execution, command)) is error


def test_a_block_and_a_hold_respect_or_withdraw_a_promise() -> None:
    blocked = decide(
        granted(),
        Block(execution_id=EXECUTION_ID, reason=BlockingReason.WAITING_FOR_QUOTA, detail=""),
    )
    assert isinstance(blocked.reply, Rejected)
    assert blocked.execution is None
    held = image(granted(), Hold(execution_id=EXECUTION_ID, reason="wait"))
    assert held.grant is None


def test_the_operator_takes_one_named_execution_whatever_it_needs() -> None:
    """Audited."""
    decision = decide(
        make.created(route=NEEDS_GPU),
        ClaimNamed(execution_id=EXECUTION_ID, lease_ttl_ms=TTL_MS, backend="memory", ids=IDS),
    )
    assert isinstance(decision.reply, Claimed)
    assert decision.execution is not None
    assert decision.execution.worker_id == "operator"
    assert any(isinstance(event, OperatorEvent) for event in decision.events)
    taken = decide(
        granted(),
        ClaimNamed(execution_id=EXECUTION_ID, lease_ttl_ms=TTL_MS, backend="memory", ids=IDS),
    )
    assert refusal(taken) is GrantAlreadyExists


@pytest.mark.parametrize("path", ["granted", "named", "reclaimed"])
def test_no_lease_is_born_past_the_deadline(path: str) -> None:
    """Every way to a lease, not only the common claim, stops at the deadline."""
    deadline_at = NOW + 500
    execution = make.created(deadline_at=deadline_at)
    command: Any = ClaimNamed(
        execution_id=EXECUTION_ID, lease_ttl_ms=TTL_MS, backend="memory", ids=IDS
    )
    if path == "granted":
        execution, command = granted(execution), redeem()
    elif path == "reclaimed":
        execution = image(make.lapsed(deadline_at=deadline_at), issue_reclaim())
        command = reclaim()
    decision = decide(execution, command, deadline_at)
    if decision.execution is not None and decision.execution.is_leased:
        expires_at = decision.execution.lease_expires_at
        assert expires_at is not None
        assert expires_at > deadline_at, "the lease is over before it begins"


# --- reclaim -----------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", ["waiting", "leased", "parked", "requeued", "completed"])
def test_only_lost_work_is_reclaimed(situation: str) -> None:
    """Validated again when the grant is consumed."""
    execution = make.SITUATIONS[situation]()
    for command in (issue_reclaim(), reclaim()):
        decision = decide(execution, command)
        assert isinstance(decision.reply, NotReclaimable)
        assert decision.execution is None


@pytest.mark.parametrize("situation", ["lapsed", "revoked"])
def test_the_chosen_worker_takes_over_with_a_new_attempt(situation: str) -> None:
    lost = make.SITUATIONS[situation]()
    promised = image(lost, issue_reclaim())
    decision = decide(promised, reclaim())
    after, old = decision.execution, decision.attempt
    assert after is not None
    assert old is not None
    assert isinstance(decision.reply, Claimed)
    assert decision.reply.handle.kind is HandleKind.RECLAIMED
    assert after.attempt_type is AttemptType.RECLAIM
    assert after.attempt_index == 1
    assert after.reclaim_count == 1
    assert after.lease_epoch > lost.lease_epoch
    assert after.grant is None
    assert after.reclaim_at is None
    assert old.outcome is AttemptOutcome.INTERRUPTED_RECLAIMED
    assert old.attempt_index == 0


def test_a_reclaim_needs_the_grant_of_that_worker_in_time() -> None:
    """At equality valid, then not."""
    assert decide(make.lapsed(), reclaim()).reply == GrantNotFound(EXECUTION_ID)
    promised = image(make.lapsed(), issue_reclaim())
    assert decide(promised, reclaim("w3")).reply == GrantNotFound(EXECUTION_ID)
    assert decide(promised, reclaim(), NOW + GRANT_MS + 1).reply == GrantNotFound(EXECUTION_ID)
    assert isinstance(decide(promised, reclaim(), NOW + GRANT_MS).reply, Claimed)


def test_one_reclaim_grant_at_a_time_and_only_for_a_fit_worker() -> None:
    promised = image(make.lapsed(), issue_reclaim())
    assert refusal(decide(promised, issue_reclaim("w3"), NOW + GRANT_MS)) is GrantAlreadyExists
    unfit = decide(make.lapsed(route=NEEDS_GPU), issue_reclaim(capabilities=("gpu",)))
    assert unfit.reply == NotReclaimable(EXECUTION_ID, "capability_mismatch: cuda")


def test_automatic_requeue_waits_for_a_promised_takeover() -> None:
    promised = image(make.lapsed(), issue_reclaim())
    assert (
        decide(promised, RequeueLost(execution_id=EXECUTION_ID), NOW + GRANT_MS).execution is None
    )
    requeued = image(promised, RequeueLost(execution_id=EXECUTION_ID), NOW + GRANT_MS + 1)
    assert requeued.grant is None


@pytest.mark.parametrize(
    ("asked", "policy_cap", "expected"), [(None, None, 1000), (None, 5, 5), (2, 5, 2), (0, 5, 0)]
)
def test_the_cap_is_the_calls_then_the_policys_then_a_thousand(
    asked: int | None, policy_cap: int | None, expected: int
) -> None:
    execution = make.created(policy=make.policy(max_reclaim_count=policy_cap))
    assert reclaim_cap(execution, asked) == expected


def test_at_the_cap_the_call_ends_the_execution_and_says_both_numbers() -> None:
    decision = decide(make.lapsed(), reclaim(cap=0))
    assert decision.reply == ReclaimCapExceeded(EXECUTION_ID, 0, 0)
    assert decision.execution is not None
    assert decision.execution.public_state is PublicState.FAILED
    assert decision.attempt is not None
    granted_late = decide(make.lapsed(policy=make.policy(max_reclaim_count=0)), issue_reclaim())
    assert granted_late.reply == ReclaimCapExceeded(EXECUTION_ID, 0, 0)
    assert granted_late.execution is None
