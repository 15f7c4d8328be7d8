"""The rules of quotas, one by one."""

from __future__ import annotations

import pytest

from flowfabric.errors import LimitConflict, NotFound, PlaceInUse
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.limit.quota import (
    IDLE_GATE_MS,
    LOOK_AGAIN_MS,
    CheckAdmission,
    Gate,
    ReleaseAdmission,
    admit,
    check_admission,
    denial_text,
    lapse,
    look_again_at,
    release,
    release_admission,
    row_of,
    trim,
    unused,
    use_reserved,
    window_opens_at,
    without_waves,
)
from flowfabric.kernel.limit.quota_policy import (
    CreateQuota,
    UpdateQuota,
    create_quota,
    update_quota,
)
from flowfabric.model.bounds import Bounds
from flowfabric.model.quota import (
    AdmissionOutcome,
    AdmissionReleased,
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
from tests.support.builders import EXECUTION_ID, NOW, completed, created, leased
from tests.support.decisions import saved, the

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
) -> Decision[AdmissionOutcome]:
    return admit(before, held, execution_id, RUNNING, Moment(now), jitter=jitter, parks=parks)


def wait_of(decision: Decision[AdmissionOutcome]) -> int:
    assert isinstance(decision.reply, RateExceeded)
    return decision.reply.retry_after_ms


# --- admission ---------------------------------------------------------------------------------


def test_an_admission_takes_a_place_and_a_start() -> None:
    decision = ask(gate(rate=3, cap=2))
    assert decision.reply == Admitted()
    row = the(decision, Gate).row
    assert (row.active, row.in_window) == (1, 1)
    assert the(decision, AdmissionRow) == AdmissionRow(
        "q", "default", "e1", RUNNING, NOW, NOW, None
    )


def test_without_a_rate_nothing_is_counted_in_the_window() -> None:
    decision = ask(gate(cap=2))
    assert the(decision, Gate).row.in_window == 0
    assert the(decision, AdmissionRow).counted_at is None


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
        assert saved(decision, AdmissionRow) == ()
        for after in saved(decision, Gate):
            row = after.row
            assert (row.active, row.in_window) == (full.row.active, full.row.in_window)


def test_an_execution_with_a_slot_is_not_counted_again() -> None:
    held = AdmissionRow("q", "default", "e1", RESERVED, NOW - 5, NOW - 5, NOW + 5)
    before = gate(rate=1, cap=1, in_window=1, active=1)
    decision = ask(before, held)
    assert decision.reply == AlreadyAdmitted()
    assert decision.saves == (replace(held, state=RUNNING, due_at=None),)
    (kept,) = decision.saves
    assert isinstance(kept, AdmissionRow)
    assert ask(before, kept).saves == ()


def test_a_second_start_moves_in_the_window() -> None:
    """One entry per execution, so it needs no second start of a full window."""
    held = AdmissionRow("q", "default", "e1", AdmissionState.RELEASED, NOW - 5, NOW - 5)
    decision = ask(gate(rate=1, in_window=1, oldest_at=NOW - 5), held)
    assert decision.reply == Admitted()
    assert the(decision, Gate).row.in_window == 1
    assert the(decision, AdmissionRow).counted_at == NOW


def test_an_entry_that_left_the_window_is_counted_anew() -> None:
    held = AdmissionRow("q", "default", "e1", AdmissionState.RELEASED, NOW - 5, None)
    assert the(ask(gate(rate=3, in_window=1), held), Gate).row.in_window == 2


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
        full = the(decision, Gate)
    assert waits == [9_000, 9_000, 19_000, 19_000, 29_000]


def test_a_check_alone_joins_no_wave() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW)
    for _ in range(3):
        decision = ask(full, parks=False)
        assert wait_of(decision) == WINDOW_MS
        assert decision.saves == ()


def test_a_wave_of_the_past_is_forgotten() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW, wave_at=NOW - 1, wave_size=1)
    assert wait_of(ask(full)) == WINDOW_MS
    far = gate(rate=1, in_window=1, oldest_at=NOW, wave_at=NOW + 10**9, wave_size=1)
    assert wait_of(ask(without_waves(far))) == WINDOW_MS


