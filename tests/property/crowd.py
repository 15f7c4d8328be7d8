"""Many clients at once on a few executions, their engines apart; every call is noted down."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, NamedTuple

from flowfabric.api.executions import NewExecution
from flowfabric.assemble import open_engine
from flowfabric.clock import ManualClock
from flowfabric.config import EngineConfig
from flowfabric.engine.engine import Engine
from flowfabric.engine.operations.requests import to_create
from flowfabric.errors import FlowFabricError, RetryExhausted, StoreError
from flowfabric.ids import new_execution_id
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.claim import Claim, NewIds, claim
from flowfabric.kernel.execution.complete import Complete
from flowfabric.kernel.execution.create import CreateExecution, create
from flowfabric.kernel.execution.fail import Fail
from flowfabric.kernel.execution.fence import LEASE_HOLDER, OPERATOR_OVERRIDE
from flowfabric.kernel.execution.own import Renew
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.execution.wake import Wake
from flowfabric.kernel.registry import RULES
from flowfabric.model.answer import AnswerRow
from flowfabric.model.attempt import AttemptType, FailureClass
from flowfabric.model.execution import Execution, IdempotencyRecord
from flowfabric.model.handle import Handle
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.record import Record, replace
from flowfabric.model.results import Claimed, Created
from flowfabric.stores.base import StoreConflict, Transaction
from tests.property.wing_gong import Call, explained
from tests.support import builders as make
from tests.support.builders import NO_LANES

HANDS: Final = 2  # clients per engine: they share its commits, and race with the other engines
CALLS_PER_TICK: Final = 40
LEASE_MS: Final = 1_000
POLICY: Final = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=2, backoff=FixedBackoff(delay_ms=300))
)
CONFIG: Final = EngineConfig(
    loops=False, synchronous="normal", lease_ttl_ms=LEASE_MS, pool_size=3, batches_in_flight=2
)


class Verdict(NamedTuple):
    """What a crowd did, and what no order of calls explains."""

    calls: int
    objects: int
    unexplained: tuple[str, ...]
    store_errors: tuple[str, ...]


class Crowd:
    """The clients, what they share, and what they saw."""

    def __init__(self, url: str, *, engines: int, calls: int, seed: int) -> None:
        self._url, self._engines, self._limit, self._seed = url, engines, calls, seed
        self._clock = ManualClock(1_000_000)
        self._shown = [self._clock.now_ms()]  # every time the clock has shown
        self._ticks = 0
        self._made = 0
        self._loops: Engine
        self._conflict_rate = 0.0
        self._recent: deque[Handle] = deque(maxlen=24)  # anybody may use anybody's: late messages
        self._known: deque[str] = deque(maxlen=12)
        self.by_execution: dict[str, list[Call]] = {}
        self.by_key: dict[str, list[Call]] = {}
        self.store_errors: list[str] = []

    def with_conflicts(self, rate: float) -> Crowd:
        """Let so many transactions collide just before they would commit."""
        self._conflict_rate = rate
        return self

    # --- the run -------------------------------------------------------------------------------

    async def run(self) -> Verdict:
        async with AsyncExitStack() as stack:
            engines = [await self._engine(stack) for _ in range(self._engines + 1)]
            hands = [
                self._hand(engine, random.Random(f"{self._seed}/{number}/{hand}"))
                for number, engine in enumerate(engines[1:])
                for hand in range(HANDS)
            ]
            self._loops = engines[0]
            await asyncio.gather(*hands)
            await self._read_all(engines[0])
        return self._judge()

    async def _engine(self, stack: AsyncExitStack) -> Engine:
        engine = open_engine(self._url, config=CONFIG, clock=self._clock)
        await stack.enter_async_context(engine)
        if self._conflict_rate:
            spoil(engine, self._conflict_rate, random.Random(self._seed))
        return engine

    async def _pass_time(self) -> None:
        """Leases lapse and delays end while everybody else works."""
        self._clock.advance(250)
        self._shown.append(self._clock.now_ms())
        with suppress(RetryExhausted):
            await self._loops.move_due()

    async def _hand(self, engine: Engine, rng: random.Random) -> None:
        while self._made < self._limit:
            self._made += 1
            if self._made % CALLS_PER_TICK == 0:
                await self._pass_time()
            await self._one_call(engine, self._choose(engine, rng))

    def _choose(self, engine: Engine, rng: random.Random) -> Any:
        chance = rng.random()
        if chance < 0.2 or not self._known:
            return self._new(engine, rng)
        if chance < 0.4 or not self._recent:
            return Claim(
                offer=Offer(("default",), ("default",)),
                worker_id=f"w{rng.randrange(9)}",
                worker_instance_id=f"w{rng.randrange(9)}-1",
                lease_ttl_ms=LEASE_MS,
                limit=rng.randint(1, 3),
                backend=engine.store.family,
            )
        if chance < 0.45:
            return Cancel(
                execution_id=rng.choice(self._known), reason="enough", source=OPERATOR_OVERRIDE
            )
        handle = rng.choice(self._recent)
        key, fence = handle.execution_id, handle.fence
        if chance < 0.65:
            return Renew(execution_id=key, fence=fence, lease_ttl_ms=LEASE_MS)
        if chance < 0.8:
            broken = FailureClass.TRANSIENT
            return Fail(
                execution_id=key,
                fence=fence,
                source=LEASE_HOLDER,
                reason="it broke",
                failure_class=broken,
                category=broken.value,
                jitter=0.5,
            )
        if chance < 0.97:
            return Complete(execution_id=key, fence=fence, source=LEASE_HOLDER, result=b"done")
        return Cancel(execution_id=key, reason="pointless", source=LEASE_HOLDER, fence=fence)

    def _new(self, engine: Engine, rng: random.Random) -> CreateExecution:
        key = f"key-{self._made // 25 + rng.randrange(3)}"
        request = NewExecution(execution_kind="work", idempotency_key=key, policy=POLICY)
        return to_create(request, engine.config, new_execution_id(engine.store.partitions))

    async def _one_call(self, engine: Engine, command: Any) -> None:
        called, since = self._tick(), len(self._shown) - 1
        answer: Any
        try:
            if isinstance(command, CreateExecution):
                await engine.known.ensure((command,))
            answer = await engine.execute(command)
        except RetryExhausted:
            return  # nothing was written
        except StoreError as error:
            self.store_errors.append(f"{type(command).__name__}: {error}")
            return
        except FlowFabricError as error:
            answer = error
        moments = tuple(self._shown[since:])
        self._note(command, answer, called, moments)

    def _tick(self) -> int:
        self._ticks += 1
        return self._ticks

    def _note(self, command: Any, answer: Any, called: int, moments: tuple[int, ...]) -> None:
        returned = self._tick()
        if isinstance(command, Claim):
            for each in answer:
                self._recent.append(each.handle)
                one = Call(called, returned, command, each, moments)
                self.by_execution.setdefault(each.execution_id, []).append(one)
            return
        call = Call(called, returned, command, answer, moments)
        if isinstance(command, CreateExecution):
            self.by_key.setdefault(command.idempotency_key or "", []).append(call)
            if not isinstance(answer, Created):
                return
            self._known.append(command.execution_id)
        self.by_execution.setdefault(command.execution_id, []).append(call)

    async def _read_all(self, engine: Engine) -> None:
        """The last thing anybody does is look at what is stored."""
        moments = (self._shown[-1],)
        stored = {e.execution_id: e for e in (await engine.store.dump())["executions"]}
        for key, calls in self.by_execution.items():
            called = self._tick()
            calls.append(Call(called, self._tick(), Look(key), stored.get(key), moments))

    # --- the verdict ---------------------------------------------------------------------------

    def _judge(self) -> Verdict:
        bad = [
            key
            for key, calls in self.by_execution.items()
            if not explained(calls, Remembered(), execution_follows, visible)
        ]
        bad += [
            key
            for key, calls in self.by_key.items()
            if not explained(calls, None, key_follows, lambda record: record)
        ]
        objects = len(self.by_execution) + len(self.by_key)
        calls = sum(map(len, self.by_execution.values())) + sum(map(len, self.by_key.values()))
        return Verdict(calls, objects, tuple(bad), tuple(self.store_errors))

    def history(self, name: str) -> str:
        """One object's calls as text, for a failure's message."""
        calls = self.by_execution.get(name) or self.by_key.get(name) or []
        return "\n".join(
            f"  {call.called:>6}–{call.returned:<6} at {call.moments} "
            f"{type(call.what).__name__} {getattr(call.what, 'fence', '')} → {call.answer!r}"
            for call in sorted(calls, key=lambda call: call.called)
        )


class Look(Record, frozen=True):
    """Read one execution."""

    execution_id: str


def spoil(engine: Engine, rate: float, rng: random.Random) -> None:
    """Make an engine's transactions collide now and then, after their work is done."""
    store: Any = engine.store
    transact = store.transact

    async def spoiled(work: Callable[[Transaction], Any]) -> Any:
        collides = rng.random() < rate

        async def colliding(tx: Transaction) -> Any:
            result = await work(tx)
            if collides:
                raise StoreConflict("injected")
            return result

        return await transact(colliding)

    store.transact = spoiled


