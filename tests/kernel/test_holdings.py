"""What an execution holds, and which of its moves give that back."""

from __future__ import annotations

import pytest

from flowfabric.kernel.decision import Decision
from flowfabric.kernel.limit.holdings import (
    gives_back_holdings,
    gives_back_slot,
    occupies_slot,
    return_all,
    slot_until,
    uses_reserved_slots,
    with_holdings,
)
from flowfabric.model.bounds import Bounds
from flowfabric.model.execution import Execution, Grant, GrantKind
from flowfabric.model.record import replace
from tests.support.builders import (
    NOW,
    completed,
    created,
    delayed,
    lapsed,
    leased,
    requeued,
    retrying,
    revoked,
)

BOUND = Bounds(quota_policy_id="q")
PROMISED = replace(created(), grant=Grant(GrantKind.CLAIM, "g", "w1", "w1-1", NOW))


def test_a_slot_is_occupied_while_it_runs_or_is_promised() -> None:
    assert occupies_slot(leased(), NOW)
    assert occupies_slot(PROMISED, NOW)
    assert not occupies_slot(PROMISED, NOW + 1)
    assert not occupies_slot(PROMISED, slot_until(NOW))
    for other in (created, delayed, lapsed, revoked, completed):
        assert not occupies_slot(other(), NOW)


@pytest.mark.parametrize(
    ("before", "after", "gives_back"),
    [
        (leased(), completed(), True),
        (leased(), lapsed(), True),
        (leased(), revoked(), True),
        (leased(), requeued(), True),
        (leased(), retrying(), True),
        (PROMISED, created(), True),
        (leased(), leased(), False),
        (PROMISED, leased(), False),
        (created(), leased(), False),
        (lapsed(), completed(), False),
    ],
)
def test_a_slot_is_given_back_when_nothing_runs_or_is_promised(
    before: Execution, after: Execution, gives_back: bool
) -> None:
    limited = replace(before, bounds=BOUND), replace(after, bounds=BOUND)
    assert gives_back_slot(*limited, NOW) == gives_back
    assert not gives_back_slot(before, after, NOW)  # it has no quota


@pytest.mark.parametrize(
    ("before", "after", "gives_back"),
    [
        (leased(), completed(), True),
        (leased(), lapsed(), True),
        (leased(), requeued(), True),
        (lapsed(), completed(), True),
        (created(), completed(), True),
        (leased(), leased(), False),
        (created(), leased(), False),
        (lapsed(), requeued(), False),
    ],
)
def test_holdings_are_given_back_with_the_lease_or_the_life(
    before: Execution, after: Execution, gives_back: bool
) -> None:
    assert gives_back_holdings(replace(before, side_holds=2), after) == gives_back
    assert not gives_back_holdings(before, after)  # it has none


def test_reserved_slots_are_used_when_the_execution_starts() -> None:
    running = replace(leased(), side_holds=1)
    assert uses_reserved_slots(created(), running)
    assert not uses_reserved_slots(running, running)
    assert not uses_reserved_slots(created(), leased())
    assert not uses_reserved_slots(running, replace(requeued(), side_holds=1))


def test_holdings_are_counted_and_never_below_nothing() -> None:
    one = replace(leased(), side_holds=1)
    assert with_holdings(one, 1) == replace(one, side_holds=2)
    assert with_holdings(leased(), -1) == leased()
    assert with_holdings(None, 1) is None
    assert return_all(one, 0) == Decision(None, leased())
    assert return_all(leased(), 3).execution == replace(leased(), side_holds=3)