def test_a_refusal_plans_a_look_when_the_window_opens() -> None:
    full = gate(rate=1, in_window=1, oldest_at=NOW)
    opens = NOW + WINDOW_MS
    assert the(ask(full), Gate).row.due_at == opens + LOOK_AGAIN_MS
    assert window_opens_at(full) == opens
    spread = gate(rate=1, in_window=1, oldest_at=NOW, jitter_ms=700)
    assert the(ask(spread), Gate).row.due_at == opens + 700 + LOOK_AGAIN_MS
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
    decision = trim(gate(rate=3, in_window=3, active=2), rows, Moment(NOW))
    assert decision.reply == 2
    assert saved(decision, AdmissionRow) == (replace(rows[0], counted_at=None),)
    assert decision.drops == (replace(rows[1], counted_at=None),)  # it has nothing more to say
    after = the(decision, Gate)
    assert (after.row.in_window, after.row.active) == (1, 2)
    assert after.oldest_at == NOW - WINDOW_MS + 1


def test_a_release_frees_the_slot_and_keeps_the_start() -> None:
    held = AdmissionRow("q", "default", "e1", RUNNING, NOW, NOW, None)
    decision = release(gate(rate=3, cap=2, in_window=1, active=1), [held])
    assert decision.reply == 1
    after = the(decision, Gate)
    assert (after.row.active, after.row.in_window) == (0, 1)
    assert the(decision, AdmissionRow) == replace(held, state=AdmissionState.RELEASED)


def test_a_released_admission_that_is_not_counted_goes() -> None:
    held = AdmissionRow("q", "default", "e1", RUNNING, NOW, None, None)
    decision = release(gate(cap=2, active=1), [held])
    assert saved(decision, AdmissionRow) == ()
    assert decision.drops == (held,)


@pytest.mark.parametrize("state", [None, AdmissionState.RELEASED])
def test_a_release_of_nothing_frees_nothing(state: AdmissionState | None) -> None:
    held = None if state is None else AdmissionRow("q", "default", "e1", state, NOW, NOW)
    assert release(gate(cap=2, active=1), [held]) == Decision(0)
    active = AdmissionRow("q", "default", "e1", RUNNING, NOW, NOW)
    assert release(None, [active]) == Decision(0)


def test_many_slots_are_freed_at_once() -> None:
    names = ("e1", "e2", "e3")
    rows = [AdmissionRow("q", "default", name, RUNNING, NOW, NOW) for name in names]
    released = replace(rows[2], state=AdmissionState.RELEASED)
    before = gate(rate=9, cap=9, in_window=3, active=3)
    decision = release(before, [rows[0], rows[1], None, rows[1], released])
    assert decision.reply == 2
    assert the(decision, Gate).row.active == 1
    assert [each.execution_id for each in saved(decision, AdmissionRow)] == ["e1", "e2"]


@pytest.mark.parametrize(
    ("state", "due_at", "lapses"),
    [(RESERVED, NOW, True), (RESERVED, NOW + 1, False), (RUNNING, None, False)],
)
def test_a_reserved_slot_lapses_at_its_time(
    state: AdmissionState, due_at: int | None, lapses: bool
) -> None:
    held = AdmissionRow("q", "default", "e1", state, 0, None, due_at)
    decision = lapse(gate(cap=2, active=1), held, Moment(NOW))
    assert decision.reply == lapses
    assert lapse(gate(cap=2, active=1), None, Moment(NOW)) == Decision(0)


def test_a_reserved_slot_becomes_a_used_one() -> None:
    held = AdmissionRow("q", "default", "e1", RESERVED, 0, None, NOW)
    used = replace(held, state=RUNNING, due_at=None)
    assert use_reserved(held) == Decision(None, saves=(used,))
    for other in (used, replace(held, state=AdmissionState.RELEASED)):
        assert use_reserved(other) == Decision(None)


