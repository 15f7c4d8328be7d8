"""What budgets, quotas and lanes add to random histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from flowfabric.api.budgets import Usage
from flowfabric.api.page import encode_cursor
from flowfabric.engine.unit.commands.due import WakeDue
from flowfabric.model.ask import LimitKind
from flowfabric.model.budget import EnforcementMode, HardAction, Reserved, SoftAction
from flowfabric.model.handle import Handle
from flowfabric.model.results import Created
from tests.property.histories import LANES, Histories, WholeHistories, pick
from tests.property.seat import Seat
from tests.support.runner import StepRunner

BEHIND_B0 = encode_cursor("list_budgets", ["b0"])

BUDGETS = ("b0", "b1", "b2")
QUOTAS = ("q0", "q1")
DIMENSIONS = ("cents", "tokens")
DEDUP_MS = 2_500
HOLD_MS = 1_500

budget_name = st.sampled_from(("b0",) * 8 + BUDGETS[1:])
quota_name = st.sampled_from(("q0", "q0", "q0", "q1"))
quota_key = st.sampled_from(("", "", "k1", "k2"))
amount = st.sampled_from((0, 1, 1, 2, 3))
limit = st.sampled_from((0, 2, 3, 5))
dedup_key = st.sampled_from((None, None, "once", "twice"))
both = st.tuples(amount, amount)
both_limits = st.tuples(limit, limit)
hard_action = st.sampled_from(HardAction)
soft_action = st.sampled_from(SoftAction)
mode = st.sampled_from((EnforcementMode.STRICT,) * 4 + (EnforcementMode.ADVISORY,))
scope = st.sampled_from((*("free",) * 6, "lane", "namespace", "execution"))
interval = st.sampled_from((0, 0, 1_000, 3_000))
attached = st.sampled_from((*(("b0",),) * 5, ("b0", "b1"), ("b2",), ()))
window = st.sampled_from((1, 2))
starts = st.sampled_from((0, 0, 1, 2))
places = st.sampled_from((0, 1, 1, 2))
jitter_ms = st.sampled_from((0, 0, 300))


def amounts_of(pair: tuple[int, int]) -> dict[str, int]:
    return {name: value for name, value in zip(DIMENSIONS, pair, strict=True) if value}


class LimitedHistories(Histories):
    """Everything that spends, holds, admits and denies, beside what executions go through."""

    def __init__(self, runner: StepRunner, seats: Sequence[Seat]) -> None:
        super().__init__(runner, seats)
        self.reserved: list[tuple[Handle, str, str]] = []  # every hold ever, with its budget

    @initialize(
        hard=both_limits,
        action=hard_action,
        most=places,
        rate=starts,
        keys=st.lists(quota_key, max_size=4),
    )
    def furnish(
        self, hard: tuple[int, int], action: HardAction, most: int, rate: int, keys: list[str]
    ) -> None:
        """One budget and one quota in force, and some work under both."""
        self.do(
            lambda seat: seat.engine.create_budget(
                budget_id="b0",
                dimensions=DIMENSIONS,
                hard_limits=hard,
                soft_limits=(0, 1),
                on_hard_limit=action,
            )
        )
        self.do(
            lambda seat: seat.engine.create_quota_policy(
                quota_policy_id="q0",
                window_seconds=1,
                max_requests_per_window=rate,
                max_concurrent=most,
            )
        )
        for key in keys:
            self.create_bounded("blue", ("b0",), "q0" if key != "k2" else None, key, None)
        self.act_at_once(1)

    @rule(
        lane=st.sampled_from(LANES),
        budgets=attached,
        quota=st.sampled_from(("q0", "q0", "q0", "q1", None, None)),
        key=quota_key,
        retries=st.sampled_from((None, 1)),
    )
    def create_bounded(
        self,
        lane: str,
        budgets: tuple[str, ...],
        quota: str | None,
        key: str,
        retries: int | None,
    ) -> None:
        policy: dict[str, Any] = {"max_replay_count": 2}
        if retries is not None:
            pause = {"type": "fixed", "delay_ms": 300}
            policy["retry_policy"] = {"max_retries": retries, "backoff": pause}
        fields: dict[str, Any] = {
            "execution_kind": "brew",
            "lane_id": lane,
            "budget_ids": budgets,
            "quota_policy_id": quota,
            "concurrency_key": key or None,
            "policy": policy,
        }
        created = self.do(lambda seat: seat.engine.create_execution(**fields))
        if isinstance(created, Created):
            self.executions.append(created.execution_id)

    # --- budgets -------------------------------------------------------------------------------

    @rule(
        budget=budget_name,
        hard=both_limits,
        soft=both_limits,
        action=hard_action,
        soft_does=soft_action,
        strictness=mode,
        kind=scope,
        every=interval,
        number=pick,
    )
    def create_budget(
        self,
        budget: str,
        hard: tuple[int, int],
        soft: tuple[int, int],
        action: HardAction,
        soft_does: SoftAction,
        strictness: EnforcementMode,
        kind: str,
        every: int,
        number: int,
    ) -> None:
        targets = {"lane": "blue", "namespace": "default", "execution": self.execution(number)}
        fields: dict[str, Any] = {
            "budget_id": budget,
            "dimensions": DIMENSIONS,
            "hard_limits": hard,
            "soft_limits": soft,
            "on_hard_limit": action,
            "on_soft_limit": soft_does,
            "enforcement_mode": strictness,
            "scope_type": kind,
            "scope_id": targets.get(kind, ""),
            "reset_interval_ms": every,
        }
        self.do(lambda seat: seat.engine.create_budget(**fields))

    @rule(
        budget=budget_name,
        hard=st.one_of(st.none(), both_limits),
        action=st.one_of(st.none(), hard_action),
        soft_does=st.one_of(st.none(), soft_action),
        strictness=st.one_of(st.none(), mode),
        every=st.one_of(st.none(), interval),
    )
    def update_budget(
        self,
        budget: str,
        hard: tuple[int, int] | None,
        action: HardAction | None,
        soft_does: SoftAction | None,
        strictness: EnforcementMode | None,
        every: int | None,
    ) -> None:
        fields: dict[str, Any] = {
            "budget_id": budget,
            "hard_limits": None if hard is None else dict(zip(DIMENSIONS, hard, strict=True)),
            "on_hard_limit": action,
            "on_soft_limit": soft_does,
            "enforcement_mode": strictness,
            "reset_interval_ms": every,
        }
        self.do(lambda seat: seat.engine.update_budget(**fields))

    @rule(budget=budget_name)
    def reset_budget(self, budget: str) -> None:
        self.do(lambda seat: seat.engine.reset_budget(budget_id=budget))

    @rule(number=pick, budget=budget_name, spent=both, key=dedup_key)
    def report(self, number: int, budget: str, spent: tuple[int, int], key: str | None) -> None:
        """By the owner of a lease, if anybody ever had one."""
        if held := self.some(number, self.held):
            usage = Usage(custom=amounts_of(spent), dedup_key=key)
            self.do(
                lambda seat: seat.engine.report_usage(
                    seat.handle(held), budget_id=budget, usage=usage, dedup_ttl_ms=DEDUP_MS
                )
            )

    @rule(budget=budget_name, spent=both, key=dedup_key)
    def report_from_outside(self, budget: str, spent: tuple[int, int], key: str | None) -> None:
        self.do(
            lambda seat: seat.engine.report_usage_admin(
                budget_id=budget,
                dimensions=DIMENSIONS,
                deltas=spent,
                dedup_key=key,
                dedup_ttl_ms=DEDUP_MS,
            )
        )

    @rule(number=pick, budget=budget_name, spent=both, key=dedup_key)
    def spend(self, number: int, budget: str, spent: tuple[int, int], key: str | None) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.record_spend(
                budget_id=budget,
                execution_id=execution_id,
                deltas=amounts_of(spent),
                idempotency_key=key,
                dedup_ttl_ms=DEDUP_MS,
            )
        )

    @rule(number=pick, budget=budget_name)
    def give_back(self, number: int, budget: str) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.release_budget(budget_id=budget, execution_id=execution_id)
        )

    @rule(number=pick, budget=budget_name, wanted=both, name=st.sampled_from("xy"))
    def reserve(self, number: int, budget: str, wanted: tuple[int, int], name: str) -> None:
        if held := self.some(number, self.held):
            answer = self.do(
                lambda seat: seat.engine.reserve_budget(
                    seat.handle(held),
                    budget_id=budget,
                    amounts=amounts_of(wanted),
                    hold_id=name,
                    ttl_ms=HOLD_MS,
                )
            )
            if isinstance(answer, Reserved):
                self.reserved.append((held, budget, name))

    @rule(number=pick, spent=both)
    def settle(self, number: int, spent: tuple[int, int]) -> None:
        if found := self.some(number, self.reserved):
            held, budget, name = found
            self.do(
                lambda seat: seat.engine.settle_budget(
                    seat.handle(held), budget_id=budget, hold_id=name, amounts=amounts_of(spent)
                )
            )

    @rule(number=pick)
    def release_hold(self, number: int) -> None:
        if found := self.some(number, self.reserved):
            held, budget, name = found
            self.do(
                lambda seat: seat.engine.release_hold(
                    seat.handle(held), budget_id=budget, hold_id=name
                )
            )

    @rule(number=pick, budget=budget_name, wanted=both)
    def ask(self, number: int, budget: str, wanted: tuple[int, int]) -> None:
        if held := self.some(number, self.held):
            amounts = amounts_of(wanted)
            self.do(
                lambda seat: seat.engine.ask_budget(
                    seat.handle(held), budget_id=budget, amounts=amounts
                )
            )

    @rule(
        number=pick,
        budget=budget_name,
        dimension=st.sampled_from(DIMENSIONS),
        kind=st.sampled_from(LimitKind),
        said=st.sampled_from(({"once": True}, {"once": True}, {"raise_by": 2}, None)),
        is_alone=st.booleans(),
    )
    def answer(
        self,
        number: int,
        budget: str,
        dimension: str,
        kind: LimitKind,
        said: dict[str, Any] | None,
        is_alone: bool,
    ) -> None:
        fields: dict[str, Any] = {"approve": said is not None, **(said or {})}
        if is_alone and "raise_by" not in fields:
            fields["execution_id"] = self.execution(number)
        self.do(
            lambda seat: seat.engine.answer_budget_ask(
                budget_id=budget, dimension=dimension, limit_kind=kind, **fields
            )
        )

    # --- quotas --------------------------------------------------------------------------------

    @rule(quota=quota_name, seconds=window, rate=starts, most=places, jitter=jitter_ms)
    def create_quota(self, quota: str, seconds: int, rate: int, most: int, jitter: int) -> None:
        self.do(
            lambda seat: seat.engine.create_quota_policy(
                quota_policy_id=quota,
                window_seconds=seconds,
                max_requests_per_window=rate,
                max_concurrent=most,
                jitter_ms=jitter,
            )
        )

    @rule(
        quota=quota_name,
        seconds=st.one_of(st.none(), window),
        rate=st.one_of(st.none(), starts),
        most=st.one_of(st.none(), places),
        jitter=st.one_of(st.none(), jitter_ms),
    )
    def update_quota(
        self,
        quota: str,
        seconds: int | None,
        rate: int | None,
        most: int | None,
        jitter: int | None,
    ) -> None:
        self.do(
            lambda seat: seat.engine.update_quota_policy(
                quota_policy_id=quota,
                window_seconds=seconds,
                max_requests_per_window=rate,
                max_concurrent=most,
                jitter_ms=jitter,
            )
        )

    @rule(number=pick, quota=quota_name, key=quota_key, ttl=st.sampled_from((None, 1, 700)))
    def check_admission(self, number: int, quota: str, key: str, ttl: int | None) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.check_admission(
                quota_policy_id=quota,
                execution_id=execution_id,
                dimension=key,
                reservation_ms=ttl,
            )
        )

    @rule(number=pick, quota=quota_name, key=quota_key)
    def release_admission(self, number: int, quota: str, key: str) -> None:
        execution_id = self.execution(number)
        self.do(
            lambda seat: seat.engine.release_admission(
                quota_policy_id=quota, execution_id=execution_id, dimension=key
            )
        )

    @rule(most=st.sampled_from((1, 2, 100)))
    def move_due(self, most: int) -> None:
        """As a command, so that it may share a batch with others."""
        self.do(lambda seat: seat.engine.execute(WakeDue(limit=most)))


class WholeLimitedHistories(LimitedHistories, WholeHistories):
    """The same, and what runs in transactions of its own."""

    @rule(
        lane=st.sampled_from(LANES),
        weight=st.sampled_from((None, 1, 3)),
        aging=st.sampled_from((None, 0, 1, 100)),
        budgets=st.sampled_from((None, (), ("b0",), ("b1",))),
        quota=st.sampled_from((None, "", "q0", "q1")),
    )
    def configure_lane(
        self,
        lane: str,
        weight: int | None,
        aging: int | None,
        budgets: tuple[str, ...] | None,
        quota: str | None,
    ) -> None:
        self.do(
            lambda seat: seat.engine.configure_lane(
                lane_id=lane,
                weight=weight,
                aging_ms=aging,
                budget_ids=budgets,
                quota_policy_id=quota,
            )
        )

    @rule(number=pick, budget=budget_name, quota=quota_name)
    def look_at_limits(self, number: int, budget: str, quota: str) -> None:
        execution_id = self.execution(number)
        self.do(lambda seat: seat.engine.explain(execution_id=execution_id))
        self.do(lambda seat: seat.engine.get_budget_status(budget_id=budget))
        self.do(lambda seat: seat.engine.read_budget_usage_and_limits(budget_id=budget))
        self.do(lambda seat: seat.engine.list_budgets(cursor=BEHIND_B0, limit=1))
        self.do(lambda seat: seat.engine.list_budget_asks(limit=2))
        self.do(lambda seat: seat.engine.list_budget_asks(execution_id=execution_id))
        self.do(lambda seat: seat.engine.get_quota_status(quota_policy_id=quota))
        self.do(lambda seat: seat.engine.list_quota_policies(limit=2))
        self.do(lambda seat: seat.engine.next_due())
