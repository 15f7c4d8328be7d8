"""The rules of quotas, one by one."""

from __future__ import annotations

import pytest

from flowfabric.errors import LimitConflict, NotFound
from flowfabric.kernel.decision import Moment, Refused
from flowfabric.kernel.limit.quota import (
    LOOK_AGAIN_MS,
    CreateQuota,
    Gate,
    QuotaDecision,
    UpdateQuota,
    admit,
    create_quota,
    denial_text,
    look_again_at,
    release,
    trimmed,
    update_quota,
    window_opens_at,
    without_waves,
)
from flowfabric.model.quota import (
    AdmissionRow,
    AdmissionState,
    Admitted,
    AlreadyAdmitted,
    ConcurrencyExceeded,
    GateRow,
    QuotaAlreadySatisfied,
    QuotaPolicy,
    RateExceeded,
)
from flowfabric.model.record import replace
from tests.support.builders import NOW

WINDOW_MS = 10_000
RUNNING, RESERVED = AdmissionState.RUNNING, AdmissionState.RESERVED


def gate(rate: int = 0, cap: int = 0, jitter_ms: int = 0, **row: int) -> Gate:
    policy = QuotaPolicy("q", 10, rate, cap, jitter_ms, 0, 0)
    oldest = row.pop("oldest_at", None)
    return Gate(policy, GateRow("q", "default", **row), oldest)


def ask(
    before: Gate,
    held: AdmissionRow | None = None,
    execution_id: str = "e1",
    now: int = NOW,
    *,
    jitter: float = 0.0,
    parks: bool = True,
) -> QuotaDecision:
    return admit(before, held, execution_id, RUNNING, Moment(now), jitter=jitter, parks=parks)


def wait_of(decision: QuotaDecision) -> int:
    assert isinstance(decision.reply, RateExceeded)
    return decision.reply.retry_after_ms


def gate_of(decision: QuotaDecision) -> Gate:
    assert decision.gate is not None
    return decision.gate


# --- admission ---------------------------------------------------------------------------------


def test_an_admission_takes_a_place_and_a_start() -> None:
    decision = ask(gate(rate=3, cap=2))
    assert decision.reply == Admitted()
    row = gate_of(decision).row
    assert (row.active, row.in_window) == (1, 1)
    assert decision.admission == AdmissionRow("q", "default", "e1", RUNNING, NOW, NOW, None)


def test_without_a_rate_nothing_is_counted_in_the_window() -> None:
    decision = ask(gate(cap=2))
    assert gate_of(decision).row.in_window == 0
    assert decision.admission is not None
    assert decision.admission.counted_at is None


@pytest.mark.parametrize(("taken", "limit", "fits"), [(0, 1, True), (1, 1, False), (5, 0, True)])
def test_zero_is_no_limit(taken: int, limit: int, fits: bool) -> None:
    by_cap = ask(gate(cap=limit, active=taken))
    by_rate = ask(gate(rate=limit, in_window=taken, oldest_at=NOW))
    assert (by_cap.reply == Admitted()) is fits
    assert (by_rate.reply == Admitted()) is fits


def test_a_full_gate_says_which_limit_and_until_when() -> None:
    full = gate(rate=2, in_window=2, oldest_at=NOW - 4_000)
    assert ask(full).reply == RateExceeded(WINDOW_MS - 4_000)
    assert ask(gate(cap=2, active=2)).reply == ConcurrencyExceeded()
    both = gate(rate=2, in_window=2, oldest_at=NOW, cap=1, active=1)
    assert ask(both).reply == RateExceeded(WINDOW_MS)  # the rate is asked first


def test_a_denial_takes_nothing() -> None:
    for full in (gate(rate=1, in_window=1, oldest_at=NOW), gate(cap=1, active=1)):
        decision = ask(full)
        assert decision.admission is None
        row = gate_of(decision).row
        assert (row.active, row.in_window) == (full.row.active, full.row.in_window)


