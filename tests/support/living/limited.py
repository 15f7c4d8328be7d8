"""Work under limits: budgets with usage and holds, quotas with windows and slots, blocked work."""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.budgets import Usage
from flowfabric.api.waits import SuspendRequest, UsePending
from flowfabric.model.budget import AlreadyApplied, BudgetStatus, HardBreach, Ok, SoftBreach
from flowfabric.model.quota import Admitted, AlreadyAdmitted, ConcurrencyExceeded
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.model.suspension import Single
from tests.support.budgets import spend
from tests.support.lab import Lab
from tests.support.living.kind import HOUR_MS, SHORT_MS, Living, Notes, ended, handle, noted


class Limited(Living):
    """The base of kinds of limits: budgets named after the lane, and reports to them."""

    async def make_budget(self, lab: Lab, name: str, hard: int, soft: int = 0, **rest: Any) -> str:
        """A budget with a limit on tokens."""
        budget_id = f"{self.lane}-{name}"
        await lab.engine.create_budget(
            budget_id=budget_id,
            dimensions=("tokens",),
            hard_limits=(hard,),
            soft_limits=(soft,),
            **rest,
        )
        return budget_id

    async def report(self, lab: Lab, budget_id: str, tokens: int, key: str | None = None) -> Any:
        """Tokens used, said from outside."""
        return await lab.engine.report_usage_admin(
            budget_id=budget_id, dimensions=("tokens",), deltas=(tokens,), dedup_key=key
        )

    async def status(self, lab: Lab, budget_id: str) -> BudgetStatus:
        """The budget as people see it."""
        return await lab.engine.get_budget_status(budget_id=budget_id)

    async def blocked(self, lab: Lab, reason: BlockingReason, **fields: Any) -> str:
        """A new execution that a claim has found without room."""
        execution_id = await self.create(lab, **fields)
        assert await self.claims(lab, "w3") == []
        snapshot = await lab.describe(execution_id)
        assert snapshot.public_state is PublicState.RATE_LIMITED
        assert snapshot.blocking_reason is reason
        return execution_id


class Exhausted(Limited):
    """A budget that is used up blocks what it is attached to, until its limit is raised."""

    async def begin(self, lab: Lab) -> Notes:
        budget_id = await self.make_budget(lab, "tokens", hard=100, soft=80, actor="olga")
        running = await self.start(lab, budget_ids=(budget_id,))
        used = Usage(custom={"tokens": 100}, dedup_key="call-1")
        reply = await lab.engine.report_usage(running.handle, budget_id=budget_id, usage=used)
        assert reply == SoftBreach("tokens", 100, 80)
        assert await self.report(lab, budget_id, 1) == HardBreach("tokens", 100, 100)
        blocked = await self.blocked(
            lab, BlockingReason.WAITING_FOR_BUDGET, budget_ids=(budget_id,)
        )
        return {"budget": budget_id, "running": noted(running), "blocked": blocked}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        budget_id, owner = notes["budget"], handle(lab, notes["running"])
        status = await self.status(lab, budget_id)
        assert (status.usage, status.breach_count, status.soft_breach_count) == (
            {"tokens": 100},
            1,
            1,
        )
        used = Usage(custom={"tokens": 100}, dedup_key="call-1")
        repeated = await lab.engine.report_usage(owner, budget_id=budget_id, usage=used)
        assert repeated == SoftBreach("tokens", 100, 80)
        await lab.engine.complete(owner)
        await lab.engine.tick()
        assert await self.claims(lab) == []
        await lab.engine.update_budget(budget_id=budget_id, hard_limits={"tokens": 200})
        await self.finish(lab, notes["blocked"])
        assert (await self.status(lab, budget_id)).usage == {"tokens": 100}


