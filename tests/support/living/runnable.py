"""Work that waits: for a worker, for its time, for an operator; and keys of earlier creates."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flowfabric.errors import IdempotencyConflict
from flowfabric.model.event import OperatorEventType
from flowfabric.model.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    RetryPolicy,
    RoutingRequirements,
    SuspensionPolicy,
    TimeoutPolicy,
)
from flowfabric.model.results import Created, Duplicate
from flowfabric.model.state import BlockingReason, PublicState
from flowfabric.model.words import TimeoutBehavior
from tests.support.lab import Lab
from tests.support.living.kind import BYTES, HOUR_MS, Living, Notes, ended

TAGS: Final = {"team.name": "rot", "team.motto": "Ü – 'quoted' \\ %s"}
NEEDS: Final = ("gpu", "llm")
# Every field differs from its default, so that one which a migration drops is missed.
RULES: Final = ExecutionPolicy(
    priority=7,
    retry_policy=RetryPolicy(
        max_retries=4,
        backoff=ExponentialBackoff(
            initial_delay_ms=2_000, max_delay_ms=9_000, multiplier=1.5, jitter=True
        ),
        retryable_categories=("flaky",),
    ),
    timeout_policy=TimeoutPolicy(attempt_timeout_ms=700_000, execution_deadline_ms=9 * HOUR_MS),
    max_reclaim_count=5,
    max_replay_count=6,
    routing_requirements=RoutingRequirements(required_capabilities=NEEDS),
    dedup_window_ms=2 * HOUR_MS,
    retention_ttl_ms=3 * HOUR_MS,
    suspension_policy=SuspensionPolicy(
        default_timeout_ms=HOUR_MS, timeout_behavior=TimeoutBehavior.CANCEL
    ),
    max_signals_per_execution=8,
)


class Waiting(Living):
    """Priorities, tags and payloads of every sort; claimed in their order, byte by byte."""

    async def begin(self, lab: Lab) -> Notes:
        low = await self.create(lab, kind="low", priority=1)
        high = await self.create(
            lab,
            kind="high",
            priority=900,
            tags=TAGS,
            input_payload=BYTES,
            payload_encoding="octets",
            creator_identity="alice",
        )
        raised = await self.create(lab, kind="raised", input_payload="ÄÖ".encode())
        await lab.engine.change_priority(execution_id=raised, new_priority=5, actor="olga")
        await lab.engine.set_execution_tag(execution_id=raised, key="set.later", value="yes")
        return {"low": low, "high": high, "raised": raised}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        listed = await engine.list_executions(lane_id=self.lane)
        assert {each.execution_id for each in listed.items} == set(notes.values())
        for tag in (*TAGS.items(), ("set.later", "yes")):
            found = [each.execution_id for each in (await engine.list_executions(tag=tag)).items]
            assert found == [notes["raised" if tag[0] == "set.later" else "high"]]
        claimed = [await self.claim(lab) for _ in notes]
        assert [each.execution_id for each in claimed] == [
            notes[name] for name in ("high", "raised", "low")
        ]
        assert [each.payload for each in claimed] == [BYTES, "ÄÖ".encode(), b""]
        assert claimed[0].payload_encoding == "octets"
        assert claimed[0].tags == TAGS
        for each in claimed:
            await engine.complete(each.handle, result=each.payload)
            await ended(lab, each.execution_id, PublicState.COMPLETED)
            result = await engine.get_execution_result(execution_id=each.execution_id)
            assert result == each.payload


class Ranked(Living):
    """Work of many priorities, claimed strictly by them: the order is stored, and not by id."""

    PRIORITIES: Final = (40, 7000, 0, 300, 41, 6999, 9000, 5)

    async def begin(self, lab: Lab) -> Notes:
        ids = [await self.create(lab, priority=priority) for priority in self.PRIORITIES]
        return {"ids": ids}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        ranks = dict(zip(self.PRIORITIES, notes["ids"], strict=True))
        assert await self.claims(lab) == [ranks[each] for each in sorted(ranks, reverse=True)]


class Demanding(Living):
    """A policy without a default in it; only a worker with the capabilities gets the work."""

    async def begin(self, lab: Lab) -> Notes:
        return {"id": await self.create(lab, kind="demanding", policy=RULES)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        execution_id = notes["id"]
        assert (await lab.record(execution_id)).policy == RULES
        snapshot = await lab.describe(execution_id)
        assert (snapshot.priority, snapshot.required_capabilities) == (7, NEEDS)
        assert snapshot.deadline_at == snapshot.created_at + 9 * HOUR_MS
        assert await self.claims(lab, capabilities=NEEDS[:1]) == []
        await self.claim(lab, capabilities=NEEDS)
        await lab.after(700_000)  # the attempt has run for too long, and that is not flaky
        await ended(lab, execution_id, PublicState.EXPIRED)
        snapshot = await lab.describe(execution_id)
        assert snapshot.purge_at == lab.now + 3 * HOUR_MS
        await lab.after(3 * HOUR_MS)
        assert await lab.engine.describe_execution(execution_id=execution_id) is None


class Delayed(Living):
    """One time has come unnoticed, the other has not."""

    async def begin(self, lab: Lab) -> Notes:
        early = await self.create(lab, kind="early", delay_ms=2_000)
        late = await self.create(lab, kind="late", delay_until=lab.now + HOUR_MS)
        return {"early": early, "late": late, "late_at": lab.now + HOUR_MS}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        assert await lab.state(notes["early"]) is PublicState.DELAYED
        await lab.engine.tick()
        await self.finish(lab, notes["early"])
        lab.clock.set(notes["late_at"] - 1)
        await lab.engine.tick()
        assert await lab.state(notes["late"]) is PublicState.DELAYED
        await lab.after(1)
        await self.finish(lab, notes["late"])


class Held(Living):
    """An operator holds one, admission blocks another; both are set free by hand."""

    async def begin(self, lab: Lab) -> Notes:
        held = await self.create(lab, kind="held")
        await lab.engine.hold_execution(execution_id=held, reason="audit", actor="olga")
        blocked = await self.create(lab, kind="blocked")
        await lab.engine.block_execution_for_admission(
            execution_id=blocked,
            reason=BlockingReason.WAITING_FOR_QUOTA,
            reason_detail="an external scheduler says no",
        )
        return {"held": held, "blocked": blocked}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        held, blocked = notes["held"], notes["blocked"]
        await lab.engine.tick()
        assert await self.claims(lab) == []
        (event,) = await lab.operator_events(held)
        assert (event.event_type, event.actor) == (OperatorEventType.HELD, "olga")
        assert (await lab.describe(held)).blocking_detail == "audit"
        why = await lab.engine.explain(execution_id=blocked)
        assert "an external scheduler says no" in why.summary
        await lab.engine.release_execution(execution_id=held)
        await self.finish(lab, held)
        await lab.engine.unblock_execution(
            execution_id=blocked, expected_reason=BlockingReason.WAITING_FOR_QUOTA
        )
        await self.finish(lab, blocked)


class Deadline(Living):
    """A deadline ahead, and one that has passed unnoticed."""

    async def begin(self, lab: Lab) -> Notes:
        late = await self.create(lab, kind="late", execution_deadline_at=lab.now + 2_000)
        at = lab.now + HOUR_MS
        ahead = await self.create(lab, kind="ahead", execution_deadline_at=at)
        return {"late": late, "ahead": ahead, "at": at}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        await lab.engine.tick()
        await ended(lab, notes["late"], PublicState.EXPIRED)
        assert await lab.state(notes["ahead"]) is PublicState.WAITING
        lab.clock.set(notes["at"])
        await lab.engine.tick()
        await ended(lab, notes["ahead"], PublicState.EXPIRED)


class Keyed(Living):
    """Idempotency keys: alive in two namespaces, and one that has expired."""

    GIVEN: Final[dict[str, Any]] = {
        "execution_kind": "keyed",
        "lane_id": "keyed",
        "input_payload": BYTES,
        "tags": {"key.ed": "1"},
        "idempotency_key": "order-1",
    }
    BRIEF: Final = ExecutionPolicy(dedup_window_ms=1_000)

    async def begin(self, lab: Lab) -> Notes:
        create = lab.engine.create_execution
        first = await create(**self.GIVEN)
        other = await create(**self.GIVEN, namespace="acme")
        expired = await create(**{**self.GIVEN, "idempotency_key": "gone"}, policy=self.BRIEF)
        return {
            "first": first.execution_id,
            "other": other.execution_id,
            "expired": expired.execution_id,
        }

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        create = lab.engine.create_execution
        assert await create(**self.GIVEN) == Duplicate(notes["first"])
        assert await create(**self.GIVEN, namespace="acme") == Duplicate(notes["other"])
        with pytest.raises(IdempotencyConflict):
            await create(**{**self.GIVEN, "input_payload": b"other"})
        again = await create(**{**self.GIVEN, "idempotency_key": "gone"}, policy=self.BRIEF)
        assert isinstance(again, Created)
        assert again.execution_id != notes["expired"]
        await lab.engine.tick()
        claimed = await self.claims(lab, namespaces=("default", "acme"))
        assert set(claimed) == {*notes.values(), again.execution_id}
        assert await create(**self.GIVEN) == Duplicate(notes["first"])
