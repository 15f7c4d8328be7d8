"""Work that has or had an owner: leases in every state, grants, attempts that ended."""

from __future__ import annotations

from typing import Any, Final

import pytest

from flowfabric.errors import ExecutionNotActive, GrantAlreadyExists, LeaseExpired, StaleLease
from flowfabric.model.attempt import AttemptType, FailureClass
from flowfabric.model.event import LeaseEventType, OperatorEventType
from flowfabric.model.handle import HandleKind
from flowfabric.model.policy import ExecutionPolicy, FixedBackoff, RetryPolicy
from flowfabric.model.record import to_plain
from flowfabric.model.results import Claimed, GrantIssued
from flowfabric.model.state import OwnershipState, PublicState
from tests.support.lab import Lab
from tests.support.living.kind import (
    BYTES,
    HOUR_MS,
    SHORT_MS,
    Living,
    Notes,
    ended,
    handle,
    noted,
)

RETRIES: Final = ExecutionPolicy(
    retry_policy=RetryPolicy(max_retries=3, backoff=FixedBackoff(delay_ms=HOUR_MS))
)


class Leased(Living):
    """A live lease: its owner renews and completes with the handle it has kept."""

    async def begin(self, lab: Lab) -> Notes:
        policy = ExecutionPolicy(renewal_events=True)
        claimed = await self.start(lab, input_payload=BYTES, policy=policy)
        await lab.engine.progress(claimed.handle, percent=40, message="half of it, nearly")
        lab.clock.advance(500)
        await lab.engine.renew(claimed.handle)
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        execution_id, owner = notes["id"], handle(lab, notes["handle"])
        snapshot = await lab.describe(execution_id)
        assert (snapshot.progress_pct, snapshot.progress_message) == (40, "half of it, nearly")
        assert await self.claims(lab, "w2") == []
        renewed = await lab.engine.renew(owner)
        assert (renewed.expires_at_ms, renewed.lease_epoch) == (lab.now + HOUR_MS, 1)
        done = await lab.engine.complete(owner, result=BYTES, result_encoding="octets")
        assert await lab.engine.complete(owner, result=BYTES, result_encoding="octets") == done
        await ended(lab, execution_id, PublicState.COMPLETED)
        assert await lab.engine.get_execution_result(execution_id=execution_id) == BYTES