# --- the specification: the kernel itself ------------------------------------------------------


class Remembered(NamedTuple):
    """An execution, and what owners were told before it went on."""

    execution: Execution | None = None
    answers: tuple[AnswerRow, ...] = ()


def execution_follows(state: Remembered, call: Call) -> list[Remembered]:
    """Every image after a call that answers as it did; what is due may happen silently before."""
    after: list[Remembered] = []
    for start in silently(state.execution, call.moments[-1]):
        if isinstance(call.what, Look):
            if image(start) == image(call.answer):
                after.append(state._replace(execution=start))
            continue
        for now in call.moments:
            decision = decide(start, call, Moment(now))
            if decision is not None and told(decision, state, call.what) == call.answer:
                execution = start if decision.execution is None else decision.execution
                kept = [row for row in decision.saves if isinstance(row, AnswerRow)]
                after.append(Remembered(execution, (*state.answers, *kept)))
    return after


def told(decision: Decision[Any], state: Remembered, command: Any) -> Any:
    """What the caller hears: the decision's answer, or its own first one."""
    for row in state.answers:
        decision = make.answered(Decision(None, saves=(row,)), decision, command)
    return answer_of(decision)


def silently(state: Execution | None, now: int) -> list[Execution | None]:
    reached = [state]
    while state is not None:
        state = RULES[Wake](
            state, Wake(execution_id=state.execution_id, jitter=0.5), Moment(now)
        ).execution
        if state is not None:
            reached.append(state)
    return reached


