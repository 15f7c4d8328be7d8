"""Bad input about suspension: a typed error that names the field, and nothing changed."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.api.waits import Fresh, SuspendRequest, UsePending
from flowfabric.errors import (
    InvalidInput,
    InvalidToken,
    PayloadTooLarge,
    WaitpointClosed,
)
from flowfabric.limits import DURATION_MS_MAX, WAITPOINTS_MAX
from flowfabric.model.suspension import (
    AllOf,
    AnyOf,
    Count,
    CountKind,
    OperatorOnly,
    Single,
    TimeoutOnly,
)
from tests.support.lab import Lab, scenario
from tests.support.waits import Waiting, pending, suspended

ONE = Single("a")
WAYS = CountKind.DISTINCT_WAITPOINTS
DEEP5: Any = AllOf((AllOf((AllOf((AllOf((AllOf((ONE,)),)),)),)),))
LONG = "x" * 257

CONDITIONS: dict[str, tuple[Any, str]] = {
    "no condition": (None, "expected a condition, got NoneType at <root>"),
    "a word": ("operator_only", "expected a condition, got str at <root>"),
    "depth 5": (DEEP5, "depth 5 exceeds cap 4 at members[0].members[0].members[0].members[0]"),
    "count of depth 5": (
        AllOf((AllOf((AllOf((AnyOf((Count(1, WAYS, ("a",)),)),)),)),)),
        "depth 5 exceeds cap 4",
    ),
    "65 nodes": (AnyOf((ONE,) * 64), "65 nodes are over the limit 64"),
    "n = 0": (Count(0, WAYS, ("a",)), "count_n_zero at <root>"),
    "n < 0": (Count(-1, WAYS, ("a",)), "count_n_zero"),
    "n huge": (Count(10**30, CountKind.DISTINCT_SIGNALS, ("a",)), "n: 1"),
    "n text": (Count("2", WAYS, ("a",)), "n: expected a whole number, got str"),  # type: ignore[arg-type]
    "n flag": (Count(True, WAYS, ("a",)), "n: expected a whole number, got bool"),
    "unknown kind": (Count(1, "distinct_moods", ("a",)), "count_kind"),  # type: ignore[arg-type]
    "no waitpoints": (Count(1, WAYS, ()), "count_waitpoints_empty"),
    "waitpoints text": (Count(1, WAYS, "abc"), "waitpoints: expected a tuple, got str"),  # type: ignore[arg-type]
    "duplicate waitpoints": (
        Count(1, CountKind.DISTINCT_SIGNALS, ("a", "a")),
        "waitpoints: a key is listed twice",
    ),
    "unsatisfiable count": (
        AllOf((ONE, Count(3, WAYS, ("a", "b")))),
        "count_exceeds_waitpoint_set: n=3 > waitpoints.len()=2 at members[1]",
    ),
    "empty all_of": (AllOf(()), "allof_empty_members at <root>"),
    "empty any_of": (AllOf((AnyOf(()),)), "anyof_empty_members at members[0]"),
    "members missing": (AllOf(None), "members: expected a tuple, got NoneType"),  # type: ignore[arg-type]
    "member no condition": (AllOf((ONE, 5)), "expected a condition, got int at members[1]"),  # type: ignore[arg-type]
    "operator inside": (AllOf((ONE, OperatorOnly())), "can never be satisfied"),
    "timeout inside": (AnyOf((TimeoutOnly(),)), "can never be satisfied"),
    "empty key": (Single(""), "waitpoint_key"),
    "long key": (Single(LONG), "waitpoint_key"),
    "control key": (Single("a\x1fb"), "waitpoint_key"),
    "key no text": (Single(5), "waitpoint_key"),  # type: ignore[arg-type]
    "empty key of count": (Count(1, WAYS, ("",)), "waitpoint_key"),
    "empty name": (Single("a", ""), "empty signal name"),
    "empty name inside": (AllOf((Single("a", ""),)), "empty signal name (leave it out"),
    "reserved name": (Single("a", "__operator_only__"), "reserved"),
    "reserved name in count": (Count(1, WAYS, ("a",), "__x"), "reserved"),
    "long name": (Single("a", LONG), "signal_name"),
    "name no text": (Single("a", 5), "signal_name"),  # type: ignore[arg-type]
}


@scenario
async def test_a_malformed_condition_is_refused_by_its_place(lab: Lab) -> None:
    """Typed, names the place, leaves nothing behind."""
    lab.engine = lab.direct  # what is wrong here has no form on a wire
    claimed = await lab.started()
    async with lab.unchanged():
        for what, (condition, detail) in CONDITIONS.items():
            with pytest.raises(InvalidInput) as caught:
                await lab.engine.suspend(claimed.handle, SuspendRequest(resume_condition=condition))
            assert detail in str(caught.value), what
            assert caught.value.fields["field"] == "resume_condition", what


REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "key mismatch": ({"waitpoints": (Fresh("b"),)}, "waitpoint_key_mismatch"),
    "a key missing": (
        {"resume_condition": AllOf((ONE, Single("b"))), "waitpoints": (Fresh("a"),)},
        "referenced_waitpoint_key_missing_binding: b",
    ),
    "a key too many": (
        {"waitpoints": (Fresh("a"), Fresh("b"))},
        "extra_binding_not_referenced_by_condition: b",
    ),
    "a key twice": ({"waitpoints": (Fresh("a"), Fresh("a"))}, "a key is listed twice"),
    "empty key": ({"waitpoints": (Fresh(""),)}, "waitpoint_key"),
    "long key": ({"waitpoints": (Fresh(LONG),)}, "waitpoint_key"),
    "no binding": ({"waitpoints": ("a",)}, "waitpoints[0]"),
    "no tuple": ({"waitpoints": None}, "waitpoints"),
    "pending without id": ({"waitpoints": (UsePending("", "a"),)}, "waitpoints[0].waitpoint_id"),
    "payload type no schema": ({"waitpoints": (Fresh("a", "nonsense"),)}, "payload_type"),
    "payload type a number": ({"waitpoints": (Fresh("a", "5"),)}, "payload_type"),
    "payload type broken": ({"waitpoints": (Fresh("a", '{"items":5}'),)}, "payload_type"),
    "payload type no text": ({"waitpoints": (Fresh("a", 5),)}, "payload_type"),  # type: ignore[arg-type]
    "unknown reason": ({"reason_code": "boredom"}, "reason_code"),
    "unknown requester": ({"requested_by": "nobody"}, "requested_by"),
    "unknown behaviour": ({"timeout_behavior": "explode"}, "timeout_behavior"),
    "timeout no number": ({"timeout_at": "soon"}, "timeout_at"),
    "timeout a flag": ({"timeout_at": True}, "timeout_at"),
    "timeout before the epoch": ({"timeout_at": -1}, "timeout_at"),
    "timeout after all time": ({"timeout_at": 10**18}, "timeout_at"),
    "timeout only without one": (
        {"resume_condition": TimeoutOnly()},
        "timeout_at: TimeoutOnly needs a timeout",
    ),
    "negative delay": ({"resume_delay_ms": -1}, "resume_delay_ms"),
    "delay too long": ({"resume_delay_ms": DURATION_MS_MAX + 1}, "resume_delay_ms"),
    "delay no number": ({"resume_delay_ms": "1"}, "resume_delay_ms"),
    "long pointer": ({"continuation_metadata_pointer": "x" * 5000}, "continuation_metadata"),
    "pointer no text": ({"continuation_metadata_pointer": 5}, "continuation_metadata_pointer"),
    "long idempotency key": ({"idempotency_key": "x" * 513}, "idempotency_key"),
    "idempotency key no text": ({"idempotency_key": 5}, "idempotency_key"),
}


@scenario
async def test_a_malformed_suspend_is_refused_by_its_field(lab: Lab) -> None:
    """One validator in front of every store."""
    claimed = await lab.started()
    async with lab.unchanged():
        for fields, detail in REQUESTS.values():
            request = SuspendRequest(**{"resume_condition": ONE, **fields})
            with pytest.raises(InvalidInput) as caught:
                await lab.engine.suspend(claimed.handle, request)
            assert detail in str(caught.value)
            assert "field" in caught.value.fields
        for wrong in (None, "now", {"resume_condition": ONE}):
            with pytest.raises(InvalidInput, match="request"):
                await lab.direct.suspend(claimed.handle, wrong)  # type: ignore[arg-type]
        for age in (3_600_000, 600_001):
            past = SuspendRequest(resume_condition=ONE, timeout_at=lab.now - age)
            with pytest.raises(InvalidInput, match="timeout_at: is in the past"):
                await lab.engine.suspend(claimed.handle, past)
        keys = tuple(f"k{number}" for number in range(WAITPOINTS_MAX + 1))
        crowd = SuspendRequest(
            resume_condition=Count(1, WAYS, keys), waitpoints=tuple(Fresh(key) for key in keys)
        )
        with pytest.raises(InvalidInput, match="waitpoints"):
            await lab.engine.suspend(claimed.handle, crowd)
        with pytest.raises(InvalidInput, match="waitpoints"):
            await lab.engine.suspend(
                claimed.handle, SuspendRequest(resume_condition=Count(1, WAYS, keys))
            )


@scenario
async def test_a_malformed_waitpoint_is_refused_by_its_field(lab: Lab) -> None:
    claimed = await lab.started()
    async with lab.unchanged():
        for fields, name in (
            ({"key": ""}, "waitpoint_key"),
            ({"key": LONG}, "waitpoint_key"),
            ({"key": 5}, "waitpoint_key"),
            ({"expires_in_ms": 0}, "expires_in_ms"),
            ({"expires_in_ms": -1}, "expires_in_ms"),
            ({"expires_in_ms": DURATION_MS_MAX + 1}, "expires_in_ms"),
            ({"expires_in_ms": "1"}, "expires_in_ms"),
            ({"payload_type": "{"}, "payload_type"),
            ({"payload_type": "[]"}, "payload_type"),
            ({"payload_type": '{"properties":[]}'}, "payload_type"),
            ({"payload_type": "x" * 65_537}, "payload_type"),
            ({"payload_type": 5}, "payload_type"),
        ):
            with pytest.raises(InvalidInput, match=name):
                await pending(lab, claimed, **fields)


SIGNALS: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"signal_name": ""}, "signal_name"),
    "long name": ({"signal_name": LONG}, "signal_name"),
    "name no text": ({"signal_name": 5}, "signal_name"),
    "name with a control character": ({"signal_name": "a\nb"}, "signal_name"),
    "reserved operator": ({"signal_name": "__operator_only__"}, "signal_name"),
    "reserved timeout": ({"signal_name": "__timeout_only__"}, "signal_name"),
    "bad execution": ({"execution_id": "x"}, "execution_id"),
    "no waitpoint": ({"waitpoint_id": ""}, "waitpoint_id"),
    "waitpoint no text": ({"waitpoint_id": None}, "waitpoint_id"),
    "empty token": ({"token": ""}, "token"),
    "token no text": ({"token": 5}, "token"),
    "token missing": ({"token": None}, "token"),
    "huge token": ({"token": "k1:" + "0" * 1000}, "token"),
    "long category": ({"signal_category": LONG}, "signal_category"),
    "long source type": ({"source_type": LONG}, "source_type"),
    "an operator without being one": ({"source_type": "operator"}, "source_type"),
    "the engine without being it": ({"source_type": "system"}, "source_type"),
    "long source": ({"source_identity": LONG}, "source_identity"),
    "source no text": ({"source_identity": 5}, "source_identity"),
    "source with a separator": ({"source_identity": "a\x1fb"}, "source_identity"),
    "long correlation": ({"correlation_id": LONG}, "correlation_id"),
    "payload text": ({"payload": "text"}, "payload"),
    "payload a list": ({"payload": [1, 2]}, "payload"),
    "no encoding": ({"payload_encoding": ""}, "payload_encoding"),
    "long key": ({"idempotency_key": "x" * 513}, "idempotency_key"),
    "key no text": ({"idempotency_key": 5}, "idempotency_key"),
    "negative ttl": ({"dedup_ttl_ms": -1}, "dedup_ttl_ms"),
    "ttl no number": ({"dedup_ttl_ms": 1.5}, "dedup_ttl_ms"),
    "negative delay": ({"resume_delay_ms": -1}, "resume_delay_ms"),
    "delay too long": ({"resume_delay_ms": DURATION_MS_MAX + 1}, "resume_delay_ms"),
    "created no number": ({"created_at": "now"}, "created_at"),
    "created before time": ({"created_at": -1}, "created_at"),
    "signal id no text": ({"signal_id": 5}, "signal_id"),
    "long signal id": ({"signal_id": LONG}, "signal_id"),
}


@scenario
async def test_a_malformed_signal_is_refused_by_its_field(lab: Lab) -> None:
    """Shape and size come before authentication."""
    waiting = await suspended(lab, ONE)
    async with lab.unchanged():
        for fields, name in SIGNALS.values():
            with pytest.raises(InvalidInput) as caught:
                await waiting.send(**fields)
            assert caught.value.fields["field"] == name
        for wrong in (None, "go", {"signal_name": "go"}):
            with pytest.raises(InvalidInput, match="signal"):
                await lab.engine.deliver_signal(wrong)  # type: ignore[arg-type]
        with pytest.raises(PayloadTooLarge, match="payload: 65537 bytes") as too_large:
            await waiting.send(payload=b"x" * 65_537)
        assert too_large.value.fields == {"field": "payload", "limit": 65_536}


@scenario
async def test_a_signal_to_a_closed_or_unknown_waitpoint_changes_nothing(lab: Lab) -> None:
    waiting, other = await suspended(lab, ONE), await suspended(lab, ONE)
    gone = waiting.execution_id[:-12] + "0" * 12
    for fields in (
        {"waitpoint_id": "0" * 36},
        {"waitpoint_id": other.at["a"].waitpoint_id},
        {"execution_id": other.execution_id},
        {"execution_id": gone},
    ):
        async with lab.refuses(InvalidToken):
            await waiting.send(**fields)
    await waiting.send()
    async with lab.refuses(WaitpointClosed, "resumed"):
        await waiting.send()


@scenario
async def test_operators_calls_are_checked_too(lab: Lab) -> None:
    waiting: Waiting = await suspended(lab, ONE)
    engine, key = lab.engine, waiting.execution_id
    address = waiting.at["a"].waitpoint_id
    calls = [
        (engine.resume_execution(execution_id="x"), "execution_id"),
        (engine.resume_execution(execution_id=key, actor=""), "actor"),
        (engine.resume_execution(execution_id=key, resume_delay_ms=-1), "resume_delay_ms"),
        (engine.expire_suspension(execution_id="x"), "execution_id"),
        (engine.close_waitpoint(execution_id=key, waitpoint_id=""), "waitpoint_id"),
        (engine.close_waitpoint(execution_id="x", waitpoint_id=address), "execution_id"),
        (
            engine.close_waitpoint(execution_id=key, waitpoint_id=address, reason="x" * 5000),
            "reason",
        ),
        (engine.read_waitpoint_token(execution_id=key, waitpoint_id=""), "waitpoint_id"),
        (engine.list_pending_waitpoints(execution_id="x"), "execution_id"),
        (engine.list_pending_waitpoints(execution_id=key, limit=-1), "limit"),
        (engine.list_pending_waitpoints(execution_id=key, limit=1001), "limit"),
        (engine.list_pending_waitpoints(execution_id=key, cursor=5), "cursor"),  # type: ignore[arg-type]
        (engine.list_suspended(limit=-1), "limit"),
        (engine.list_suspended(limit=1001), "limit"),
        (engine.list_suspended(cursor=("x", 5)), "cursor"),  # type: ignore[arg-type]
        (engine.list_suspensions(execution_id="x"), "execution_id"),
    ]
    async with lab.unchanged():
        for call, name in calls:
            with pytest.raises(InvalidInput, match=name):
                await call
