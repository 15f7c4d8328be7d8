"""Bytes in are bytes out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowfabric.model.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    RetryPolicy,
    RoutingRequirements,
    TimeoutPolicy,
)
from tests.support.lab import Lab, scenario

# Text every store keeps: no NUL, no lone surrogate.
texts = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=60)
words = st.text(st.characters(blacklist_categories=["Cs", "Cc", "Z"]), min_size=1, max_size=40)


@given(payload=st.binary(max_size=400), result=st.none() | st.binary(max_size=400))
@settings(max_examples=25)
def test_payload_and_result_come_back_as_they_were(
    lab: Lab, payload: bytes, result: bytes | None
) -> None:
    """Binary-safe end to end."""

    async def there_and_back() -> None:
        execution_id = await lab.create(input_payload=payload)
        claimed = await lab.claim()
        assert claimed.payload == payload
        context = await lab.engine.read_execution_context(execution_id=execution_id)
        assert context.input_payload == payload
        await lab.engine.complete(claimed.handle, result=result)
        assert await lab.engine.get_execution_result(execution_id=execution_id) == result

    lab.run(there_and_back())


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\xff\xfe", b"\x00" * 1000, bytes(range(256)), b"\\x00", b"\\000", b"'"],
    ids=repr,
)
@scenario
async def test_awkward_bytes_survive(lab: Lab, payload: bytes) -> None:
    execution_id = await lab.create(input_payload=payload)
    claimed = await lab.claim()
    assert claimed.payload == payload
    await lab.engine.complete(claimed.handle, result=payload, result_encoding="raw")
    assert await lab.engine.get_execution_result(execution_id=execution_id) == payload


@scenario
async def test_a_whole_mebibyte_survives(lab: Lab) -> None:
    payload = bytes(range(256)) * 4096
    execution_id = await lab.create(input_payload=payload)
    claimed = await lab.claim()
    assert claimed.payload == payload
    await lab.engine.complete(claimed.handle, result=payload)
    assert await lab.engine.get_execution_result(execution_id=execution_id) == payload


@given(kind=words, key=words, value=texts, reason=texts, creator=texts, detail=texts)
@settings(max_examples=20)
def test_text_comes_back_as_it_was(
    lab: Lab, kind: str, key: str, value: str, reason: str, creator: str, detail: str
) -> None:
    """I16: whatever Unicode offers, in every free field, the same on every store."""

    async def there_and_back() -> None:
        execution_id = await lab.create(
            kind, tags={"a.b": value}, creator_identity=creator, policy={"dedup_window_ms": 1}
        )
        (claimed,) = await lab.claims(kinds=[kind])
        assert claimed.execution_kind == kind
        assert claimed.tags == {"a.b": value}
        await lab.engine.progress(claimed.handle, message=detail)
        await lab.engine.fail(claimed.handle, reason=reason, category=key)
        snapshot = await lab.describe(execution_id)
        assert snapshot.execution_kind == kind
        assert snapshot.failure_reason == reason
        assert snapshot.failure_category == key
        assert snapshot.progress_message == detail
        page = await lab.engine.list_executions(tag=("a.b", value), execution_kind=kind)
        assert execution_id in [each.execution_id for each in page.items]

    lab.run(there_and_back())


policies = st.builds(
    ExecutionPolicy,
    priority=st.none() | st.integers(-10, 10_000),
    retry_policy=st.none()
    | st.builds(
        RetryPolicy,
        max_retries=st.integers(0, 9),
        backoff=st.builds(FixedBackoff, delay_ms=st.integers(0, 9))
        | st.builds(ExponentialBackoff, multiplier=st.floats(1, 1000), jitter=st.booleans()),
        retryable_categories=st.lists(words, max_size=3).map(tuple),
    ),
    timeout_policy=st.builds(TimeoutPolicy, attempt_timeout_ms=st.none() | st.integers(1, 10**9)),
    max_reclaim_count=st.none() | st.integers(0, 5),
    max_replay_count=st.integers(0, 20),
    routing_requirements=st.builds(
        RoutingRequirements,
        required_capabilities=st.lists(st.sampled_from(["a", "b", "东京"]), unique=True).map(
            lambda tokens: tuple(sorted(tokens))
        ),
    ),
    dedup_window_ms=st.integers(1, 10**9),
    retention_ttl_ms=st.none() | st.integers(0, 10**9),
)


@given(policy=policies)
@settings(max_examples=25)
def test_a_policy_comes_back_as_it_was(lab: Lab, policy: ExecutionPolicy) -> None:
    """The rules an execution lives by are the ones it was given."""

    async def there_and_back() -> None:
        execution_id = await lab.create(policy=policy)
        assert (await lab.record(execution_id)).policy == policy

    lab.run(there_and_back())