class Spending(Limited):
    """An execution that has spent, in a flow, before and after a reset: it goes on spending."""

    async def begin(self, lab: Lab) -> Notes:
        budget_id = await self.make_budget(lab, "tokens", hard=100)
        flow_id = (await lab.engine.create_flow()).flow_id
        running = await self.start(lab, colocate_with=flow_id)
        await lab.engine.add_execution_to_flow(flow_id=flow_id, execution_id=running.execution_id)
        await spend(lab, running.execution_id, {"tokens": 5}, budget_id)
        await lab.engine.reset_budget(budget_id=budget_id)
        await spend(lab, running.execution_id, {"tokens": 2}, budget_id)
        return {"budget": budget_id, "flow": flow_id, "handle": noted(running)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        budget_id, owner = notes["budget"], handle(lab, notes["handle"])
        used = Usage(custom={"tokens": 3})
        await lab.engine.report_usage(owner, budget_id=budget_id, usage=used)
        for page in (
            await lab.engine.list_execution_spend(execution_id=owner.execution_id),
            await lab.engine.list_flow_spend(flow_id=notes["flow"]),
        ):
            assert [(each.budget_id, each.spent) for each in page.items] == [(budget_id, 10)]
        await lab.engine.complete(owner)


class Reserved(Limited):
    """Holds of a running attempt: one has lapsed unnoticed, one is settled; a spend comes back."""

    async def begin(self, lab: Lab) -> Notes:
        budget_id = await self.make_budget(lab, "tokens", hard=100)
        running = await self.start(lab, budget_ids=(budget_id,))
        for hold_id, tokens, ttl_ms in (("h1", 30, HOUR_MS), ("h2", 20, SHORT_MS)):
            await lab.engine.reserve_budget(
                running.handle,
                budget_id=budget_id,
                amounts={"tokens": tokens},
                hold_id=hold_id,
                ttl_ms=ttl_ms,
            )
        await lab.engine.record_spend(
            budget_id=budget_id,
            execution_id=running.execution_id,
            deltas={"tokens": 5},
            idempotency_key="spend-1",
        )
        return {"budget": budget_id, "id": running.execution_id, "handle": noted(running)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        budget_id, owner = notes["budget"], handle(lab, notes["handle"])
        status = await self.status(lab, budget_id)
        assert (status.usage, status.held) == ({"tokens": 5}, {"tokens": 50})
        await lab.engine.tick()
        assert (await self.status(lab, budget_id)).held == {"tokens": 30}
        spend: dict[str, Any] = {
            "budget_id": budget_id,
            "execution_id": notes["id"],
            "deltas": {"tokens": 5},
            "idempotency_key": "spend-1",
        }
        assert await lab.engine.record_spend(**spend) == AlreadyApplied()
        settled = await lab.engine.settle_budget(
            owner, budget_id=budget_id, hold_id="h1", amounts={"tokens": 25}
        )
        assert settled == Ok()
        await lab.engine.complete(owner)
        await ended(lab, notes["id"], PublicState.COMPLETED)
        status = await self.status(lab, budget_id)
        assert (status.usage, status.held) == ({"tokens": 30}, {})
        await lab.engine.release_budget(budget_id=budget_id, execution_id=notes["id"])
        assert (await self.status(lab, budget_id)).usage == {"tokens": 0}


class Asking(Limited):
    """A budget that asks: one execution waits for the answer, another holds an allowance."""

    async def begin(self, lab: Lab) -> Notes:
        budget_id = await self.make_budget(lab, "asks", hard=10, on_hard_limit="ask")
        await self.report(lab, budget_id, 10)
        allowed, asking = await self.start(lab), await self.start(lab)
        amounts = {"tokens": 3}
        await lab.engine.ask_budget(allowed.handle, budget_id=budget_id, amounts=amounts)
        await lab.engine.answer_budget_ask(
            budget_id=budget_id, dimension="tokens", approve=True, once=True, actor="ada"
        )
        await lab.direct.move_due()
        await lab.engine.reserve_budget(
            allowed.handle, budget_id=budget_id, amounts=amounts, hold_id="h1", ttl_ms=HOUR_MS
        )
        asked = await lab.engine.ask_budget(asking.handle, budget_id=budget_id, amounts=amounts)
        key = asked.waitpoint_key
        request = SuspendRequest(
            resume_condition=Single(key), waitpoints=(UsePending(asked.waitpoint_id, key),)
        )
        await lab.engine.suspend(asking.handle, request)
        return {"budget": budget_id, "allowed": noted(allowed), "asking": asking.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        budget_id = notes["budget"]
        page = await lab.engine.list_budget_asks(budget_id=budget_id)
        (ask,) = page.items
        assert (ask.number, ask.spenders, ask.usage, ask.wanted) == (2, 1, 13, 3)
        owner = handle(lab, notes["allowed"])
        settled = await lab.engine.settle_budget(
            owner, budget_id=budget_id, hold_id="h1", amounts={"tokens": 3}
        )
        assert settled == Ok()
        await lab.engine.complete(owner)
        await lab.engine.answer_budget_ask(
            budget_id=budget_id, dimension="tokens", approve=True, raise_by=6, actor="ada"
        )
        await lab.engine.tick()
        await self.finish(lab, notes["asking"])
        status = await self.status(lab, budget_id)
        assert (status.usage, status.allowed) == ({"tokens": 13}, {"tokens": 3})


class Scoped(Limited):
    """Budgets of a lane and a namespace bound what is created later, too; one resets by itself."""

    async def begin(self, lab: Lab) -> Notes:
        lane = await self.make_budget(
            lab, "lane", 10, scope_type="lane", scope_id=self.lane, reset_interval_ms=HOUR_MS
        )
        resets_at = lab.now + HOUR_MS
        tenant = await self.make_budget(
            lab, "tenant", 10, scope_type="namespace", scope_id="scoped", on_hard_limit="deny"
        )
        execution_id = await self.create(lab, namespace="scoped")
        assert (await lab.describe(execution_id)).bounds.budget_ids == (lane, tenant)
        await self.report(lab, lane, 10, key="all-of-it")
        assert await self.claims(lab, namespace="scoped") == []
        return {"lane": lane, "tenant": tenant, "id": execution_id, "resets_at": resets_at}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        fresh = await self.create(lab, namespace="scoped")
        bounds = (await lab.describe(fresh)).bounds
        assert bounds.budget_ids == (notes["lane"], notes["tenant"])
        assert await self.report(lab, notes["lane"], 10, key="all-of-it") == Ok()
        assert await self.claims(lab, namespace="scoped") == []
        lab.clock.set(notes["resets_at"])
        await lab.engine.tick()
        status = await self.status(lab, notes["lane"])
        assert (status.usage, status.reset_count) == ({"tokens": 0}, 1)
        assert status.next_reset_at == notes["resets_at"] + HOUR_MS
        for execution_id in (notes["id"], fresh):
            claimed = await self.claim(lab, namespace="scoped")
            assert claimed.execution_id == execution_id
            await lab.engine.complete(claimed.handle)
            await ended(lab, execution_id, PublicState.COMPLETED)


class Windowed(Limited):
    """A quota with a full window: its starts stay counted, and the blocked work comes back."""

    async def begin(self, lab: Lab) -> Notes:
        await lab.engine.create_quota_policy(
            quota_policy_id="windowed", window_seconds=3_600, max_requests_per_window=2
        )
        fields: dict[str, Any] = {"quota_policy_id": "windowed"}
        first = await self.start(lab, **fields)
        await lab.engine.complete(first.handle)
        full_until = lab.now + HOUR_MS
        lab.clock.advance(1_000)
        running = await self.start(lab, **fields)
        blocked = [
            await self.blocked(lab, BlockingReason.WAITING_FOR_QUOTA, **fields, priority=priority)
            for priority in (2, 1)
        ]
        return {"running": noted(running), "blocked": blocked, "full_until": full_until}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        (gate,) = (await lab.engine.get_quota_status(quota_policy_id="windowed")).gates
        assert (gate.active, gate.in_window) == (1, 2)
        await lab.engine.complete(handle(lab, notes["running"]))
        lab.clock.set(notes["full_until"] - 1)
        await lab.engine.tick()
        assert await self.claims(lab) == []
        await lab.after(1)
        await self.finish(lab, notes["blocked"][0])
        assert await self.claims(lab) == []
        await lab.after(1_000)
        await self.finish(lab, notes["blocked"][1])


class Slots(Limited):
    """A quota with one slot for each key: one is running, the other reserved from outside."""

    FIELDS: Final[dict[str, Any]] = {"quota_policy_id": "slots"}

    async def begin(self, lab: Lab) -> Notes:
        await lab.engine.create_quota_policy(
            quota_policy_id="slots", max_concurrent=1, jitter_ms=50, actor="olga"
        )
        running = await self.start(lab, **self.FIELDS, concurrency_key="red")
        blocked = await self.blocked(
            lab, BlockingReason.WAITING_FOR_QUOTA, **self.FIELDS, concurrency_key="red"
        )
        outside = await self.create(lab)
        await lab.engine.hold_execution(execution_id=outside)
        admitted = await lab.engine.check_admission(
            **self.FIELDS, execution_id=outside, dimension="blue", reservation_ms=HOUR_MS
        )
        assert admitted == Admitted()
        return {"running": noted(running), "blocked": blocked, "outside": outside}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine, outside = lab.engine, notes["outside"]
        policy = await engine.read_quota_policy_limits(**self.FIELDS)
        assert policy is not None
        assert (policy.active_concurrency_cap, policy.jitter_ms) == (1, 50)
        blue: dict[str, Any] = {**self.FIELDS, "dimension": "blue"}
        assert await engine.check_admission(**blue, execution_id=outside) == AlreadyAdmitted()
        other = await engine.check_admission(**blue, execution_id=notes["blocked"])
        assert other == ConcurrencyExceeded()
        assert (await engine.release_admission(**blue, execution_id=outside)).released
        assert await self.claims(lab) == []
        await engine.complete(handle(lab, notes["running"]))
        await self.finish(lab, notes["blocked"])
        await engine.release_execution(execution_id=outside)
        await self.finish(lab, outside)