class Lapsed(Living):
    """A lease that ran out unnoticed: a tick gives the work to another worker."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab, ttl_ms=SHORT_MS)
        return {"id": claimed.execution_id, "handle": noted(claimed)}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        execution_id, former = notes["id"], handle(lab, notes["handle"])
        lapsed = (await lab.engine.list_expired_leases()).items
        assert execution_id in [each.execution_id for each in lapsed]
        with pytest.raises(LeaseExpired):
            await lab.engine.complete(former)
        await lab.engine.tick()
        claimed = await self.claim(lab, "w2")
        assert (claimed.execution_id, claimed.attempt_index) == (execution_id, 1)
        assert claimed.attempt_type is AttemptType.RECLAIM
        assert (await lab.describe(execution_id)).reclaim_count == 1
        with pytest.raises(StaleLease):
            await lab.engine.complete(former)
        await lab.engine.complete(claimed.handle)
        await ended(lab, execution_id, PublicState.COMPLETED)


class Lost(Living):
    """A lease that was marked as lapsed and one that was revoked; neither is given on yet."""

    async def begin(self, lab: Lab) -> Notes:
        marked = await self.start(lab, kind="marked", ttl_ms=SHORT_MS)
        revoked = await self.start(lab, kind="revoked")
        lab.clock.advance(SHORT_MS)
        await lab.engine.mark_lease_expired_if_due(execution_id=marked.execution_id)
        await lab.engine.revoke_lease(
            execution_id=revoked.execution_id, reason="suspect", actor="olga"
        )
        return {"marked": marked.execution_id, "revoked": revoked.execution_id}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        states = [(await lab.describe(key)).state.ownership_state for key in notes.values()]
        assert states == [OwnershipState.LEASE_EXPIRED_RECLAIMABLE, OwnershipState.LEASE_REVOKED]
        (event,) = await lab.operator_events(notes["revoked"])
        assert (event.event_type, event.actor) == (OperatorEventType.LEASE_REVOKED, "olga")
        await lab.engine.tick()
        for kind, execution_id in notes.items():
            await self.finish(lab, execution_id, kinds=(kind,))
            events = [each.event_type for each in await lab.lease_events(execution_id)]
            lost = (LeaseEventType.EXPIRED, LeaseEventType.REVOKED)
            assert events[0] == events[2] == LeaseEventType.ACQUIRED
            assert events[1] in lost
            assert len(events) == 3


class Granted(Living):
    """Work promised to one worker, new and lost: the grants are redeemed, by no other worker.

    A third one was taken over before, and has ended.
    """

    WORKER: Final[dict[str, Any]] = {"worker_id": "w9", "worker_instance_id": "w9-1"}

    async def begin(self, lab: Lab) -> Notes:
        engine = lab.engine
        lost, taken = [(await self.start(lab, ttl_ms=SHORT_MS)).execution_id for _ in range(2)]
        lab.clock.advance(SHORT_MS)
        fresh = await self.create(lab)
        promise = {**self.WORKER, "grant_ttl_ms": 60_000}
        for each in (lost, taken):
            await engine.mark_lease_expired_if_due(execution_id=each)
            granted = await engine.issue_reclaim_grant(execution_id=each, **promise)
            assert isinstance(granted, GrantIssued)
        await engine.issue_claim_grant(execution_id=fresh, **promise)
        reclaimed = await engine.reclaim_execution(execution_id=taken, **self.WORKER)
        assert isinstance(reclaimed, Claimed)
        await engine.complete(reclaimed.handle)
        return {"fresh": fresh, "lost": lost, "taken": taken}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        assert await self.claims(lab, "w2") == []
        with pytest.raises(GrantAlreadyExists):
            await engine.issue_claim_grant(
                execution_id=notes["fresh"], worker_id="w2", worker_instance_id="w2-1"
            )
        fresh = await engine.claim_execution(execution_id=notes["fresh"], **self.WORKER)
        lost = await engine.reclaim_execution(execution_id=notes["lost"], **self.WORKER)
        assert isinstance(lost, Claimed)
        assert (fresh.attempt_index, lost.attempt_index) == (0, 1)
        for claimed in (fresh, lost):
            await engine.complete(claimed.handle)
        for execution_id in notes.values():
            await ended(lab, execution_id, PublicState.COMPLETED)


class Retried(Living):
    """Two attempts failed and the next is pending; former owners hear their answers again."""

    async def begin(self, lab: Lab) -> Notes:
        first = await self.start(lab, policy=RETRIES)
        answer = await lab.engine.fail(
            first.handle, reason="no luck", category="flaky", retry_after_ms=100
        )
        lab.clock.advance(100)
        await lab.engine.promote_delayed(execution_id=first.execution_id)
        second = await self.claim(lab, "w2")
        await lab.engine.fail(second.handle, reason="again\nno luck", category="flaky")
        return {
            "id": first.execution_id,
            "first": noted(first),
            "answer": to_plain(answer),
            "next_at": lab.now + HOUR_MS,
        }

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        execution_id = notes["id"]
        repeated = await lab.engine.fail(
            handle(lab, notes["first"]), reason="no luck", category="flaky", retry_after_ms=100
        )
        assert to_plain(repeated) == notes["answer"]
        attempts = (await lab.engine.list_attempts(execution_id=execution_id)).items
        assert [(each.attempt_index, each.failure_reason) for each in attempts] == [
            (0, "no luck"),
            (1, "again\nno luck"),
        ]
        lab.clock.set(notes["next_at"])
        await lab.engine.tick()
        claimed = await self.finish(lab, execution_id)
        assert (claimed.attempt_index, claimed.attempt_type) == (2, AttemptType.RETRY)


class Parked(Living):
    """An owner has put its attempt off; the same attempt goes on."""

    async def begin(self, lab: Lab) -> Notes:
        claimed = await self.start(lab)
        until = lab.now + HOUR_MS
        await lab.engine.delay(claimed.handle, delay_until=until)
        return {"id": claimed.execution_id, "attempt": claimed.attempt_id, "until": until}

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        lab.clock.set(notes["until"])
        await lab.engine.tick()
        claimed = await self.finish(lab, notes["id"])
        assert (claimed.attempt_id, claimed.attempt_index) == (notes["attempt"], 0)
        assert claimed.handle.kind is HandleKind.RESUMED


class Ended(Living):
    """Ends of every sort that one execution can have, and one that waits to be run again."""

    async def begin(self, lab: Lab) -> Notes:
        engine = lab.engine
        done = await self.start(lab, input_payload=b"in")
        await engine.complete(done.handle, result=BYTES, result_encoding="octets")
        failed = await self.start(lab)
        await engine.fail(
            failed.handle, reason="broken", category="fatal", failure_class=FailureClass.PERMANENT
        )
        cancelled = await self.create(lab)
        await engine.cancel_execution(
            execution_id=cancelled, reason="not wanted", source="operator_override", actor="olga"
        )
        expired = await self.create(lab, execution_deadline_at=lab.now + 1)
        lab.clock.advance(1)
        await engine.expire_execution(execution_id=expired, phase="execution_deadline")
        first = await self.start(lab)
        await engine.complete(first.handle, result=b"first life")
        await engine.replay_execution(execution_id=first.execution_id, reason="once more")
        await self.finish(lab, first.execution_id)
        await engine.replay_execution(execution_id=first.execution_id, reason="and again")
        return {
            "done": done.execution_id,
            "done_by": noted(done),
            "failed": failed.execution_id,
            "cancelled": cancelled,
            "expired": expired,
            "replayed": first.execution_id,
        }

    async def go_on(self, lab: Lab, notes: Notes) -> None:
        engine = lab.engine
        names = ("done", "failed", "cancelled", "expired", "replayed")
        ids = [notes[name] for name in names]
        outcomes = await engine.read_outcomes(execution_ids=ids)
        states = {key: outcome.ended.public_state for key, outcome in outcomes.items()}
        ends = ("completed", "failed", "cancelled", "expired")
        assert states == dict(zip(ids[:4], map(PublicState, ends), strict=True))
        assert outcomes[notes["done"]].result == BYTES
        assert outcomes[notes["failed"]].ended.failure_category == "fatal"
        assert outcomes[notes["cancelled"]].ended.cancellation_reason == "not wanted"
        owner = handle(lab, notes["done_by"])
        repeated = await engine.complete(owner, result=BYTES, result_encoding="octets")
        assert repeated.completed_at == outcomes[notes["done"]].ended.completed_at
        claimed = await self.finish(lab, notes["replayed"])
        assert (claimed.attempt_index, claimed.attempt_type) == (2, AttemptType.REPLAY)
        await engine.replay_execution(execution_id=notes["failed"], reason="once more")
        await self.finish(lab, notes["failed"])
        with pytest.raises(ExecutionNotActive):
            await engine.renew(owner)
