"""What suspensions, waitpoints and signals add to random histories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from flowfabric.api.waits import Fresh, Signal, SuspendRequest, UsePending
from flowfabric.kernel.wait.condition import keys_of
from flowfabric.model.handle import Handle
from flowfabric.model.results import Created
from flowfabric.model.state import LifecyclePhase
from flowfabric.model.suspension import (
    AllOf,
    AlreadyMet,
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    ResumeCondition,
    SignalEffect,
    Single,
    Suspended,
    TimeoutOnly,
    WaitpointDetails,
    WaitpointState,
)
from flowfabric.model.words import TimeoutBehavior
from tests.property.histories import LANES, Histories, WholeHistories, pick
from tests.property.seat import Seat
from tests.support.runner import StepRunner

CONDITIONS: tuple[ResumeCondition, ...] = (
    Single("a"),
    Single("a", "ok"),
    AllOf((Single("a", "ok"), Single("b"))),
    AnyOf((Single("a", "ok"), AllOf((Single("b"), Single("a", "no"))))),
    Count(2, CountKind.DISTINCT_SOURCES, ("a",), "ok"),
    Count(2, CountKind.DISTINCT_WAITPOINTS, ("a", "b")),
    Count(2, CountKind.DISTINCT_SIGNALS, ("a", "b")),
    OperatorOnly(),
)
SCHEMA = '{"type": "integer"}'

condition = st.sampled_from(CONDITIONS)
behavior = st.sampled_from(TimeoutBehavior)
perhaps_timeout = st.sampled_from((None, None, 1, 600, 2_000))
resume_delay = st.sampled_from((0, 0, 0, 400))
signal_name = st.sampled_from(("ok", "ok", "ok", "no"))
source = st.sampled_from(("ann", "ann", "bob"))
signal_key = st.sampled_from((None, None, None, "once", "twice"))
suspend_key = st.sampled_from((None, None, "s1", "s2"))
payload = st.sampled_from((None, b"1", b"1", b'"text"'))

Address = tuple[str, WaitpointDetails]


class WaitingHistories(Histories):
    """Everything that suspends, signals, resumes and times out."""

    def __init__(self, runner: StepRunner, seats: Sequence[Seat]) -> None:
        super().__init__(runner, seats)
        self.addresses: list[Address] = []  # every waitpoint ever handed out

    def _learn(self, execution_id: str, answer: Any) -> None:
        if isinstance(answer, Suspended | AlreadyMet):
            known = {each.waitpoint_id for _, each in self.addresses}
            new = [each for each in answer.waitpoints if each.waitpoint_id not in known]
            self.addresses += [(execution_id, each) for each in new]
        elif isinstance(answer, WaitpointDetails):
            self.addresses.append((execution_id, answer))

    def _suspend(self, held: Handle, request: SuspendRequest) -> None:
        answer = self.do(lambda seat: seat.engine.suspend(seat.handle(held), request))
        self._learn(held.execution_id, answer)

    # --- workers -------------------------------------------------------------------------------

    @rule(
        what=condition,
        timeout=perhaps_timeout,
        how=behavior,
        most=st.sampled_from((0, 2, 1_000)),
        default=st.sampled_from((None, 900)),
        fast=st.booleans(),
    )
    def wait_anew(
        self,
        what: ResumeCondition,
        timeout: int | None,
        how: TimeoutBehavior,
        most: int,
        default: int | None,
        fast: bool,
    ) -> None:
        """A new execution that runs and suspends at once: most histories are about those."""
        policy: dict[str, Any] = {
            "max_signals_per_execution": most,
            "suspension_policy": {"default_timeout_ms": default, "timeout_behavior": how},
            "timeout_policy": {"attempt_timeout_ms": 1_500 if fast else None},
            "max_replay_count": 2,
        }
        created = self.do(
            lambda seat: seat.engine.create_execution(
                execution_kind="brew", lane_id="green", priority=9_000, policy=policy
            )
        )
        if not isinstance(created, Created):
            return
        self.executions.append(created.execution_id)
        before = len(self.held)
        offer: dict[str, Any] = {"lanes": LANES[1:], "worker_id": "w1", "lease_ttl_ms": 2_000}
        self.keep(self.do(lambda seat: seat.engine.claim(worker_instance_id="w1-1", **offer)))
        if len(self.held) > before:
            at = None if timeout is None else self.now + timeout
            request = SuspendRequest(resume_condition=what, timeout_at=at, timeout_behavior=how)
            self._suspend(self.held[-1], request)

    @rule(
        number=pick,
        what=condition,
        timeout=perhaps_timeout,
        how=behavior,
        delay=resume_delay,
        key=suspend_key,
        typed=st.booleans(),
    )
    def suspend(
        self,
        number: int,
        what: ResumeCondition,
        timeout: int | None,
        how: TimeoutBehavior,
        delay: int,
        key: str | None,
        typed: bool,
    ) -> None:
        if held := self.some(number, self.held):
            fresh = tuple(Fresh(each, SCHEMA) for each in keys_of(what)) if typed else ()
            request = SuspendRequest(
                resume_condition=what,
                waitpoints=fresh,
                reason_code="waiting_for_approval" if typed else "step_boundary",
                timeout_at=None if timeout is None else self.now + timeout,
                timeout_behavior=how,
                resume_delay_ms=delay,
                continuation_metadata_pointer="chapter 2" if typed else None,
                idempotency_key=key,
            )
            self._suspend(held, request)

    @rule(number=pick, after=st.sampled_from((0, 700)), key=suspend_key)
    def suspend_until(self, number: int, after: int, key: str | None) -> None:
        if held := self.some(number, self.held):
            request = SuspendRequest(
                resume_condition=TimeoutOnly(),
                timeout_at=self.now + after,
                timeout_behavior=TimeoutBehavior.AUTO_RESUME,
                idempotency_key=key,
            )
            self._suspend(held, request)

    @rule(
        number=pick,
        key=st.sampled_from(("a", "a", "b")),
        lives=st.sampled_from((1, 900, 5_000)),
        typed=st.booleans(),
    )
    def create_waitpoint(self, number: int, key: str, lives: int, typed: bool) -> None:
        if held := self.some(number, self.held):
            answer = self.do(
                lambda seat: seat.engine.create_waitpoint(
                    seat.handle(held),
                    waitpoint_key=key,
                    expires_in_ms=lives,
                    payload_type=SCHEMA if typed else None,
                )
            )
            self._learn(held.execution_id, answer)

    @rule(number=pick, which=pick, what=condition, timeout=perhaps_timeout, key=suspend_key)
    def suspend_on_pending(
        self, number: int, which: int, what: ResumeCondition, timeout: int | None, key: str | None
    ) -> None:
        """Mostly on one's own waitpoint, whatever its key; the other keys are fresh."""
        held = self.some(number, self.held)
        if held is None:
            return
        own = [each for execution_id, each in self.addresses if execution_id == held.execution_id]
        found = self.some(which, own) or self.some(which, [each for _, each in self.addresses])
        keys = keys_of(what)
        if found is None or not keys:
            return
        wanted = found.waitpoint_key if found.waitpoint_key in keys else keys[0]
        bound: list[Any] = [UsePending(found.waitpoint_id, wanted)]
        bound += [Fresh(each) for each in keys if each != wanted]
        request = SuspendRequest(
            resume_condition=what,
            waitpoints=tuple(sorted(bound, key=lambda each: each.waitpoint_key != keys[0])),
            timeout_at=None if timeout is None else self.now + timeout,
            timeout_behavior=TimeoutBehavior.AUTO_RESUME_WITH_TIMEOUT_SIGNAL,
            idempotency_key=key,
        )
        self._suspend(held, request)

    # --- everybody else ------------------------------------------------------------------------

    @rule(
        number=pick,
        name=signal_name,
        who=source,
        key=signal_key,
        data=payload,
        delay=resume_delay,
        wrong=st.sampled_from((False,) * 9 + (True,)),
    )
    def deliver(
        self,
        number: int,
        name: str,
        who: str,
        key: str | None,
        data: bytes | None,
        delay: int,
        wrong: bool,
    ) -> None:
        if found := self.some(number, self.addresses):
            execution_id, details = found
            signal = Signal(
                execution_id=execution_id,
                waitpoint_id=details.waitpoint_id,
                token="k1:" + "0" * 64 if wrong else details.token,
                signal_name=name,
                source_type="user",
                source_identity=who,
                payload=data,
                idempotency_key=key,
                dedup_ttl_ms=1_000,
                resume_delay_ms=delay,
            )
            self.do(lambda seat: seat.engine.deliver_signal(signal))

    @rule(number=pick, name=signal_name, suffix=st.sampled_from(("1", "2")))
    def approve(self, number: int, name: str, suffix: str) -> None:
        if found := self.some(number, self.addresses):
            execution_id, details = found
            self.do(
                lambda seat: seat.engine.deliver_approval_signal(
                    execution_id=execution_id,
                    waitpoint_id=details.waitpoint_id,
                    signal_name=name,
                    idempotency_suffix=suffix,
                    comment=b"1",
                )
            )

    @rule(number=pick, delay=resume_delay)
    def resume(self, number: int, delay: int) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.resume_execution(
                execution_id=execution_id, resume_delay_ms=delay
            )
        )

    @rule(number=pick)
    def expire_suspension(self, number: int) -> None:
        execution_id = self.execution(number)
        self.do(lambda seat: seat.engine.expire_suspension(execution_id=execution_id))

    @rule(number=pick)
    def close_waitpoint(self, number: int) -> None:
        if found := self.some(number, self.addresses):
            execution_id, details = found
            self.do(
                lambda seat: seat.engine.close_waitpoint(
                    execution_id=execution_id, waitpoint_id=details.waitpoint_id
                )
            )