def test_a_used_gate_has_a_row_that_is_looked_at_by_itself() -> None:
    assert row_of(gate(cap=1), NOW) is None
    used = gate(cap=1, active=1)
    assert row_of(used, NOW) == replace(used.row, due_at=NOW + IDLE_GATE_MS)
    planned = gate(cap=1, active=1, due_at=NOW + 5)
    assert row_of(planned, NOW) == planned.row
    assert unused(planned) == gate(cap=1)


# --- an external scheduler -----------------------------------------------------------------------

CHECK = CheckAdmission(
    execution_id=EXECUTION_ID,
    quota_policy_id="q",
    dimension="default",
    reservation_ms=100,
    jitter=0.0,
)
GIVE_BACK = ReleaseAdmission(execution_id=EXECUTION_ID, quota_policy_id="q", dimension="default")


def test_a_slot_reserved_from_outside_is_counted_by_its_execution() -> None:
    decision = check_admission(created(), gate(cap=1), None, CHECK, Moment(NOW))
    assert decision.reply == Admitted()
    assert decision.execution == replace(created(), side_holds=1)
    held = the(decision, AdmissionRow)
    assert (held.state, held.due_at) == (RESERVED, NOW + 100)
    again = check_admission(created(), the(decision, Gate), held, CHECK, Moment(NOW))
    assert again == Decision(AlreadyAdmitted())
    full = check_admission(created(), the(decision, Gate), None, CHECK, Moment(NOW))
    assert full == Decision(ConcurrencyExceeded())


def test_a_slot_of_an_execution_that_runs_is_used_at_once() -> None:
    decision = check_admission(leased(), gate(cap=1), None, CHECK, Moment(NOW))
    held = the(decision, AdmissionRow)
    assert (held.state, held.due_at) == (RUNNING, None)


def test_a_slot_may_be_asked_for_what_is_not_there() -> None:
    for execution in (None, completed()):
        decision = check_admission(execution, gate(cap=1), None, CHECK, Moment(NOW))
        assert (decision.reply, decision.execution) == (Admitted(), None)
    unknown = check_admission(created(), None, None, CHECK, Moment(NOW))
    assert isinstance(unknown.reply, Refused)
    assert unknown.reply.error is NotFound


def test_a_reserved_slot_is_given_back_and_one_in_use_is_not() -> None:
    held = AdmissionRow("q", "default", EXECUTION_ID, RESERVED, NOW, None, NOW + 100)
    owner, busy = replace(created(), side_holds=1), gate(cap=1, active=1)
    decision = release_admission(owner, busy, held, GIVE_BACK)
    assert (decision.reply, decision.execution) == (AdmissionReleased(True), created())
    own = replace(owner, bounds=Bounds(quota_policy_id="q"))  # counted by the grant, not beside it
    assert release_admission(own, busy, held, GIVE_BACK).execution is None
    used = release_admission(owner, busy, replace(held, state=RUNNING), GIVE_BACK)
    assert isinstance(used.reply, Refused)
    assert used == Decision(used.reply)
    assert used.reply.error is PlaceInUse
    assert release_admission(owner, busy, None, GIVE_BACK) == Decision(AdmissionReleased(False))


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
    made = the(first, QuotaPolicy)
    assert made == QuotaPolicy("q", 10, 3, 2, 0, NOW, NOW)
    again = create_quota(made, CREATE, Moment(NOW + 1))
    assert isinstance(again.reply, QuotaAlreadySatisfied)
    assert again.saves == ()
    other = create_quota(made, replace(CREATE, max_concurrent=9), Moment(NOW))
    assert isinstance(other.reply, Refused)
    assert other.reply.error is LimitConflict


def test_an_update_keeps_what_it_does_not_name() -> None:
    policy = the(create_quota(None, CREATE, Moment(NOW)), QuotaPolicy)
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
    )
    assert the(changed, QuotaPolicy) == QuotaPolicy("q", 10, 0, 2, 7, NOW, NOW + 1, 1)
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
