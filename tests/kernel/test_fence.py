"""Only the live owner writes: the one fence, at every edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from flowfabric.errors import (
    ExecutionNotActive,
    FenceRequired,
    LeaseExpired,
    LeaseRevoked,
    NotFound,
    StaleLease,
)
from flowfabric.kernel.execution.cancel import Cancel
from flowfabric.kernel.execution.fence import LEASE_HOLDER, OPERATOR_OVERRIDE
from flowfabric.kernel.execution.own import Progress, Renew
from flowfabric.model.execution import Execution, Fence
from flowfabric.model.record import replace
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, TTL_MS, decide, fence_of, refusal

OWNERS_CALLS: dict[str, Callable[[Fence], Any]] = {
    "renew": lambda fence: Renew(execution_id=EXECUTION_ID, fence=fence, lease_ttl_ms=TTL_MS),
    "progress": lambda fence: Progress(
        execution_id=EXECUTION_ID, fence=fence, percent=10, message="half"
    ),
    "delay": lambda fence: make.delay_with(fence, NOW + 5),
    "complete": make.complete_with,
    "fail": make.fail_with,
    "cancel": lambda fence: Cancel(
        execution_id=EXECUTION_ID, reason="stop", source=LEASE_HOLDER, fence=fence
    ),
}
every_call = pytest.mark.parametrize("call", OWNERS_CALLS)


def command(call: str, fence: Fence) -> Any:
    return OWNERS_CALLS[call](fence)


def assert_refused(
    execution: Execution | None, call: str, fence: Fence, error: type, now: int = NOW
) -> None:
    assert refusal(decide(execution, command(call, fence), now)) is error


@every_call
def test_the_live_owner_is_let_through(call: str) -> None:
    """Invariant I3."""
    running = make.leased()
    assert decide(running, command(call, fence_of(running))).execution is not None


@every_call
def test_an_unknown_execution_is_not_found(call: str) -> None:
    """One error per condition."""
    assert_refused(None, call, Fence("lease", 1, "attempt"), NotFound)


@every_call
@pytest.mark.parametrize("off", [-1, 1])
def test_another_epoch_is_stale_even_with_the_right_secrets(call: str, off: int) -> None:
    """Invariant I3."""
    running = make.leased()
    fence = fence_of(running)
    wrong = Fence(fence.lease_id, fence.lease_epoch + off, fence.attempt_id)
    assert_refused(running, call, wrong, StaleLease)


@every_call
def test_another_lease_id_is_stale_even_with_the_right_epoch(call: str) -> None:
    """The epoch can be guessed, the lease id cannot."""
    running = make.leased()
    assert_refused(running, call, replace(fence_of(running), lease_id="guess"), StaleLease)


@every_call
def test_another_attempt_id_is_stale(call: str) -> None:
    """The whole triple is compared."""
    running = make.leased()
    assert_refused(running, call, replace(fence_of(running), attempt_id="other"), StaleLease)


@every_call
@pytest.mark.parametrize("field", ["lease_id", "attempt_id"])
def test_an_empty_secret_never_matches(call: str, field: str) -> None:
    running = make.leased()
    assert_refused(running, call, replace(fence_of(running), **{field: ""}), StaleLease)


@every_call
def test_a_lease_is_good_one_millisecond_before_its_end(call: str) -> None:
    running = make.leased()
    last = NOW + TTL_MS - 1
    assert decide(running, command(call, fence_of(running)), last).execution is not None


@every_call
@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_lease_is_over_at_its_end(call: str, late_ms: int) -> None:
    """Refused when now >= expires_at, noticed or not."""
    running = make.leased()
    assert_refused(running, call, fence_of(running), LeaseExpired, NOW + TTL_MS + late_ms)


@every_call
def test_after_the_expiry_was_noticed_its_owner_hears_lease_expired(call: str) -> None:
    """Expiry raises the epoch, and the owner still learns the true cause."""
    running = make.leased(NOW - TTL_MS)
    assert_refused(make.lapsed(), call, fence_of(running), LeaseExpired)


@every_call
def test_an_older_owner_hears_stale_lease_after_an_expiry(call: str) -> None:
    lapsed = make.lapsed()
    old = Fence("lease-w1-1", lapsed.lease_epoch - 2, "attempt-0")
    assert_refused(lapsed, call, old, StaleLease)


@every_call
def test_a_revoked_owner_hears_lease_revoked(call: str) -> None:
    running = make.leased()
    assert_refused(make.revoked(), call, fence_of(running), LeaseRevoked)


@every_call
@pytest.mark.parametrize("situation", ["waiting", "delayed", "held", "requeued", "parked"])
def test_an_execution_that_does_not_run_has_no_owner(call: str, situation: str) -> None:
    execution = make.SITUATIONS[situation]()
    stranger = Fence("lease-x", execution.lease_epoch, execution.attempt_id or "attempt-0")
    assert_refused(execution, call, stranger, ExecutionNotActive)


@pytest.mark.parametrize("call", ["complete", "fail", "delay", "cancel"])
@pytest.mark.parametrize("source", ["", "worker", LEASE_HOLDER, "OPERATOR_OVERRIDE"])
def test_without_a_fence_only_the_named_operator_source_may_write(call: str, source: str) -> None:
    """No default source; anything else is fence_required."""
    running = make.leased()
    calls = {
        "complete": make.complete_with(None, source),
        "fail": make.fail_with(None, source=source),
        "delay": make.delay_with(None, NOW + 5, source),
        "cancel": Cancel(execution_id=EXECUTION_ID, reason="stop", source=source),
    }
    assert refusal(decide(running, calls[call])) is FenceRequired


@pytest.mark.parametrize("call", ["complete", "fail", "delay"])
def test_the_operator_override_skips_no_gate_but_identity(call: str) -> None:
    """Not active, revoked and expired are refused for the operator as well."""
    calls = {
        "complete": make.complete_with(None, OPERATOR_OVERRIDE),
        "fail": make.fail_with(None, source=OPERATOR_OVERRIDE),
        "delay": make.delay_with(None, NOW + 5, OPERATOR_OVERRIDE),
    }
    assert decide(make.leased(), calls[call]).execution is not None
    assert refusal(decide(make.created(), calls[call])) is ExecutionNotActive
    assert refusal(decide(make.revoked(), calls[call])) is LeaseRevoked
    assert refusal(decide(make.lapsed(), calls[call])) is LeaseExpired
    assert refusal(decide(make.leased(), calls[call], NOW + TTL_MS)) is LeaseExpired
    assert refusal(decide(None, calls[call])) is NotFound


def test_not_active_tells_what_a_repeating_caller_needs() -> None:
    """Outcome, epoch, phase and attempt id."""
    done = make.completed()
    reply = decide(done, make.fail_with(Fence("lease-x", 1, "attempt-0"))).reply
    assert reply.error is ExecutionNotActive
    assert reply.fields["terminal_outcome"] == "success"
    assert reply.fields["lifecycle_phase"] == "terminal"
    assert reply.fields["lease_epoch"] == done.lease_epoch
    assert reply.fields["attempt_id"] == "attempt-0"
