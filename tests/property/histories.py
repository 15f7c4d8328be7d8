"""Random histories: everything clients, workers, operators and time can do to a few executions.

Each step goes to every seat; a subclass says what must be equal. Choices are plain numbers taken
modulo what there is, so that a failing history shrinks well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from flowfabric.model.attempt import FailureClass
from flowfabric.model.execution import Execution, IdempotencyRecord
from flowfabric.model.handle import Handle
from flowfabric.model.quota import AdmissionRow
from flowfabric.model.results import Claimed, Created
from flowfabric.model.route import LaneState
from flowfabric.model.state import ADMISSION_BLOCK_REASONS, EligibilityState
from flowfabric.model.worker import Worker
from tests.property.seat import Call, Refusal, Seat
from tests.support.runner import StepRunner

T = TypeVar("T")

NEVER_CREATED = "{fp:138}:01890000-0000-7000-8000-000000000001"
LANES = ("blue", "green")
CAPABILITIES = ((), ("gpu",), ("gpu", "eu"))
BLOCKS = tuple(sorted(reason.value for reason in ADMISSION_BLOCK_REASONS))
OFFER_LANES = (("blue",), ("green",), ("green", "blue"))
QUOTA_WINDOWS_MS = (1_000, 2_000)

# How far back a choice goes: mostly to the newest, so that histories are about something.
pick = st.sampled_from((0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 4, 6, 9, 15))
worker_number = st.sampled_from((1, 1, 1, 2, 3))
duration = st.sampled_from((0, 1, 400, 1_500, 4_000))
perhaps_duration = st.one_of(st.none(), st.sampled_from((1, 700, 2_500)))
lease_ttl = st.sampled_from((1_000, 2_000, 3_000))


class Histories(RuleBasedStateMachine):
    """What can happen. The first seat is the oracle: choices are made by what it answers."""

    horizon_ms = 10**12  # how far time may jump

    def __init__(self, runner: StepRunner, seats: Sequence[Seat]) -> None:
        super().__init__()
        self.runner = runner
        self.seats = seats
        self.executions: list[str] = []
        self.held: list[Handle] = []  # every handle ever given out, the useless ones too
        for seat in seats:
            runner.run(seat.open())

    def teardown(self) -> None:
        for seat in self.seats:
            self.runner.run(seat.close())

    # --- one step ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        return self.seats[0].clock.now_ms()

    def do(self, call: Call) -> Any:
        """The oracle's answer; every other seat must give the same."""
        expected, *others = [self.runner.run(seat.ask(call)) for seat in self.seats]
        for seat, answer in zip(self.seats[1:], others, strict=True):
            family = seat.engine.store.family
            assert answer == expected, f"{family} answered {answer!r}, memory {expected!r}"
        self.after_step()
        return expected

    def after_step(self) -> None:
        """What is compared after each step."""

    def some(self, number: int, among: Sequence[T]) -> T | None:
        return among[-1 - number % len(among)] if among else None

    def execution(self, number: int) -> str:
        """Mostly a recent one; now and then one that never was."""
        return self.some(number, [NEVER_CREATED, *self.executions]) or NEVER_CREATED

    def keep(self, claimed: Any) -> None:
        for each in claimed if isinstance(claimed, list) else [claimed]:
            if isinstance(each, Claimed):
                self.held.append(each.handle)

    # --- clients -------------------------------------------------------------------------------

    @initialize(number=st.integers(0, 4), apart=st.sampled_from((0, 1, 10)))
    def begin(self, number: int, apart: int) -> None:
        """Some work that differs in nothing but its age: most histories are about rivals."""
        for _ in range(number):
            created = self.do(
                lambda seat: seat.engine.create_execution(execution_kind="brew", lane_id="blue")
            )
            self.executions.append(created.execution_id)
            self.move_clocks(self.now + apart)

    @rule(
        lane=st.sampled_from(LANES),
        kind=st.sampled_from(("brew", "brew", "brew", "bake")),
        key=st.one_of(st.none(), st.integers(0, 2)),
        content=st.integers(0, 3).map(lambda number: number // 3),
        priority=st.sampled_from((None, None, None, 5, 9_001)),
        delay=st.one_of(st.none(), st.none(), duration),
        deadline=perhaps_duration,
        timeout=perhaps_duration,
        retries=st.one_of(st.none(), st.integers(0, 2)),
        backoff=st.sampled_from(("fixed", "exponential")),
        needs=st.sampled_from(((), (), (), *CAPABILITIES)),
        reclaims=st.one_of(st.none(), st.integers(0, 1)),
    )
    def create(
        self,
        lane: str,
        kind: str,
        key: int | None,
        content: int,
        priority: int | None,
        delay: int | None,
        deadline: int | None,
        timeout: int | None,
        retries: int | None,
        backoff: str,
        needs: tuple[str, ...],
        reclaims: int | None,
    ) -> None:
        policy: dict[str, Any] = {
            "routing_requirements": {"required_capabilities": needs},
            "timeout_policy": {"attempt_timeout_ms": timeout, "execution_deadline_ms": deadline},
            "dedup_window_ms": 3_000,
            "max_replay_count": 2,
            "max_reclaim_count": reclaims,
        }
        if retries is not None:
            pause = {"type": "fixed", "delay_ms": 300}
            if backoff == "exponential":
                pause = {"type": "exponential", "initial_delay_ms": 200, "jitter": True}
            policy["retry_policy"] = {"max_retries": retries, "backoff": pause}
        fields: dict[str, Any] = {
            "execution_kind": kind,
            "lane_id": lane,
            "input_payload": b"content %d" % content,
            "payload_encoding": "text" if content else None,
            "creator_identity": "somebody",
            "priority": priority,
            "idempotency_key": None if key is None else f"key-{key}",
            "tags": {"content.number": str(content)} if content else {},
            "policy": policy,
            "delay_until": None if delay is None else self.now + delay,
        }
        created = self.do(lambda seat: seat.engine.create_execution(**fields))
        if isinstance(created, Created):
            self.executions.append(created.execution_id)

    # --- workers -------------------------------------------------------------------------------

    @rule(
        worker=worker_number,
        lanes=st.sampled_from(OFFER_LANES),
        limit=st.integers(1, 4),
        ttl=lease_ttl,
        capabilities=st.sampled_from(CAPABILITIES),
        kinds=st.sampled_from((None, None, ("brew",))),
    )
    def claim(
        self,
        worker: int,
        lanes: tuple[str, ...],
        limit: int,
        ttl: int,
        capabilities: tuple[str, ...],
        kinds: tuple[str, ...] | None,
    ) -> None:
        self.keep(
            self.do(
                lambda seat: seat.engine.claim(
                    lanes=lanes,
                    worker_id=f"w{worker}",
                    worker_instance_id=f"w{worker}-1",
                    capabilities=capabilities,
                    kinds=kinds,
                    limit=limit,
                    lease_ttl_ms=ttl,
                )
            )
        )

    @rule(numbers=st.lists(pick, min_size=1, max_size=3))
    def renew(self, numbers: list[int]) -> None:
        if self.held:
            handles = [self.held[-1 - number % len(self.held)] for number in numbers]
            self.do(lambda seat: seat.engine.renew_many([seat.handle(each) for each in handles]))

    @rule(number=pick, percent=st.one_of(st.none(), st.integers(0, 100)), said=st.booleans())
    def progress(self, number: int, percent: int | None, said: bool) -> None:
        if held := self.some(number, self.held):
            message = "half-way ✓" if said else None
            self.do(
                lambda seat: seat.engine.progress(
                    seat.handle(held), percent=percent, message=message
                )
            )

    @rule(number=pick, result=st.sampled_from((None, b"", b"\x00\xff done")))
    def complete(self, number: int, result: bytes | None) -> None:
        if held := self.some(number, self.held):
            self.do(lambda seat: seat.engine.complete(seat.handle(held), result=result))

    @rule(
        number=pick,
        failure=st.sampled_from(FailureClass),
        after=st.one_of(st.none(), st.none(), duration),
    )
    def fail(self, number: int, failure: FailureClass, after: int | None) -> None:
        if held := self.some(number, self.held):
            self.do(
                lambda seat: seat.engine.fail(
                    seat.handle(held),
                    reason="it broke",
                    failure_class=failure,
                    retry_after_ms=after,
                )
            )

    @rule(number=pick, by=duration)
    def delay(self, number: int, by: int) -> None:
        until = self.now + by
        if held := self.some(number, self.held):
            self.do(lambda seat: seat.engine.delay(seat.handle(held), delay_until=until))

    @rule(number=pick)
    def give_up(self, number: int) -> None:
        if held := self.some(number, self.held):
            self.do(lambda seat: seat.engine.cancel(seat.handle(held), reason="pointless"))

    # --- grants and reclaims -------------------------------------------------------------------

    @rule(
        number=pick,
        worker=worker_number,
        ttl=st.sampled_from((1, 900)),
        capabilities=st.sampled_from(CAPABILITIES),
        reclaim=st.booleans(),
    )
    def grant(
        self,
        number: int,
        worker: int,
        ttl: int,
        capabilities: tuple[str, ...],
        reclaim: bool,
    ) -> None:
        fields: dict[str, Any] = {
            "execution_id": self.execution(number),
            "worker_id": f"w{worker}",
            "worker_instance_id": f"w{worker}-1",
            "worker_capabilities": capabilities,
            "grant_ttl_ms": ttl,
        }
        if reclaim:
            self.do(lambda seat: seat.engine.issue_reclaim_grant(**fields))
        else:
            self.do(lambda seat: seat.engine.issue_claim_grant(**fields))

    @rule(number=pick, worker=worker_number, ttl=lease_ttl, how=st.integers(0, 2))
    def redeem(self, number: int, worker: int, ttl: int, how: int) -> None:
        fields: dict[str, Any] = {
            "execution_id": self.execution(number),
            "worker_id": f"w{worker}",
            "worker_instance_id": f"w{worker}-2",
            "lease_ttl_ms": ttl,
        }
        name = ("claim_execution", "claim_resumed_execution", "reclaim_execution")[how]
        self.keep(self.do(lambda seat: getattr(seat.engine, name)(**fields)))

    @rule(number=pick, lane=st.sampled_from(LANES))
    def take_by_name(self, number: int, lane: str) -> None:
        execution_id = self.execution(number)
        self.keep(
            self.do(
                lambda seat: seat.engine.issue_grant_and_claim(
                    execution_id=execution_id, lane_id=lane, lease_duration_ms=1_000
                )
            )
        )

    # --- operators -----------------------------------------------------------------------------

    @rule(number=pick)
    def cancel(self, number: int) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.cancel_execution(
                execution_id=execution_id, reason="not needed", source="operator_override"
            )
        )

    @rule(number=pick)
    def revoke(self, number: int) -> None:
        execution_id = self.execution(number)
        self.do(lambda seat: seat.engine.revoke_lease(execution_id=execution_id, reason="suspect"))

    @rule(number=pick, held=st.booleans())
    def hold_or_release(self, number: int, held: bool) -> None:
        execution_id = self.execution(number)
        if held:
            self.do(lambda seat: seat.engine.hold_execution(execution_id=execution_id, reason="x"))
        else:
            self.do(lambda seat: seat.engine.release_execution(execution_id=execution_id))

    @rule(number=pick, reason=st.sampled_from(BLOCKS))
    def block(self, number: int, reason: str) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.block_execution_for_admission(
                execution_id=execution_id, reason=reason, reason_detail="because"
            )
        )

    @rule(number=pick, expected=st.one_of(st.none(), st.sampled_from(BLOCKS)))
    def unblock(self, number: int, expected: str | None) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.unblock_execution(
                execution_id=execution_id, expected_reason=expected
            )
        )

    @rule(number=pick, priority=st.sampled_from((0, 5, 7, 9_001)))
    def change_priority(self, number: int, priority: int) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.change_priority(
                execution_id=execution_id, new_priority=priority
            )
        )

    @rule(number=pick, deadline=perhaps_duration)
    def replay(self, number: int, deadline: int | None) -> None:
        execution_id = self.execution(number)
        at = None if deadline is None else self.now + deadline
        self.do(
            lambda seat: seat.engine.replay_execution(
                execution_id=execution_id, requested_by="ops", reason="again", deadline_at=at
            )
        )

    @rule(number=pick, key=st.sampled_from(("team.name", "team.size")), value=st.integers(0, 1))
    def set_tag(self, number: int, key: str, value: int) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.set_execution_tag(
                execution_id=execution_id, key=key, value=f"value {value}"
            )
        )

    # --- time ----------------------------------------------------------------------------------

    def move_clocks(self, now: int) -> None:
        for seat in self.seats:
            seat.clock.set(now)

    @rule(by=st.sampled_from((1, 100, 1_000, 5_000, 30_000)))
    def pass_time(self, by: int) -> None:
        self.move_clocks(self.now + by)

    @rule(number=pick, beside=st.integers(-1, 1), then=st.integers(0, 2))
    def jump_beside_deadline(self, number: int, beside: int, then: int) -> None:
        self.jump_to_deadline(number, beside, then)

    def jump_to_deadline(self, number: int, beside: int, then: int) -> None:
        """Equalities are what random numbers never hit: go where something changes, or beside."""
        dump = self.runner.run(self.seats[0].engine.store.dump())
        edges = {edge + beside for rows in dump.values() for row in rows for edge in edges_of(row)}
        last = self.now + self.horizon_ms
        ahead = sorted((edge for edge in edges if self.now < edge <= last), reverse=True)
        if chosen := self.some(number, ahead):
            self.move_clocks(chosen)
            self.act_at_once(then)

    def act_at_once(self, how: int) -> None:
        """Somebody is there at that very instant."""
        if how == 1:
            offer: dict[str, Any] = {"lanes": LANES, "capabilities": CAPABILITIES[-1], "limit": 9}
            fields: dict[str, Any] = {"worker_id": "w0", "worker_instance_id": "w0-1", **offer}
            self.keep(self.do(lambda seat: seat.engine.claim(**fields)))

    @rule(number=pick, hook=st.integers(0, 3))
    def hook_of_a_loop(self, number: int, hook: int) -> None:
        execution_id = self.execution(number)
        match hook:
            case 0:
                self.do(
                    lambda seat: seat.engine.mark_lease_expired_if_due(execution_id=execution_id)
                )
            case 1:
                self.do(lambda seat: seat.engine.promote_delayed(execution_id=execution_id))
            case _:
                phase = "attempt_timeout" if hook == 2 else "execution_deadline"
                self.do(
                    lambda seat: seat.engine.expire_execution(
                        execution_id=execution_id, phase=phase
                    )
                )