class WholeWaitingHistories(WaitingHistories, WholeHistories):
    """The same, and what runs in transactions of its own."""

    rotations = 0

    @rule(grace=st.sampled_from((0, 800, 5_000)))
    def rotate_key(self, grace: int) -> None:
        self.rotations += 1
        kid, secret = f"r{self.rotations % 3}", f"{self.rotations:064x}"
        self.do(
            lambda seat: seat.engine.rotate_waitpoint_hmac_secret_all(
                new_kid=kid, new_secret_hex=secret, grace_ms=grace
            )
        )

    @rule(number=pick, which=pick, name=signal_name)
    def deliver_many(self, number: int, which: int, name: str) -> None:
        chosen = [self.some(each, self.addresses) for each in (number, which, number)]
        signals = [
            Signal(
                execution_id=found[0],
                waitpoint_id=found[1].waitpoint_id,
                token=found[1].token,
                signal_name=name,
                source_identity=str(at),
                payload=b"1",
            )
            for at, found in enumerate(chosen)
            if found is not None
        ]
        if signals:
            self.do(lambda seat: seat.engine.deliver_signals(signals))

    @rule(number=pick, limit=st.integers(1, 3))
    def look_at_waits(self, number: int, limit: int) -> None:
        """Every reading operation answers alike too."""
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.list_pending_waitpoints(execution_id=execution_id, limit=limit)
        )
        self.do(lambda seat: seat.engine.list_suspended(limit=limit))
        self.do(lambda seat: seat.engine.list_suspensions(execution_id=execution_id))
        self.do(lambda seat: seat.engine.explain(execution_id=execution_id))
        self.do(lambda seat: seat.engine.list_waitpoint_hmac_kids())
        self.do(lambda seat: seat.engine.next_due())
        if held := self.some(number, self.held):
            self.do(lambda seat: seat.engine.resume_info(seat.handle(held)))
        if found := self.some(number, self.addresses):
            owner, details = found
            self.do(
                lambda seat: seat.engine.read_waitpoint_token(
                    execution_id=owner, waitpoint_id=details.waitpoint_id
                )
            )


