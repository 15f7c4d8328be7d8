"""The end of an execution: once, complete, and final."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import ExecutionNotActive
from flowfabric.kernel.decision import Decision, Refused
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import NewIds
from flowfabric.kernel.execution.expire import (
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
)
from flowfabric.kernel.execution.fence import LEASE_HOLDER, OPERATOR_OVERRIDE
from flowfabric.kernel.execution.grant import ClaimGranted, ClaimNamed, IssueClaimGrant
from flowfabric.kernel.execution.operate import (
    Block,
    BlockRoute,
    ChangePriority,
    Hold,
    Release,
    SetTag,
    Unblock,
)
from flowfabric.kernel.execution.own import Progress, Renew
from flowfabric.kernel.execution.reclaim import IssueReclaimGrant, ReclaimExecution, RequeueLost
from flowfabric.kernel.execution.repin import Repin
from flowfabric.kernel.execution.replay import Replay
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.wake import Wake
from flowfabric.kernel.registry import RULES
from flowfabric.model.attempt import AttemptOutcome
from flowfabric.model.event import CompletionEvent, OperatorEvent
from flowfabric.model.execution import Execution, Fence, Grant, GrantKind
from flowfabric.model.failure import FailureEntry
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import replace
from flowfabric.model.results import Cancelled, Completed, Delayed
from flowfabric.model.state import BlockingReason, PublicState, TerminalOutcome
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, decide, fence_of

RETENTION_MS = 5000
FAILED_RETENTION_MS = 7000


def end(execution: Execution, how: str, now: int = NOW) -> Decision[Any]:
    """Finish an execution in one of the ways that apply to its situation."""
    fence = fence_of(execution) if execution.is_leased else None
    commands: dict[str, Any] = {
        "complete": make.complete_with(fence, result=b"done"),
        "fail": make.fail_with(fence),
        "cancel": make.cancel_by_operator(),
        "deadline": ExpireDeadline(execution_id=EXECUTION_ID),
        "timeout": ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5),
        "cap": RequeueLost(execution_id=EXECUTION_ID),
    }
    kept = {"retention_ms": RETENTION_MS, "failed_retention_ms": FAILED_RETENTION_MS}
    return decide(execution, commands[how], now, **kept)


PLAIN = ExecutionPolicy()
TIMED = make.policy(attempt_timeout_ms=1)
DUE = make.policy(execution_deadline_ms=1)
CAPPED = make.policy(max_reclaim_count=0)

# (situation, how it ends, policy, when, expected outcome)
ENDS = [
    ("leased", "complete", PLAIN, NOW, TerminalOutcome.SUCCESS),
    ("leased", "fail", PLAIN, NOW, TerminalOutcome.FAILED),
    ("leased", "timeout", TIMED, NOW + 1, TerminalOutcome.EXPIRED),
    ("lapsed", "cap", CAPPED, NOW, TerminalOutcome.FAILED),
    ("revoked", "cap", CAPPED, NOW, TerminalOutcome.FAILED),
    *[(name, "cancel", PLAIN, NOW, TerminalOutcome.CANCELLED) for name in make.LIVE],
    *[
        (name, "deadline", DUE, NOW + 1, TerminalOutcome.EXPIRED)
        for name in ("waiting", "delayed", "held", "leased", "parked", "lapsed", "requeued")
    ],
]
every_end = pytest.mark.parametrize(
    ("situation", "how", "policy", "now", "outcome"),
    ENDS,
    ids=[f"{situation}-{how}" for situation, how, *_ in ENDS],
)


def before_end(situation: str, policy: ExecutionPolicy) -> Execution:
    if situation == "retrying":
        policy = make.policy(retry_policy=make.retries(3))
    execution = make.LIVE[situation](policy=policy)
    grant = Grant(GrantKind.CLAIM, "grant", "w9", "w9-1", NOW + 60_000)
    return replace(execution, grant=grant)


@every_end
def test_every_end_does_the_same_things(
    situation: str, how: str, policy: ExecutionPolicy, now: int, outcome: TerminalOutcome
) -> None:
    """I2: attempt, lease, fence, grant, timers, events."""
    before = before_end(situation, policy)
    if how == "cap":
        before = replace(before, grant=None)  # a promised takeover would come first
    decision = end(before, how, now)
    after = decision.execution
    assert after is not None
    assert after.state.terminal_outcome is outcome
    # the lease is released and fenced, nothing is owned any more
    assert after.lease_epoch > before.lease_epoch
    assert after.worker_id is None
    assert after.worker_instance_id is None
    assert after.lease_expires_at is None
    assert after.lease_acquired_at is None
    assert after.reclaim_at is None
    # no grant and no timer is left to wake it
    assert after.grant is None
    assert after.attempt_due_at is None
    assert after.completed_at == now
    is_lost = outcome in (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED)
    assert after.purge_at == now + (FAILED_RETENTION_MS if is_lost else RETENTION_MS)
    assert after.last_transition_at == now
    completions = [event for event in decision.events if isinstance(event, CompletionEvent)]
    assert [(event.outcome, event.namespace, event.tags) for event in completions] == [
        (outcome, "default", {"team.name": "a"})
    ]


@every_end
def test_an_end_writes_its_completion_and_no_lease_event(
    situation: str, how: str, policy: ExecutionPolicy, now: int, outcome: TerminalOutcome
) -> None:
    """The completion implies the release; its attempt says which worker and epoch it was."""
    before = before_end(situation, policy)
    if how == "cap":
        before = replace(before, grant=None)
    decision = end(before, how, now)
    kinds = [type(event) for event in decision.events if not isinstance(event, OperatorEvent)]
    failures = (
        [FailureEntry] if outcome in (TerminalOutcome.FAILED, TerminalOutcome.EXPIRED) else []
    )
    assert kinds == [CompletionEvent, *failures]
    if before.is_leased:
        attempt = decision.attempt
        assert attempt is not None
        assert (attempt.worker_id, attempt.worker_instance_id, attempt.lease_epoch) == (
            before.worker_id,
            before.worker_instance_id,
            before.lease_epoch,
        )


@every_end
def test_every_end_leaves_no_attempt_open(
    situation: str, how: str, policy: ExecutionPolicy, now: int, outcome: TerminalOutcome
) -> None:
    """I5: a running or parked attempt gets its one outcome."""
    before = before_end(situation, policy)
    if how == "cap":
        before = replace(before, grant=None)
    decision = end(before, how, now)
    open_before = situation in ("leased", "parked", "lapsed", "revoked")
    assert (decision.attempt is not None) == open_before
    if decision.attempt is not None:
        assert decision.attempt.attempt_id == before.attempt_id
        assert decision.attempt.ended_at == now
        assert decision.attempt.outcome not in (AttemptOutcome.STARTED, AttemptOutcome.SUSPENDED)


def test_the_result_is_kept_with_the_attempt_that_made_it() -> None:
    decision = end(make.leased(), "complete")
    assert decision.attempt is not None
    assert decision.attempt.result == b"done"
    assert decision.attempt.outcome is AttemptOutcome.ENDED_SUCCESS


def test_the_executions_own_retention_goes_before_the_engines() -> None:
    """purge_at is stored per execution, shorter as well as longer."""
    for keep_ms in (0, 1, 10 * RETENTION_MS):
        running = make.leased(policy=ExecutionPolicy(retention_ttl_ms=keep_ms))
        after = end(running, "complete").execution
        assert after is not None
        assert after.purge_at == NOW + keep_ms


def every_command(fence: Fence) -> list[Any]:
    """One command for every rule."""
    ids = NewIds("lease-new", "attempt-new")
    return [
        Renew(execution_id=EXECUTION_ID, fence=fence, lease_ttl_ms=TTL_MS),
        Progress(execution_id=EXECUTION_ID, fence=fence, percent=1, message="x"),
        make.delay_with(fence, NOW + 1),
        make.complete_with(fence),
        make.fail_with(fence),
        make.cancel_by_operator(),
        RevokeLease(execution_id=EXECUTION_ID, reason="x"),
        ExpireLease(execution_id=EXECUTION_ID),
        ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5),
        ExpireDeadline(execution_id=EXECUTION_ID),
        PromoteDelayed(execution_id=EXECUTION_ID),
        RequeueLost(execution_id=EXECUTION_ID),
        IssueReclaimGrant(
            execution_id=EXECUTION_ID,
            worker_id="w2",
            worker_instance_id="w2-1",
            worker_capabilities=(),
            grant_ttl_ms=1000,
            grant_id="grant",
        ),
        ReclaimExecution(
            execution_id=EXECUTION_ID,
            worker_id="w2",
            worker_instance_id="w2-1",
            lease_ttl_ms=TTL_MS,
            backend="memory",
            ids=ids,
        ),
        IssueClaimGrant(
            execution_id=EXECUTION_ID,
            worker_id="w2",
            worker_instance_id="w2-1",
            worker_capabilities=(),
            grant_ttl_ms=1000,
            grant_id="grant",
        ),
        ClaimGranted(
            execution_id=EXECUTION_ID,
            worker_id="w2",
            worker_instance_id="w2-1",
            lease_ttl_ms=TTL_MS,
            backend="memory",
            ids=ids,
            resumed=False,
        ),
        ClaimNamed(execution_id=EXECUTION_ID, lease_ttl_ms=TTL_MS, backend="memory", ids=ids),
        ChangePriority(execution_id=EXECUTION_ID, new_priority=5),
        Hold(execution_id=EXECUTION_ID, reason="x"),
        Release(execution_id=EXECUTION_ID),
        Block(execution_id=EXECUTION_ID, reason=BlockingReason.WAITING_FOR_BUDGET, detail="x"),
        BlockRoute(execution_id=EXECUTION_ID, lane_id=None, detail="x"),
        Unblock(execution_id=EXECUTION_ID, expected=None),
        SetTag(execution_id=EXECUTION_ID, key="team.name", value="b"),
        Repin(execution_id=EXECUTION_ID, expected="2", version="3"),
        Replay(execution_id=EXECUTION_ID),
        Wake(execution_id=EXECUTION_ID, jitter=0.5),
    ]


def test_every_rule_is_in_the_list_of_commands() -> None:
    assert {type(command) for command in every_command(Fence("l", 1, "a"))} == set(RULES)


@pytest.mark.parametrize("ended", make.ENDED)
def test_an_end_is_final_for_every_command_but_replay(ended: str) -> None:
    """I2: nothing follows an end except a replay (and a label)."""
    done = make.ENDED[ended](policy=make.policy(execution_deadline_ms=1, attempt_timeout_ms=1))
    stranger = Fence("lease-x", done.lease_epoch, done.attempt_id or "attempt-0")
    for command in every_command(stranger):
        decision = decide(done, command, NOW + 100 * TTL_MS)
        if isinstance(command, Replay | SetTag):
            continue
        assert decision.execution is None, command
        assert decision.attempt is None
        assert decision.events == ()


@pytest.mark.parametrize("situation", make.SITUATIONS)
def test_no_command_lowers_the_epoch_or_loses_a_counter(situation: str) -> None:
    """Invariant I4."""
    before = make.SITUATIONS[situation]()
    fence = Fence(before.lease_id or "l", before.lease_epoch, before.attempt_id or "a")
    for command in every_command(fence):
        after = decide(before, command, NOW).execution
        if after is None:
            continue
        assert after.lease_epoch >= before.lease_epoch
        assert after.total_attempt_count >= before.total_attempt_count
        assert after.created_at == before.created_at
        assert after.last_mutation_at >= before.last_mutation_at


# --- the owner's repeated call -----------------------------------------------------------------


def repeat(execution: Execution, command: Any) -> tuple[Decision[Any], Decision[Any]]:
    """The same call twice; the second must change nothing."""
    first = decide(execution, command)
    second = make.answered(first, decide(first.execution, command, NOW + 3), command)
    assert second.execution is None
    assert second.attempt is None
    assert second.events == ()
    return first, second


def test_completing_twice_answers_the_first_outcome() -> None:
    """I6: also the instant of the first completion."""
    running = make.leased()
    first, second = repeat(running, make.complete_with(fence_of(running), result=b"x"))
    assert second.reply == first.reply == Completed(EXECUTION_ID, PublicState.COMPLETED, NOW)


@pytest.mark.parametrize("most", [0, 2])
def test_failing_twice_answers_the_first_outcome(most: int) -> None:
    """I6: the scheduled retry or the end."""
    running = make.leased(policy=make.policy(retry_policy=make.retries(most)))
    first, second = repeat(running, make.fail_with(fence_of(running)))
    assert second.reply == first.reply


def test_parking_twice_answers_the_first_outcome() -> None:
    """Invariant I6."""
    running = make.leased()
    first, second = repeat(running, make.delay_with(fence_of(running), NOW + 50))
    assert second.reply == first.reply == Delayed(EXECUTION_ID, NOW + 50)


@pytest.mark.parametrize("situation", make.LIVE)
def test_cancelling_twice_answers_the_first_outcome(situation: str) -> None:
    """Invariant I6."""
    first, second = repeat(make.LIVE[situation](), make.cancel_by_operator())
    assert second.reply == first.reply == Cancelled(EXECUTION_ID, PublicState.CANCELLED)


def test_the_owners_cancel_is_answered_again() -> None:
    running = make.leased()
    command = Cancel(
        execution_id=EXECUTION_ID, reason="enough", source=LEASE_HOLDER, fence=fence_of(running)
    )
    first, second = repeat(running, command)
    assert second.reply == first.reply


@pytest.mark.parametrize("wrong", ["lease_id", "attempt_id"])
def test_a_stranger_is_not_answered_as_the_owner(wrong: str) -> None:
    """I3: a repeated call is recognised by the whole fence."""
    running = make.leased()
    done = make.image(running, make.complete_with(fence_of(running)))
    forged = replace(fence_of(running), **{wrong: "guess"})
    reply = decide(done, make.complete_with(forged)).reply
    assert isinstance(reply, Refused)
    assert reply.error is ExecutionNotActive


@pytest.mark.parametrize("wrong", ["lease_id", "attempt_id"])
def test_a_stranger_is_not_told_what_was_kept_for_the_owner(wrong: str) -> None:
    """I3: nor when the execution goes on and a row remembers the answer."""
    running = make.leased(policy=make.policy(retry_policy=make.retries(2)))
    first = decide(running, make.fail_with(fence_of(running)))
    forged = make.fail_with(replace(fence_of(running), **{wrong: "guess"}))
    again = make.answered(first, decide(first.execution, forged), forged)
    assert isinstance(again.reply, Refused)


def test_another_end_than_the_first_is_refused_with_details() -> None:
    """Complete after cancel."""
    running = make.leased()
    gone = make.image(running, make.cancel_by_operator())
    for command in (make.complete_with(fence_of(running)), make.fail_with(fence_of(running))):
        reply = decide(gone, command).reply
        assert isinstance(reply, Refused)
        assert reply.error is ExecutionNotActive
        assert reply.fields["terminal_outcome"] == "cancelled"
    assert make.refusal(decide(make.completed(), make.cancel_by_operator())) is ExecutionNotActive


def test_an_operators_end_is_audited() -> None:
    for command in (
        make.complete_with(None, OPERATOR_OVERRIDE),
        make.fail_with(None, source=OPERATOR_OVERRIDE),
        make.cancel_by_operator(),
    ):
        events = decide(make.leased(), command).events
        assert sum(isinstance(event, OperatorEvent) for event in events) == 1
