"""Events: every transition is published once, in order, with tenant and tags."""

from __future__ import annotations

from flowfabric.model.state import TerminalOutcome
from tests.support.builders import policy, retries
from tests.support.lab import TTL_MS, Lab, scenario

TAGS = {"team.name": "a"}


@scenario
async def test_each_change_of_owner_is_one_event(lab: Lab) -> None:
    """Typed reasons, real workers, the epoch of the lease meant. The last lease ends with its
    execution: the completion says so, and no lease event repeats it."""
    rules = policy(retry_policy=retries(3, 0))
    first = await lab.started("w1", policy=rules, tags=TAGS, namespace=None)
    await lab.engine.fail(first.handle, reason="x")
    second = await lab.claim("w2")
    await lab.engine.delay(second.handle, delay_until=lab.now)
    third = await lab.claim("w3")
    await lab.after(TTL_MS)
    fourth = await lab.claim("w4")
    await lab.engine.revoke_lease(execution_id=first.execution_id, reason="suspect")
    await lab.engine.tick()
    fifth = await lab.claim("w5")
    await lab.engine.renew(fifth.handle)
    await lab.engine.complete(fifth.handle)
    events = await lab.lease_events(first.execution_id)
    assert [(event.event_type, event.reason, event.worker_id) for event in events] == [
        ("acquired", "claim", "w1"),
        ("released", "failed_retry_scheduled", "w1"),
        ("acquired", "claim", "w2"),
        ("released", "worker_delay", "w2"),
        ("acquired", "claim_resumed", "w3"),
        ("expired", "lease expired", "w3"),
        ("acquired", "claim", "w4"),
        ("revoked", "suspect", "w4"),
        ("acquired", "claim", "w5"),
    ]
    claims = (first, second, third, fourth, fifth)
    acquired = [event for event in events if event.event_type == "acquired"]
    assert [event.lease_epoch for event in acquired] == [each.lease_epoch for each in claims]
    assert {event.namespace for event in events} == {"default"}
    assert all(event.tags == TAGS for event in events)
    assert [event.occurred_at for event in events] == sorted(event.occurred_at for event in events)
    assert len(await lab.completions(first.execution_id)) == 1
    attempt = (await lab.engine.list_attempts(execution_id=first.execution_id)).items[-1]
    assert (attempt.worker_id, attempt.lease_epoch) == ("w5", fifth.lease_epoch)


@scenario
async def test_each_end_is_one_completion_event_with_tenant_and_tags(lab: Lab) -> None:
    """For every execution, on every path."""
    outcomes = {}
    done = await lab.started(tags=TAGS, namespace=None)
    await lab.engine.complete(done.handle)
    outcomes[done.execution_id] = TerminalOutcome.SUCCESS
    failed = await lab.started(tags=TAGS)
    await lab.engine.fail(failed.handle, reason="x")
    outcomes[failed.execution_id] = TerminalOutcome.FAILED
    cancelled = await lab.create(tags=TAGS)
    await lab.cancel(cancelled)
    outcomes[cancelled] = TerminalOutcome.CANCELLED
    expired = await lab.create(tags=TAGS, execution_deadline_at=lab.now + 5)
    await lab.after(5)
    outcomes[expired] = TerminalOutcome.EXPIRED
    for execution_id, outcome in outcomes.items():
        (event,) = await lab.completions(execution_id)
        assert (event.outcome, event.namespace, event.tags) == (outcome, "default", TAGS)


@scenario
async def test_the_events_tags_are_those_of_their_time(lab: Lab) -> None:
    claimed = await lab.started(tags=TAGS)
    await lab.engine.set_execution_tag(
        execution_id=claimed.execution_id, key="team.name", value="b"
    )
    await lab.engine.complete(claimed.handle)
    assert (await lab.completions(claimed.execution_id))[0].tags == {"team.name": "b"}


@scenario
async def test_every_operator_mutation_is_audited(lab: Lab) -> None:
    execution_id = await lab.create()
    engine = lab.engine
    await engine.change_priority(execution_id=execution_id, new_priority=3)
    await engine.hold_execution(execution_id=execution_id, reason="why")
    await engine.release_execution(execution_id=execution_id)
    await engine.issue_grant_and_claim(
        execution_id=execution_id, lane_id="default", lease_duration_ms=TTL_MS
    )
    await engine.revoke_lease(execution_id=execution_id, reason="oops")
    await lab.cancel(execution_id)
    await engine.replay_execution(execution_id=execution_id, requested_by="ann")
    kinds = [event.event_type for event in await lab.operator_events(execution_id)]
    assert kinds == [
        "priority_changed",
        "held",
        "released",
        "claimed",
        "lease_revoked",
        "cancelled",
        "replayed",
    ]


@scenario
async def test_a_refused_call_publishes_nothing(lab: Lab) -> None:
    """I2: no event without its transition."""
    claimed = await lab.started()
    await lab.engine.complete(claimed.handle)
    before = await lab.dump()
    for _ in range(3):
        answers = await lab.engine.renew_many([claimed.handle])
        assert len(answers) == 1
    assert await lab.dump() == before


@scenario
async def test_old_events_are_swept_and_young_ones_kept(lab: Lab) -> None:
    await lab.configure(event_retention_ms=1000)
    old = await lab.completed()
    await lab.after(500)
    young = await lab.completed()
    await lab.after(501)
    assert await lab.completions(old) == []
    assert await lab.lease_events(old) == []
    assert len(await lab.completions(young)) == 1