# --- what is true of every store at every moment -----------------------------------------------


def check_waits(dump: dict[str, list[Any]]) -> None:
    """Suspended if and only if one episode is open; open waitpoints only where somebody waits."""
    executions = {each.execution_id: each for each in dump["executions"]}
    episodes = {each.suspension_id: each for each in dump["ff_suspension"]}
    waitpoints = {each.waitpoint_id: each for each in dump["ff_waitpoint"]}
    opened = {e.execution_id: e.suspension_id for e in episodes.values() if e.is_open}
    assert len(opened) == sum(e.is_open for e in episodes.values()), "two open episodes"
    for execution_id, execution in executions.items():
        is_suspended = execution.state.lifecycle_phase is LifecyclePhase.SUSPENDED
        assert (execution.suspension_id is not None) == is_suspended, execution
        assert opened.get(execution_id) == execution.suspension_id, execution
    for waitpoint in waitpoints.values():
        _check_waitpoint(waitpoint, executions[waitpoint.execution_id], episodes)
    _check_signals(dump, waitpoints)


def _check_waitpoint(waitpoint: Any, execution: Any, episodes: dict[str, Any]) -> None:
    if waitpoint.state is WaitpointState.CLOSED:
        assert waitpoint.closed_at is not None
        assert waitpoint.due_at is None
        return
    assert not execution.is_terminal, f"{waitpoint} outlives its execution"
    if waitpoint.state is WaitpointState.PENDING:
        assert waitpoint.suspension_id is None
        assert waitpoint.due_at == waitpoint.expires_at
    else:
        assert episodes[waitpoint.suspension_id].is_open, waitpoint


def _check_signals(dump: dict[str, list[Any]], waitpoints: dict[str, Any]) -> None:
    counts = Counter(each.waitpoint_id for each in dump["ff_signal"])
    for waitpoint_id, waitpoint in waitpoints.items():
        assert waitpoint.signal_count == counts[waitpoint_id], waitpoint
    ended = Counter(
        waitpoints[each.waitpoint_id].suspension_id
        for each in dump["ff_signal"]
        if each.effect is SignalEffect.RESUMED
    )
    assert all(count == 1 for count in ended.values()), "two signals resumed one wait"
    ids = [each.signal_id for each in dump["ff_signal"]]
    assert len(ids) == len(set(ids))
