"""Trouble in the store: collisions are run again, lost replies can be asked for again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.errors import OutcomeUnknown, RetryExhausted, StoreUnavailable
from flowfabric.limits import CONFLICT_TRIES
from flowfabric.model.results import Created, Duplicate, RetryScheduled
from flowfabric.model.state import PublicState
from flowfabric.stores.base import StoreConflict
from tests.support.builders import policy, retries
from tests.support.lab import Lab, scenario

Work = Callable[[Any], Awaitable[Any]]


class Trouble:
    """Stands between engine and store and spoils the next transactions."""

    def __init__(self, lab: Lab, patch: pytest.MonkeyPatch) -> None:
        self._transact = lab.engine.store.transact
        self.collisions = 0  # how many tries are done in full and then undone
        self.lost_replies = 0  # how many commits are kept from their callers
        self.outages = 0  # how many tries find no store
        self.tries = 0
        patch.setattr(lab.engine.store, "transact", self.transact)

    async def transact(self, work: Work) -> Any:
        """One try, spoiled as ordered."""
        self.tries += 1
        if self.outages:
            self.outages -= 1
            raise StoreUnavailable("gone for a moment")
        if self.collisions:
            self.collisions -= 1
            return await self._transact(_undone(work))
        reply = await self._transact(work)
        if self.lost_replies:
            self.lost_replies -= 1
            raise OutcomeUnknown("the connection broke during the commit")
        return reply


def _undone(work: Work) -> Work:
    async def in_vain(tx: Any) -> Any:
        await work(tx)
        raise StoreConflict("a rival was faster")

    return in_vain


@scenario
async def test_a_collision_is_run_again_unseen_by_callers(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lost tries wrote is undone, on every store."""
    await lab.cancel(await lab.create())  # the route is known from now on
    trouble = Trouble(lab, monkeypatch)
    trouble.collisions = CONFLICT_TRIES - 1
    execution_id = await lab.create(idempotency_key="k")
    assert trouble.tries == CONFLICT_TRIES
    trouble.collisions = 2
    claimed = await lab.claim()
    trouble.collisions = 2
    await lab.engine.complete(claimed.handle, result=b"r")
    assert claimed.lease_epoch == 1
    snapshot = await lab.describe(execution_id)
    assert (snapshot.public_state, snapshot.total_attempt_count) == (PublicState.COMPLETED, 1)
    assert len(await lab.completions(execution_id)) == 1
    assert len(await lab.lease_events(execution_id)) == 1
    counts = await lab.engine.count_executions()
    assert counts == {"default": {"completed": 1, "cancelled": 1}}


@scenario
async def test_a_collision_at_the_first_use_of_a_lane_is_run_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making routes known is a transaction like any other."""
    trouble = Trouble(lab, monkeypatch)
    trouble.collisions = 2
    await lab.create(lane_id="new")
    assert (await lab.claim(lanes=("new",))).lane_id == "new"


@scenario
async def test_a_store_that_only_collides_is_given_up_after_five_tries(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retryable, and nothing is written."""
    claimed = await lab.started()
    trouble = Trouble(lab, monkeypatch)
    async with lab.unchanged():
        trouble.collisions = CONFLICT_TRIES
        with pytest.raises(RetryExhausted) as refusal:
            await lab.engine.complete(claimed.handle)
    assert refusal.value.retryable
    assert trouble.tries == CONFLICT_TRIES
    await lab.engine.complete(claimed.handle)


@scenario
async def test_a_logical_refusal_is_never_tried_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the store's conflicts enter the loop."""
    finished = await lab.completed()
    trouble = Trouble(lab, monkeypatch)
    with pytest.raises(Exception, match="completed"):
        await lab.cancel(finished)
    assert trouble.tries == 1


@scenario
async def test_a_lost_reply_is_answered_when_asked_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I6: the same command with the same fence or key returns the original outcome."""
    trouble = Trouble(lab, monkeypatch)

    async def lost(call: Callable[[], Awaitable[Any]]) -> Any:
        trouble.lost_replies = 1
        with pytest.raises(OutcomeUnknown) as unknown:
            await call()
        assert unknown.value.retryable
        return await call()

    async def submit() -> Any:
        return await lab.engine.create_execution(
            execution_kind="work",
            idempotency_key="k",
            policy=policy(retry_policy=retries(1, 0)),
        )

    created = await lost(submit)
    assert isinstance(created, Created | Duplicate)
    execution_id = created.execution_id
    first = await lab.claim()
    assert isinstance(await lost(lambda: lab.engine.fail(first.handle, reason="x")), RetryScheduled)
    second = await lab.claim()
    await lost(lambda: lab.engine.delay(second.handle, delay_until=lab.now))
    third = await lab.claim()
    await lost(lambda: lab.engine.complete(third.handle, result=b"r"))
    snapshot = await lab.describe(execution_id)
    assert (snapshot.public_state, snapshot.total_attempt_count) == (PublicState.COMPLETED, 2)
    assert len(await lab.completions(execution_id)) == 1
    other = await lab.create()
    await lost(lambda: lab.cancel(other))
    assert len(await lab.completions(other)) == 1


@scenario
async def test_an_outage_is_told_as_such_and_leaves_the_engine_whole(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was written; retrying is safe."""
    claimed = await lab.started()
    trouble = Trouble(lab, monkeypatch)
    async with lab.unchanged():
        trouble.outages = 1
        with pytest.raises(StoreUnavailable) as outage:
            await lab.engine.complete(claimed.handle)
    assert outage.value.retryable
    await lab.engine.complete(claimed.handle)
    assert await lab.state(claimed.execution_id) is PublicState.COMPLETED