def test_an_execution_with_a_slot_is_not_counted_again() -> None:
    held = AdmissionRow("q", "default", "e1", RESERVED, NOW - 5, NOW - 5, NOW + 5)
    before = gate(rate=1, cap=1, in_window=1, active=1)
    decision = ask(before, held)
    assert decision.reply == AlreadyAdmitted()
    assert decision.gate == before
    assert decision.admission == replace(held, state=RUNNING, due_at=None)


def test_a_second_start_moves_in_the_window() -> None:
    """One entry per execution, so it needs no second start of a full window."""
    held = AdmissionRow("q", "default", "e1", AdmissionState.RELEASED, NOW - 5, NOW - 5)
    decision = ask(gate(rate=1, in_window=1, oldest_at=NOW - 5), held)
    assert decision.reply == Admitted()
    assert gate_of(decision).row.in_window == 1
    assert decision.admission is not None
    assert decision.admission.counted_at == NOW


def test_an_entry_that_left_the_window_is_counted_anew() -> None:
    held = AdmissionRow("q", "default", "e1", AdmissionState.RELEASED, NOW - 5, None)
    assert gate_of(ask(gate(rate=3, in_window=1), held)).row.in_window == 2


# --- coming back -------------------------------------------------------------------------------


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.999])
def test_jitter_is_added_within_its_bound(jitter: float) -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW, jitter_ms=1_000)
    for parks in (True, False):
        spread = wait_of(ask(full, jitter=jitter, parks=parks)) - WINDOW_MS
        assert spread == int(1_000 * jitter)


def test_the_refused_come_back_in_waves_that_fit() -> None:
    full = gate(rate=2, in_window=2, oldest_at=NOW - 1_000)
    waits = []
    for n in range(5):
        decision = ask(full, None, f"e{n}")
        waits.append(wait_of(decision))
        full = gate_of(decision)
    assert waits == [9_000, 9_000, 19_000, 19_000, 29_000]


def test_a_check_alone_joins_no_wave() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW)
    for _ in range(3):
        decision = ask(full, parks=False)
        assert wait_of(decision) == WINDOW_MS
        assert gate_of(decision) == full


def test_a_wave_of_the_past_is_forgotten() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW, wave_at=NOW - 1, wave_size=1)
    assert wait_of(ask(full)) == WINDOW_MS
    far = gate(rate=1, in_window=1, oldest_at=NOW, wave_at=NOW + 10**9, wave_size=1)
    assert wait_of(ask(without_waves(far))) == WINDOW_MS


def test_a_refusal_plans_a_look_when_the_window_opens() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW)
    opens = NOW + WINDOW_MS
    assert gate_of(ask(full)).row.due_at == opens + LOOK_AGAIN_MS
    assert window_opens_at(full) == opens
    spread = gate(rate=1, in_window=1, oldest_at=NOW, jitter_ms=700)
    assert gate_of(ask(spread)).row.due_at == opens + 700 + LOOK_AGAIN_MS
    assert window_opens_at(spread) == opens + 700
    assert window_opens_at(gate(rate=1)) is None


@pytest.mark.parametrize(
    ("planned", "expected"),
    [
        (None, NOW + 5_000 + LOOK_AGAIN_MS),
        (NOW - 1, NOW + 5_000 + LOOK_AGAIN_MS),
        (NOW, NOW + 5_000 + LOOK_AGAIN_MS),
        (NOW + 1, NOW + 1),
        (NOW + 10**6, NOW + 5_000 + LOOK_AGAIN_MS),
    ],
)
def test_a_look_is_not_put_off(planned: int | None, expected: int) -> None:
    before = Gate(gate(rate=1).policy, GateRow("q", "default", due_at=planned))
    assert look_again_at(before, NOW + 5_000, NOW) == expected


# --- the window and the places -----------------------------------------------------------------


