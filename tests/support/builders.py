"""Executions in every situation, built by the kernel's own rules from plain commands."""

from __future__ import annotations

from typing import Any

from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution import answer
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import Claim, NewIds, claim
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.create import CreateExecution, create
from flowfabric.kernel.execution.expire import ExpireLease
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.fence import LEASE_HOLDER, OPERATOR_OVERRIDE
from flowfabric.kernel.execution.operate import Hold
from flowfabric.kernel.execution.own import Delay
from flowfabric.kernel.execution.reclaim import RequeueLost
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.registry import REPEATABLE, RULES
from flowfabric.model.answer import AnswerRow
from flowfabric.model.attempt import FailureClass
from flowfabric.model.execution import Body, Execution, Fence
from flowfabric.model.policy import (
    ExecutionPolicy,
    FixedBackoff,
    RetryPolicy,
    TimeoutPolicy,
)
from flowfabric.model.route import Catalog, Lane, LaneState, Route
from flowfabric.model.suspension import SecretRow

NOW = 1_000_000
SECRET = SecretRow("k1", "ab" * 32, NOW, 1, None)  # signs tokens
TTL_MS = 10_000
EXECUTION_ID = "{fp:7}:01890000-0000-7000-8000-000000000001"
ROUTE = Route("default", "lane", "kind", ())


def retries(most: int, delay_ms: int = 1000, **rest: Any) -> RetryPolicy:
    return RetryPolicy(max_retries=most, backoff=FixedBackoff(delay_ms=delay_ms), **rest)


def policy(
    *,
    attempt_timeout_ms: int | None = None,
    execution_deadline_ms: int | None = None,
    **fields: Any,
) -> ExecutionPolicy:
    timeouts = TimeoutPolicy(
        attempt_timeout_ms=attempt_timeout_ms, execution_deadline_ms=execution_deadline_ms
    )
    return ExecutionPolicy(timeout_policy=timeouts, **fields)


def decide(
    execution: Execution | None, command: Any, now: int = NOW, **settings: Any
) -> Decision[Any]:
    return RULES[type(command)](execution, command, Moment(now, **settings))


def image(execution: Execution | None, command: Any, now: int = NOW, **settings: Any) -> Execution:
    """The new image after a command that must change something."""
    decision = decide(execution, command, now, **settings)
    assert decision.execution is not None, decision.reply
    return decision.execution


def refusal(decision: Decision[Any]) -> type:
    """The error a decision refuses with; it must change nothing."""
    assert isinstance(decision.reply, Refused), decision.reply
    assert decision.execution is None
    assert decision.attempt is None
    assert decision.events == ()
    return decision.reply.error


# --- commands with the usual values ------------------------------------------------------------


def fence_of(execution: Execution) -> Fence:
    assert execution.lease_id is not None
    assert execution.attempt_id is not None
    return Fence(execution.lease_id, execution.lease_epoch, execution.attempt_id)


def complete_with(fence: Fence | None, source: str = LEASE_HOLDER, **fields: Any) -> Complete:
    return Complete(execution_id=EXECUTION_ID, fence=fence, source=source, **fields)


def fail_with(
    fence: Fence | None,
    *,
    source: str = LEASE_HOLDER,
    failure_class: FailureClass = FailureClass.TRANSIENT,
    category: str = "transient",
    **fields: Any,
) -> Fail:
    return Fail(
        execution_id=EXECUTION_ID,
        fence=fence,
        source=source,
        reason="it broke",
        failure_class=failure_class,
        category=category,
        jitter=fields.pop("jitter", 0.5),
        **fields,
    )


def delay_with(fence: Fence | None, until: int, source: str = LEASE_HOLDER) -> Delay:
    return Delay(execution_id=EXECUTION_ID, fence=fence, delay_until=until, source=source)


def cancel_by_operator(reason: str = "no longer needed") -> Cancel:
    return Cancel(execution_id=EXECUTION_ID, reason=reason, source=OPERATOR_OVERRIDE)


# --- situations --------------------------------------------------------------------------------

NO_LANES = Catalog(0, (), {})


def lanes(state: LaneState) -> Catalog:
    """A catalog whose one lane is in this state."""
    return Catalog(0, (), {ROUTE.lane_id: Lane(ROUTE.lane_id, state, NOW, NOW)})


