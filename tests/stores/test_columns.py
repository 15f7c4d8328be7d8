"""Which columns a transition writes: what changed always, what did not change hardly ever."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.kernel.decision import Moment
from flowfabric.kernel.execution.claim import Claim, NewIds, claim
from flowfabric.kernel.execution.complete import Complete, complete
from flowfabric.kernel.execution.own import Renew, renew
from flowfabric.kernel.execution.routing import Offer
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import replace
from flowfabric.model.route import Route
from flowfabric.model.state import AttemptState, waiting
from flowfabric.stores.base import COLD_FIELDS, TAKEN_FIELDS, keeps_cold, keeps_taken
from flowfabric.stores.codec import CORE_COLUMNS, KEY_COLUMNS, STATE_COLUMNS

WAITING = Execution(
    "{fp:1}:x", Route("n", "l", "k"), waiting(AttemptState.PENDING_FIRST_ATTEMPT), 0, 1, 1, 1, 1
)
OFFER = Claim(
    offer=Offer(("n",), ("l",), (), None),
    worker_id="w",
    worker_instance_id="i",
    lease_ttl_ms=30_000,
    limit=1,
    backend="sqlite",
)


def leased() -> Any:
    return claim(WAITING, OFFER, NewIds("lease", "attempt"), Moment(1_000)).execution


def test_every_column_is_written_by_the_widest_update() -> None:
    assert {*KEY_COLUMNS, *STATE_COLUMNS, "aging_ms"} == {*CORE_COLUMNS, "due_at", "ready_rank"}
    assert len(STATE_COLUMNS) == len(set(STATE_COLUMNS))


@pytest.mark.parametrize("name", COLD_FIELDS)
def test_a_change_of_a_cold_field_is_noticed(name: str) -> None:
    assert keeps_cold(WAITING, replace(WAITING, last_mutation_at=7))
    assert not keeps_cold(WAITING, replace(WAITING, **{name: object()}))


@pytest.mark.parametrize("name", TAKEN_FIELDS)
def test_a_change_of_a_taken_field_is_noticed(name: str) -> None:
    assert keeps_taken(WAITING, replace(WAITING, last_mutation_at=7))
    assert not keeps_taken(WAITING, replace(WAITING, **{name: object()}))


def test_a_claim_writes_nothing_cold() -> None:
    assert keeps_cold(WAITING, leased())
    assert not keeps_taken(WAITING, leased())


def test_renewals_and_ends_write_nothing_but_the_step() -> None:
    mine = leased()
    fence = Fence("lease", 1, "attempt")
    renewed: Any = renew(
        mine, Renew(execution_id=mine.execution_id, fence=fence, lease_ttl_ms=30_000), Moment(2_000)
    ).execution
    ended: Any = complete(
        mine,
        Complete(execution_id=mine.execution_id, fence=fence, source="lease_holder"),
        Moment(2_000),
    ).execution
    for after in (renewed, ended):
        assert keeps_cold(mine, after)
        assert keeps_taken(mine, after)
