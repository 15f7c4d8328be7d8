"""Admitting many at once is admitting each of them in turn."""

from __future__ import annotations

import pytest

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.limit.quota import Gate, admit, admit_new
from flowfabric.model.quota import AdmissionRow, AdmissionState, Admitted, GateRow, QuotaPolicy
from tests.support.builders import NOW
from tests.support.decisions import the

NAMES = ["a", "b", "c"]


@pytest.mark.parametrize("oldest_at", [None, NOW - 5])
@pytest.mark.parametrize("due_at", [None, NOW + 900])
@pytest.mark.parametrize(("starts", "places"), [(0, 0), (5, 0), (0, 5), (5, 5)])
def test_many_at_once_are_each_in_turn(
    starts: int, places: int, due_at: int | None, oldest_at: int | None
) -> None:
    policy = QuotaPolicy("q", 10, starts, places, 0, NOW, NOW)
    counted = 2 if starts and oldest_at is not None else 0
    gate = Gate(policy, GateRow("q", "default", 1, counted), oldest_at)
    assert gate.room >= len(NAMES)
    state = AdmissionState.RUNNING if due_at is None else AdmissionState.RESERVED
    one_by_one, rows = gate, []
    for name in NAMES:
        decision = admit(one_by_one, None, name, state, Moment(NOW), jitter=0.5, due_at=due_at)
        assert decision.reply == Admitted()
        one_by_one = the(decision, Gate)
        rows.append(the(decision, AdmissionRow))
    made = admit_new(gate, NAMES, state, Moment(NOW), due_at)
    assert made == Decision(None, saves=(one_by_one, *rows))