def decide(state: Execution | None, call: Call, at: Moment) -> Decision[Any] | None:
    command = call.what
    if isinstance(command, CreateExecution):
        return create(state, None, NO_LANES, command, at)
    if isinstance(command, Claim):
        new = NewIds(call.answer.lease_id, call.answer.attempt_id)
        return None if state is None else bodied(claim(state, command, new, at), call.answer)
    return RULES[type(command)](state, command, at)


def bodied(decision: Decision[Any], answer: Claimed) -> Decision[Any]:
    """The kernel does not know the body; the engine adds it."""
    if not isinstance(decision.reply, Claimed):
        return decision
    key = answer.idempotency_key
    return replace(decision, reply=replace(decision.reply, idempotency_key=key))


def answer_of(decision: Decision[Any]) -> Any:
    reply = decision.reply
    return reply.to_error() if isinstance(reply, Refused) else reply


def visible(state: Remembered) -> Any:
    """What later answers depend on."""
    return image(state.execution), tuple((row.lease_epoch, row.answer) for row in state.answers)


def image(state: Execution | None) -> Any:
    """The part of it that an execution shows."""
    if state is None:
        return None
    retrying = state.next_attempt_type is AttemptType.RETRY and not state.is_leased
    return (
        state.state,
        state.created_at,
        state.lease_epoch,
        state.lease_id,
        state.attempt_id,
        state.lease_expires_at,
        state.next_attempt_type,
        state.total_attempt_count,
        state.retry_count,
        state.reclaim_count,
        state.completed_at,
        state.eligible_at if retrying else 0,  # when a loop requeued it, nobody is ever told
    )


def key_follows(state: IdempotencyRecord | None, call: Call) -> list[IdempotencyRecord | None]:
    after = []
    for now in call.moments:
        decision = create(None, state, NO_LANES, call.what, Moment(now))
        if answer_of(decision) == call.answer:
            after.append((decision.new and decision.new.idempotency) or state)
    return after