def created(now: int = NOW, **fields: Any) -> Execution:
    rules: ExecutionPolicy = fields.pop("policy", ExecutionPolicy())
    command = CreateExecution(
        execution_id=EXECUTION_ID,
        route=fields.pop("route", ROUTE),
        priority=fields.pop("priority", 0),
        policy=rules,
        body=Body(EXECUTION_ID, b"payload"),
        tags=fields.pop("tags", {"team.name": "a"}),
        **fields,
    )
    decision = create(None, None, NO_LANES, command, Moment(now))
    assert decision.execution is not None
    return decision.execution


def claim_command(worker: str = "w1", ttl_ms: int = TTL_MS) -> Claim:
    offer = Offer(("default",), ("lane",))
    return Claim(
        offer=offer,
        worker_id=worker,
        worker_instance_id=f"{worker}-1",
        lease_ttl_ms=ttl_ms,
        limit=1,
        backend="memory",
    )


def claim_of(
    execution: Execution, worker: str = "w1", now: int = NOW, ttl_ms: int = TTL_MS
) -> Decision[Any]:
    epoch = execution.lease_epoch + 1
    ids = NewIds(f"lease-{worker}-{epoch}", f"attempt-{execution.total_attempt_count}")
    return claim(execution, claim_command(worker, ttl_ms), ids, Moment(now))


def claimed(
    execution: Execution, worker: str = "w1", now: int = NOW, ttl_ms: int = TTL_MS
) -> Execution:
    after = claim_of(execution, worker, now, ttl_ms).execution
    assert after is not None
    return after


def leased(now: int = NOW, ttl_ms: int = TTL_MS, **fields: Any) -> Execution:
    return claimed(created(now, **fields), now=now, ttl_ms=ttl_ms)


def delayed(now: int = NOW, delay_ms: int = 1000, **fields: Any) -> Execution:
    return created(now, delay_until=now + delay_ms, **fields)


def parked(now: int = NOW, delay_ms: int = 1000, **fields: Any) -> Execution:
    running = leased(now, **fields)
    return image(running, delay_with(fence_of(running), now + delay_ms), now)


def held(now: int = NOW, **fields: Any) -> Execution:
    return image(created(now, **fields), Hold(execution_id=EXECUTION_ID, reason="wait"), now)


def lapsed(now: int = NOW, **fields: Any) -> Execution:
    """Its lease ended at `now` and that was noticed."""
    running = leased(now - TTL_MS, **fields)
    return image(running, ExpireLease(execution_id=EXECUTION_ID), now)


def revoked(now: int = NOW, **fields: Any) -> Execution:
    return image(
        leased(now, **fields), RevokeLease(execution_id=EXECUTION_ID, reason="suspect"), now
    )


def requeued(now: int = NOW, **fields: Any) -> Execution:
    return image(lapsed(now, **fields), RequeueLost(execution_id=EXECUTION_ID), now)


def retrying(now: int = NOW, **fields: Any) -> Execution:
    fields.setdefault("policy", policy(retry_policy=retries(3)))
    running = leased(now, **fields)
    return image(running, fail_with(fence_of(running)), now)


def completed(now: int = NOW, **fields: Any) -> Execution:
    running = leased(now, **fields)
    return image(running, complete_with(fence_of(running), result=b"done"), now)


def failed(now: int = NOW, **fields: Any) -> Execution:
    running = leased(now, **fields)
    fatal = fail_with(fence_of(running), failure_class=FailureClass.PERMANENT)
    return image(running, fatal, now)


def cancelled(now: int = NOW, **fields: Any) -> Execution:
    return image(created(now, **fields), cancel_by_operator(), now)


LIVE = {
    "waiting": created,
    "delayed": delayed,
    "held": held,
    "leased": leased,
    "parked": parked,
    "retrying": retrying,
    "lapsed": lapsed,
    "revoked": revoked,
    "requeued": requeued,
}
ENDED = {"completed": completed, "failed": failed, "cancelled": cancelled}
SITUATIONS = {**LIVE, **ENDED}


def kept_answer(decision: Decision[Any]) -> AnswerRow | None:
    """The answer a decision keeps for its owner's repeated call."""
    return next((row for row in decision.saves if isinstance(row, AnswerRow)), None)


def answered(first: Decision[Any], again: Decision[Any], command: Any) -> Decision[Any]:
    """The repeated call as its caller hears it: a refusal gives way to the answer that was kept."""
    fence, kinds = getattr(command, "fence", None), REPEATABLE.get(type(command))
    if fence is None or kinds is None or not isinstance(again.reply, Refused):
        return again
    told = answer.answered_before(kept_answer(first), fence, kinds, Moment(NOW))
    return again if told is None else Decision(told)
