"""Create: once per key and content, on open lanes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import IdempotencyConflict, LaneClosed
from flowfabric.kernel.decision import Decision, Moment
from flowfabric.kernel.execution.create import CreateExecution, create, fingerprint_of
from flowfabric.model.execution import Body, IdempotencyRecord
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.results import Created, Duplicate
from flowfabric.model.route import LaneState, Route
from flowfabric.model.state import AttemptState, PublicState
from tests.support import builders as make
from tests.support.builders import EXECUTION_ID, NOW, ROUTE, refusal

OTHER_ID = EXECUTION_ID[:-1] + "2"


def command(fingerprint: bytes = b"f", window_ms: int = 1000) -> CreateExecution:
    body = Body(EXECUTION_ID, b"payload", idempotency_key="key")
    policy = ExecutionPolicy(dedup_window_ms=window_ms)
    return CreateExecution(
        execution_id=EXECUTION_ID,
        route=ROUTE,
        priority=0,
        policy=policy,
        body=body,
        tags={},
        fingerprint=fingerprint,
    )


def known(fingerprint: bytes = b"f") -> IdempotencyRecord:
    return IdempotencyRecord("default", "key", OTHER_ID, fingerprint, NOW + 1000)


def attempt(
    record: IdempotencyRecord | None = None, lane: LaneState = LaneState.ACTIVE, now: int = NOW
) -> Decision[Any]:
    return create(None, record, make.lanes(lane), command(), Moment(now))


def test_new_work_waits_for_its_first_attempt() -> None:
    decision = attempt()
    assert decision.reply == Created(EXECUTION_ID, PublicState.WAITING)
    assert decision.execution is not None
    assert decision.execution.state.attempt_state is AttemptState.PENDING_FIRST_ATTEMPT
    assert decision.execution.lease_epoch == 0
    assert decision.new is not None
    assert decision.new.idempotency is not None
    assert decision.new.idempotency.expires_at == NOW + 1000


@pytest.mark.parametrize(("late_ms", "kind"), [(999, Duplicate), (1000, Created), (1001, Created)])
def test_a_key_is_remembered_for_exactly_its_window(late_ms: int, kind: type) -> None:
    """dedup_window_ms is honoured; at its end the key is free."""
    reply = attempt(known(), now=NOW + late_ms).reply
    assert isinstance(reply, kind)
    if isinstance(reply, Duplicate):
        assert reply.execution_id == OTHER_ID


def test_other_content_under_the_same_key_is_a_conflict() -> None:
    decision = attempt(known(b"other"))
    assert refusal(decision) is IdempotencyConflict
    assert decision.reply.fields["execution_id"] == OTHER_ID


@pytest.mark.parametrize("lane", LaneState)
def test_a_closed_lane_takes_nothing_in_but_still_knows_its_keys(lane: LaneState) -> None:
    """I6: a repeated create is answered whatever happened to the lane since."""
    open_lane = lane in (LaneState.ACTIVE, LaneState.PAUSED)
    if open_lane:
        assert isinstance(attempt(lane=lane).reply, Created)
    else:
        assert refusal(attempt(lane=lane)) is LaneClosed
    assert isinstance(attempt(known(), lane=lane).reply, Duplicate)


def test_our_own_committed_try_is_answered_again() -> None:
    """I6: the answer was lost, the row was not."""
    decision = create(make.created(), known(), make.NO_LANES, command(), Moment(NOW))
    assert decision.reply == Created(EXECUTION_ID, PublicState.WAITING)
    assert decision.execution is None


BASE: dict[str, Any] = {
    "route": ROUTE,
    "priority": 1,
    "policy": ExecutionPolicy(),
    "body": Body(EXECUTION_ID, b"payload", "json", "ann", "key"),
    "tags": {"a.b": "c"},
}


@pytest.mark.parametrize(
    "changes",
    [
        {"route": Route("other", "lane", "kind")},
        {"route": Route("default", "other", "kind")},
        {"route": Route("default", "lane", "other")},
        {"route": Route("default", "lane", "kind", ("gpu",))},
        {"priority": 2},
        {"policy": ExecutionPolicy(max_replay_count=1)},
        {"body": Body(EXECUTION_ID, b"payloae", "json", "ann", "key")},
        {"body": Body(EXECUTION_ID, b"payload", "text", "ann", "key")},
        {"body": Body(EXECUTION_ID, b"payload", "json", "bob", "key")},
        {"tags": {"a.b": "d"}},
        {"tags": {}},
    ],
)
def test_the_fingerprint_sees_every_part_of_the_content(changes: dict[str, Any]) -> None:
    assert fingerprint_of(**BASE) != fingerprint_of(**{**BASE, **changes})


def test_the_fingerprint_ignores_instants_and_the_minted_id() -> None:
    same = {
        **BASE,
        "policy": ExecutionPolicy(delay_until=5),
        "body": Body(OTHER_ID, b"payload", "json", "ann", "key"),
    }
    assert fingerprint_of(**BASE) == fingerprint_of(**same)


@given(st.binary(), st.binary())
def test_different_payloads_have_different_fingerprints(first: bytes, second: bytes) -> None:
    prints = [
        fingerprint_of(**{**BASE, "body": Body(EXECUTION_ID, payload)})
        for payload in (first, second)
    ]
    assert (prints[0] == prints[1]) == (first == second)
