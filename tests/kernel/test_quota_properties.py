"""Whatever happens in whatever order, a gate never lets more start or run than its policy says."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.limit.quota import Gate, admit, release, trim
from flowfabric.model.quota import (
    AdmissionRow,
    AdmissionState,
    Admitted,
    GateRow,
    QuotaPolicy,
    RateExceeded,
)
from tests.support.decisions import dropped, saved, the

NAMES = [f"e{n}" for n in range(8)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "reserve", "release", "pass"]),
        st.sampled_from(NAMES),
        st.integers(0, 1_500),
    ),
    max_size=80,
)


class Model:
    """One gate with its rows, as the engine keeps them, and what really happened."""

    def __init__(self, rate: int, cap: int, window_s: int) -> None:
        self.now = 1_000_000
        policy = QuotaPolicy("q", window_s, rate, cap, 0, 0, 0)
        self.gate = Gate(policy, GateRow("q", "default"))
        self.rows: dict[str, AdmissionRow] = {}
        self.starts: list[tuple[int, str]] = []

    def take(self, decision: Decision[Any]) -> None:
        for record in decision.saves:
            if isinstance(record, Gate):
                self.gate = record
        for row in saved(decision, AdmissionRow):
            self.rows[row.execution_id] = row
        for row in dropped(decision, AdmissionRow):
            self.rows.pop(row.execution_id, None)

    def open(self) -> None:
        """What every transaction does first: the old leave the window."""
        counted = [row for row in self.rows.values() if row.counted_at is not None]
        oldest = sorted(counted, key=lambda row: row.counted_at or 0)
        self.take(trim(self.gate, oldest, Moment(self.now)))

    def step(self, what: str, name: str, pause: int) -> None:
        self.now += pause
        self.open()
        held = self.rows.get(name)
        if what == "release":
            self.take(release(self.gate, [held]))
        elif what != "pass":
            state = AdmissionState.RUNNING if what == "admit" else AdmissionState.RESERVED
            decision = admit(self.gate, held, name, state, Moment(self.now), jitter=0.5)
            if isinstance(decision.reply, Admitted):
                self.starts.append((self.now, name))
            if isinstance(decision.reply, RateExceeded):
                assert decision.reply.retry_after_ms > 0
            self.take(decision)

    def check(self) -> None:
        rows, row = self.rows.values(), self.gate.row
        assert row.active == sum(each.is_active for each in rows)
        assert row.in_window == sum(each.counted_at is not None for each in rows)
        policy = self.gate.policy
        if policy.active_concurrency_cap:
            assert row.active <= policy.active_concurrency_cap
        if policy.max_requests_per_window:
            since = self.now - policy.window_ms
            within = {name for when, name in self.starts if when > since}
            assert len(within) <= policy.max_requests_per_window
            assert row.in_window == len(within)


@settings(max_examples=300)
@given(STEPS, st.integers(0, 4), st.integers(0, 3), st.integers(1, 5))
def test_no_sequence_passes_the_limits(
    steps: list[tuple[str, str, int]], rate: int, cap: int, window_s: int
) -> None:
    model = Model(rate, cap, window_s)
    for what, name, pause in steps:
        model.step(what, name, pause)
        model.check()


@settings(max_examples=100)
@given(STEPS, st.integers(1, 4), st.integers(1, 3))
def test_a_free_gate_admits(steps: list[tuple[str, str, int]], rate: int, cap: int) -> None:
    """Nothing leaks: when everybody has gone and the window has passed, all the room is back."""
    model = Model(rate, cap, 2)
    for what, name, pause in steps:
        model.step(what, name, pause)
    for name in NAMES:
        model.step("release", name, 0)
    model.step("pass", NAMES[0], 2_000)
    assert model.rows == {}
    assert model.gate.room == min(rate, cap)


@settings(max_examples=100)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 9_999))
def test_every_wave_fits(rate: int, refused: int, age: int) -> None:
    """Of those told to come back, no window's length holds more than may start in it."""
    now = 1_000_000
    policy = QuotaPolicy("q", 10, rate, 0, 0, 0, 0)
    gate = Gate(policy, GateRow("q", "default", in_window=rate), now - age)
    told = []
    for n in range(refused):
        decision = admit(gate, None, f"e{n}", AdmissionState.RUNNING, Moment(now), jitter=0.0)
        assert isinstance(decision.reply, RateExceeded)
        told.append(now + decision.reply.retry_after_ms)
        gate = the(decision, Gate)
    assert told == sorted(told)
    assert told[0] == now - age + 10_000
    for index in range(rate, refused):
        assert told[index] - told[index - rate] >= policy.window_ms
