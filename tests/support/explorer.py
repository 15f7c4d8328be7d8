"""Exhaustive exploration of the kernel in a small scope.

One execution, two workers, a clock of a few ticks. Every message a worker ever sent may arrive now,
again, or never; leases lapse and are requeued, operators cancel, revoke and replay, in every order.
The assertions are written from the invariants and never call the code they judge.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec.structs import astuple

from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import NewIds
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.expire import (
    ExpireAttempt,
    ExpireDeadline,
    ExpireLease,
    PromoteDelayed,
)
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.fence import LEASE_HOLDER
from flowfabric.kernel.execution.own import Delay, Renew
from flowfabric.kernel.execution.reclaim import IssueReclaimGrant, ReclaimExecution, RequeueLost
from flowfabric.kernel.execution.replay import Replay
from flowfabric.kernel.execution.revoke import RevokeLease
from flowfabric.kernel.execution.wake import Wake
from flowfabric.kernel.registry import RULES
from flowfabric.model.event import CompletionEvent, LeaseEvent, LeaseEventType
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.state import ALL_VECTORS, AttemptState, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID

LEASE_TICKS: Final = 2
WORKERS: Final = ("w1", "w2")
WORLDS_MAX: Final = 80_000
_LEGAL: Final = frozenset(ALL_VECTORS)
_OPEN_ATTEMPT: Final = (AttemptState.RUNNING_ATTEMPT, AttemptState.ATTEMPT_INTERRUPTED)
_CONSTANT: Final = ("execution_id", "route", "policy", "tags", "priority", "created_at")
_VARIABLE: Final = tuple(
    position for position, name in enumerate(Execution.__struct_fields__) if name not in _CONSTANT
)


class Scope(NamedTuple):
    """How much happens."""

    ticks: int
    policy: ExecutionPolicy
    worker_messages: tuple[str, ...] = ("complete", "fail", "renew")
    operator_moves: tuple[str, ...] = ("cancel", "revoke")
    leases: int = 4  # claims in one history: parking and resuming could go on for ever


class World(NamedTuple):
    """One reachable situation, with as much history as the invariants need."""

    execution: Execution
    now: int
    fences: frozenset[Fence]  # every fence ever handed to a worker
    ended: frozenset[int]  # indexes of attempts that have their outcome
    ends: int  # completion events so far

    def key(self) -> tuple[Any, ...]:
        """What makes two worlds the same."""
        values = astuple(self.execution)
        image = tuple(values[position] for position in _VARIABLE)
        return (image, self.now, self.fences, self.ended, self.ends)


class Explored(NamedTuple):
    """How much was looked at, and which ends were reached."""

    worlds: int
    transitions: int
    outcomes: frozenset[PublicState]


def explore(scope: Scope) -> Explored:
    """Visit every world reachable within the scope and judge every step."""
    start = World(make.created(now=0, policy=scope.policy), 0, frozenset(), frozenset(), 0)
    seen, queue, transitions = {start.key()}, deque([start]), 0
    outcomes: set[PublicState] = set()
    while queue:
        world = queue.popleft()
        for after in _steps(world, scope):
            transitions += 1
            key = after.key()
            if key not in seen:
                seen.add(key)
                assert len(seen) < WORLDS_MAX, "the scope has no end: something is not bounded"
                queue.append(after)
                outcomes.add(after.execution.public_state)
    return Explored(len(seen), transitions, frozenset(outcomes))


def _steps(world: World, scope: Scope) -> Iterator[World]:
    if world.now < scope.ticks:
        yield world._replace(now=world.now + 1)
    for worker in WORKERS if len(world.fences) < scope.leases else ():
        decision = make.claim_of(world.execution, worker, world.now, LEASE_TICKS)
        if decision.execution is not None:
            yield _judged(world, decision, None, scope)
    for command in _commands(world, scope):
        decision = RULES[type(command)](world.execution, command, Moment(world.now, 0))
        _judge_reply(world, command, decision)
        if decision.execution is not None:
            after = _judged(world, decision, command, scope)
            _judge_repetition(after, command, decision)
            _judge_memory(world, command, decision, scope)
            yield after


def _commands(world: World, scope: Scope) -> Iterator[Any]:
    for fence in world.fences:
        for name in scope.worker_messages:
            yield _worker_message(name, fence)
    for name in scope.operator_moves:
        yield from _operator_moves(name, world.execution)
    yield from _BY_ITSELF


_BY_ITSELF: Final = (
    ExpireDeadline(execution_id=EXECUTION_ID),
    ExpireAttempt(execution_id=EXECUTION_ID, jitter=0.5),
    ExpireLease(execution_id=EXECUTION_ID),
    RequeueLost(execution_id=EXECUTION_ID),
    PromoteDelayed(execution_id=EXECUTION_ID),
    Wake(execution_id=EXECUTION_ID, jitter=0.5),
)


def _worker_message(name: str, fence: Fence) -> Any:
    match name:
        case "complete":
            return Complete(
                execution_id=EXECUTION_ID, fence=fence, source=LEASE_HOLDER, result=b"r"
            )
        case "fail":
            return make.fail_with(fence)
        case "renew":
            return Renew(execution_id=EXECUTION_ID, fence=fence, lease_ttl_ms=LEASE_TICKS)
        case "delay":
            return Delay(execution_id=EXECUTION_ID, fence=fence, delay_until=2, source=LEASE_HOLDER)
        case _:
            return Cancel(
                execution_id=EXECUTION_ID, reason="stop", source=LEASE_HOLDER, fence=fence
            )


def _operator_moves(name: str, execution: Execution) -> Iterator[Any]:
    epoch = execution.lease_epoch + 1
    ids = NewIds(f"lease-reclaim-{epoch}", f"attempt-{execution.total_attempt_count}")
    match name:
        case "cancel":
            yield make.cancel_by_operator()
        case "revoke":
            yield RevokeLease(execution_id=EXECUTION_ID, reason="suspect")
        case "replay":
            yield Replay(execution_id=EXECUTION_ID)
        case _:
            yield IssueReclaimGrant(
                execution_id=EXECUTION_ID,
                worker_id="w2",
                worker_instance_id="w2-1",
                worker_capabilities=(),
                grant_ttl_ms=1,
                grant_id="grant",
            )
            yield ReclaimExecution(
                execution_id=EXECUTION_ID,
                worker_id="w2",
                worker_instance_id="w2-1",
                lease_ttl_ms=LEASE_TICKS,
                backend="memory",
                ids=ids,
            )


def _judged(world: World, decision: Decision[Any], command: Any, scope: Scope) -> World:
    """The next world, after every invariant was checked on the step."""
    before, after = world.execution, decision.execution
    assert after is not None
    _judge_ownership(world, after, command)
    ended = _judge_attempt(world, decision)
    ends = world.ends + sum(isinstance(event, CompletionEvent) for event in decision.events)
    assert ends - world.ends == (after.is_terminal and not before.is_terminal), "I2: one end"
    assert ends <= after.replay_count + 1, "I2: one end per life"
    _judge_events(before, after, decision)
    _judge_image(after, ended, scope)
    fences = world.fences
    if after.is_leased and not (before.is_leased and before.lease_id == after.lease_id):
        fences |= {make.fence_of(after)}
    return World(after, world.now, fences, ended, ends)


def _judge_ownership(world: World, after: Execution, command: Any) -> None:
    before = world.execution
    if before.is_terminal:
        assert isinstance(command, Replay), "I2: an end absorbs everything but a replay"
    assert after.lease_epoch >= before.lease_epoch, "I4: epochs never fall"
    owner_before = before.lease_id if before.is_leased else None
    owner_after = after.lease_id if after.is_leased else None
    if owner_before != owner_after:
        assert after.lease_epoch > before.lease_epoch, "I4: a new owner, a new epoch"
    fence = getattr(command, "fence", None)
    if fence is not None:
        assert before.is_leased, "I3: only an owner writes"
        mine = (before.lease_id, before.lease_epoch, before.attempt_id)
        assert mine == (fence.lease_id, fence.lease_epoch, fence.attempt_id), "I3: the live owner"
        assert (before.lease_expires_at or 0) > world.now, "I3: a lapsed lease gives no right"
    elif before.is_leased and isinstance(command, ExpireLease | Wake):
        assert (before.lease_expires_at or 0) <= world.now, "I3: a live lease is not taken away"


def _judge_attempt(world: World, decision: Decision[Any]) -> frozenset[int]:
    if decision.attempt is None:
        return world.ended
    index = decision.attempt.attempt_index
    assert index not in world.ended, "I5: one outcome per attempt"
    assert index == world.execution.attempt_index, "I5: the current attempt ends"
    return world.ended | {index}


def _judge_events(before: Execution, after: Execution, decision: Decision[Any]) -> None:
    leases = [event for event in decision.events if isinstance(event, LeaseEvent)]
    taken = (LeaseEventType.ACQUIRED, LeaseEventType.RECLAIMED)
    lost = [event for event in leases if event.event_type not in taken]
    won = [event for event in leases if event.event_type in taken]
    ends = [event for event in decision.events if isinstance(event, CompletionEvent)]
    loses = before.is_leased and not after.is_leased
    assert len(lost) + len(ends) >= loses, "each loss is published"
    assert len(lost) <= (loses and not after.is_terminal), "a completion implies the release"
    assert len(won) == (after.is_leased and not before.is_leased), "each lease is published"


def _judge_image(after: Execution, ended: frozenset[int], scope: Scope) -> None:
    state, policy = after.state, scope.policy
    assert state in _LEGAL
    every = frozenset(range(after.total_attempt_count))
    is_open = state.attempt_state in _OPEN_ATTEMPT
    assert ended == (every - {after.attempt_index} if is_open else every), "I5: nothing left open"
    retries = policy.retry_policy.max_retries if policy.retry_policy else 0
    reclaims = policy.max_reclaim_count or 0
    assert after.retry_count <= retries, "I5: retries are bounded"
    assert after.reclaim_count <= reclaims, "I5: reclaims are bounded"
    most = (1 + retries + reclaims) * (1 + after.replay_count)
    assert after.total_attempt_count <= most, "I5: attempts are bounded"
    assert after.replay_count <= policy.max_replay_count, "I5: replays are bounded"
    if after.is_leased:
        assert after.grant is None, "a lease consumes the grant"
    if after.is_terminal:
        assert (after.grant, after.worker_id, after.lease_expires_at) == (None, None, None)
        assert after.purge_at is not None
    else:
        assert _has_wake_up(after), "I9: something will happen to it"


def _has_wake_up(after: Execution) -> bool:
    match after.public_state:
        case PublicState.WAITING:
            return after.is_waiting
        case PublicState.DELAYED:
            return after.eligible_at > 0
        case _:
            return (after.lease_expires_at if after.is_leased else after.reclaim_at) is not None


def _judge_reply(world: World, command: Any, decision: Decision[Any]) -> None:
    """A success that writes nothing repeats what this very owner did before."""
    fence = getattr(command, "fence", None)
    if fence is None or decision.execution is not None or isinstance(decision.reply, Refused):
        return
    if isinstance(command, Cancel):
        assert world.execution.public_state is PublicState.CANCELLED
        return
    assert world.execution.lease_id == fence.lease_id, "I6: only the owner is answered again"
    assert world.execution.lease_epoch == fence.lease_epoch + 1, "I6: and only about its own act"


def _judge_memory(world: World, command: Any, decision: Decision[Any], scope: Scope) -> None:
    """What an ended execution would have answered an owner is kept when it lives again."""
    if not isinstance(command, Replay):
        return
    assert decision.execution is not None
    for fence in world.fences:
        if fence.lease_epoch + 1 != world.execution.lease_epoch:
            continue
        for message in (_worker_message(name, fence) for name in scope.worker_messages):
            told = RULES[type(message)](world.execution, message, Moment(world.now, 0)).reply
            if not isinstance(told, Refused):
                refused = RULES[type(message)](decision.execution, message, Moment(world.now, 0))
                again = make.answered(decision, refused, message)
                assert again.reply == told, "I6: the same answer after a replay"


def _judge_repetition(after: World, command: Any, decision: Decision[Any]) -> None:
    if not isinstance(command, Complete | Fail | Cancel | Delay):
        return
    again = RULES[type(command)](after.execution, command, Moment(after.now, 0))
    again = make.answered(decision, again, command)
    assert again.reply == decision.reply, "I6: the same call, the same answer"
    assert again.execution is None, "I6: and nothing more happens"