class WholeHistories(Histories):
    """The same, and what runs in transactions of its own: loops, lanes, registry, bulk, reads."""

    @rule()
    def tick(self) -> None:
        self.do(lambda seat: seat.engine.tick())

    @rule(number=pick)
    def tick_at_deadline(self, number: int) -> None:
        self.jump_to_deadline(number, beside=0, then=2)

    def act_at_once(self, how: int) -> None:
        super().act_at_once(how)
        if how == 2:
            self.do(lambda seat: seat.engine.tick())

    @rule(limit=st.integers(1, 2))
    def small_tick(self, limit: int) -> None:
        self.do(lambda seat: seat.engine.move_due(limit=limit))

    @rule(lane=st.sampled_from(LANES), state=st.sampled_from(LaneState))
    def switch_lane(self, lane: str, state: LaneState) -> None:
        self.do(
            lambda seat: seat.engine.set_lane_state(lane_id=lane, lane_state=state, reason="ops")
        )
        if state is not LaneState.ACTIVE:  # shut lanes end histories: open most of them again
            self.do(lambda seat: seat.engine.scan_eligible_executions(lane_id=lane))

    @rule(lane=st.sampled_from(LANES))
    def open_lane(self, lane: str) -> None:
        self.do(lambda seat: seat.engine.resume_lane(lane_id=lane))

    @rule(keys=st.lists(st.integers(0, 4), min_size=1, max_size=4), lane=st.sampled_from(LANES))
    def create_many(self, keys: list[int], lane: str) -> None:
        requests: list[Any] = [
            {
                "execution_kind": "bulk",
                "lane_id": lane,
                "priority": number,
                "idempotency_key": f"bulk-{number}",
                "policy": {"dedup_window_ms": 2_000},
            }
            for number in keys
        ]
        answers = self.do(lambda seat: seat.engine.create_executions(requests))
        if not isinstance(answers, Refusal):
            self.executions += [each.execution_id for each in answers if isinstance(each, Created)]

    @rule(worker=worker_number, lane=st.sampled_from(LANES))
    def choose_for_worker(self, worker: int, lane: str) -> None:
        self.do(
            lambda seat: seat.engine.claim_for_worker(
                lane_id=lane, worker_id=f"w{worker}", worker_instance_id=f"w{worker}-1"
            )
        )

    @rule(worker=worker_number, seconds=st.integers(1, 4))
    def register(self, worker: int, seconds: int) -> None:
        self.do(
            lambda seat: seat.engine.register_worker(
                worker_id=f"w{worker}",
                worker_instance_id=f"w{worker}-1",
                lanes=LANES,
                capabilities=CAPABILITIES[worker - 1],
                liveness_ttl_ms=1_000 * seconds,
            )
        )

    @rule(worker=worker_number)
    def heartbeat(self, worker: int) -> None:
        instance = f"w{worker}-1"
        self.do(lambda seat: seat.engine.heartbeat_worker(worker_instance_id=instance))

    @rule(worker=worker_number, revoke=st.booleans())
    def mark_dead(self, worker: int, revoke: bool) -> None:
        instance = f"w{worker}-1"
        self.do(
            lambda seat: seat.engine.mark_worker_dead(
                worker_instance_id=instance, reason="silent", revoke_leases=revoke
            )
        )

    @rule(number=pick, lane=st.sampled_from(LANES), limit=st.integers(1, 3))
    def look(self, number: int, lane: str, limit: int) -> None:
        """Every reading operation answers alike too."""
        execution_id = self.execution(number)
        self.do(lambda seat: seat.engine.describe_execution(execution_id=execution_id))
        self.do(lambda seat: seat.engine.explain(execution_id=execution_id))
        self.do(lambda seat: seat.engine.list_attempts(execution_id=execution_id))
        self.do(lambda seat: seat.engine.get_execution_result(execution_id=execution_id))
        self.do(lambda seat: seat.engine.list_executions(lane_id=lane, limit=limit))
        self.do(lambda seat: seat.engine.list_executions(tag=("content.number", "1")))
        self.do(lambda seat: seat.engine.scan_eligible_executions(lane_id=lane, limit=limit))
        self.do(lambda seat: seat.engine.list_expired_leases(limit=limit))
        self.do(lambda seat: seat.engine.count_executions())
        self.do(lambda seat: seat.engine.list_workers())
        self.do(lambda seat: seat.engine.list_lanes())
        self.do(lambda seat: seat.engine.next_due())


def edges_of(row: Any) -> Iterator[int]:
    """The instants at which a record means something else."""
    if isinstance(row, Execution):
        times = [row.deadline_at, row.attempt_due_at, row.lease_expires_at]
        times += [row.reclaim_at, row.purge_at, row.blocked_until]
        if row.state.eligibility_state is EligibilityState.NOT_ELIGIBLE_UNTIL_TIME:
            times.append(row.eligible_at)
        if row.grant is not None:
            times.append(row.grant.expires_at)
        yield from (when for when in times if when is not None)
    elif isinstance(row, IdempotencyRecord | Worker):
        yield row.expires_at
    elif (due := getattr(row, "due_at", None)) is not None:
        yield due
    if isinstance(row, AdmissionRow) and row.counted_at is not None:
        yield from (row.counted_at + window for window in QUOTA_WINDOWS_MS)