def test_a_start_as_old_as_the_window_leaves_it() -> None:
    rows = [
        AdmissionRow("q", "default", "e1", RUNNING, 0, NOW - WINDOW_MS - 1),
        AdmissionRow("q", "default", "e2", AdmissionState.RELEASED, 0, NOW - WINDOW_MS),
        AdmissionRow("q", "default", "e3", RUNNING, 0, NOW - WINDOW_MS + 1),
    ]
    after, left = trimmed(gate(rate=3, in_window=3, active=2), rows, Moment(NOW))
    assert [row.execution_id for row in left] == ["e1", "e2"]
    assert all(row.counted_at is None for row in left)
    assert (after.row.in_window, after.row.active) == (1, 2)
    assert after.oldest_at == NOW - WINDOW_MS + 1


def test_a_release_frees_the_place_and_keeps_the_start() -> None:
    held = AdmissionRow("q", "default", "e1", RUNNING, NOW, NOW, None)
    after, row, freed = release(gate(rate=3, cap=2, in_window=1, active=1), held)
    assert freed
    assert (after.row.active, after.row.in_window) == (0, 1)
    assert row == replace(held, state=AdmissionState.RELEASED)


@pytest.mark.parametrize("state", [None, AdmissionState.RELEASED])
def test_a_release_of_nothing_frees_nothing(state: AdmissionState | None) -> None:
    held = None if state is None else AdmissionRow("q", "default", "e1", state, NOW, NOW)
    before = gate(cap=2, active=1)
    assert release(before, held) == (before, held, False)


@pytest.mark.parametrize(
    ("rate", "cap", "room"), [(0, 0, 1 << 30), (5, 0, 3), (0, 4, 1), (5, 4, 1), (1, 1, 0)]
)
def test_room_is_what_both_limits_leave(rate: int, cap: int, room: int) -> None:
    assert gate(rate=rate, cap=cap, in_window=2, active=3).room == room


# --- policies and texts ------------------------------------------------------------------------

CREATE = CreateQuota(
    quota_policy_id="q", window_seconds=10, max_requests_per_window=3, max_concurrent=2, jitter_ms=0
)


def test_a_policy_is_created_once() -> None:
    first = create_quota(None, CREATE, Moment(NOW))
    assert first.policy == QuotaPolicy("q", 10, 3, 2, 0, NOW, NOW)
    again = create_quota(first.policy, CREATE, Moment(NOW + 1))
    assert isinstance(again.reply, QuotaAlreadySatisfied)
    assert again.policy is None
    other = create_quota(first.policy, replace(CREATE, max_concurrent=9), Moment(NOW))
    assert isinstance(other.reply, Refused)
    assert other.reply.error is LimitConflict


def test_an_update_keeps_what_it_does_not_name() -> None:
    policy = create_quota(None, CREATE, Moment(NOW)).policy
    changed = update_quota(
        policy,
        UpdateQuota(
            quota_policy_id="q",
            window_seconds=None,
            max_requests_per_window=0,
            max_concurrent=None,
            jitter_ms=7,
        ),
        Moment(NOW + 1),
    ).policy
    assert changed == QuotaPolicy("q", 10, 0, 2, 7, NOW, NOW + 1)
    missing = update_quota(
        None,
        UpdateQuota(
            quota_policy_id="q",
            window_seconds=None,
            max_requests_per_window=0,
            max_concurrent=None,
            jitter_ms=7,
        ),
        Moment(NOW),
    )
    assert isinstance(missing.reply, Refused)
    assert missing.reply.error is NotFound


def test_a_denial_is_one_sentence() -> None:
    rated = gate(rate=3, in_window=3)
    assert denial_text(rated, RateExceeded(1)) == "quota q: 3/3 starts in 10 s"
    keyed = Gate(gate(cap=2).policy, GateRow("q", "customer-7", active=2))
    assert denial_text(keyed, ConcurrencyExceeded()) == "quota q for customer-7: 2/2 running"
