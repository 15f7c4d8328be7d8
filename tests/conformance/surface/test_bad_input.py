"""Bad input: a typed error that names the field, and nothing changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowNode
from flowfabric.errors import (
    FlowFabricError,
    HandleFromOtherBackend,
    InvalidInput,
    InvalidTagKey,
    PayloadTooLarge,
    StoreError,
    ValidationError,
)
from flowfabric.ids import new_uuid7s
from flowfabric.limits import TAGS_MAX
from flowfabric.model.execution import Fence
from flowfabric.model.handle import Handle
from flowfabric.model.record import replace
from tests.support.lab import Lab, scenario

MALFORMED_IDS = [
    "",
    "nonsense",
    "01890000-0000-7000-8000-000000000001",
    "{fp:0}",
    "{fp:0}:",
    "{fp:x}:01890000-0000-7000-8000-000000000001",
    "{fp:-1}:01890000-0000-7000-8000-000000000001",
    "{fp:007}:01890000-0000-7000-8000-000000000001",
    "{fp:256}:01890000-0000-7000-8000-000000000001",
    "{fp:99999}:01890000-0000-7000-8000-000000000001",
    "{fp:0}:01890000-0000-7000-8000-00000000000",
    "{fp:0}:01890000-0000-7000-8000-000000000001 ",
    "{fp:0}:01890000-0000-7000-8000-00000000000A",
    "{fp:0}:01890000-0000-7000-8000-000000000001\x00",
    5,
    None,
    b"{fp:0}:01890000-0000-7000-8000-000000000001",
]

BY_ID: dict[str, Callable[[Lab, Any], Awaitable[Any]]] = {
    "describe": lambda lab, key: lab.engine.describe_execution(execution_id=key),
    "state": lambda lab, key: lab.engine.read_execution_state(execution_id=key),
    "context": lambda lab, key: lab.engine.read_execution_context(execution_id=key),
    "result": lambda lab, key: lab.engine.get_execution_result(execution_id=key),
    "attempts": lambda lab, key: lab.engine.list_attempts(execution_id=key),
    "explain": lambda lab, key: lab.engine.explain(execution_id=key),
    "wait": lambda lab, key: lab.engine.wait_for_result(execution_id=key, wait_ms=1),
    "cancel": lambda lab, key: lab.cancel(key),
    "replay": lambda lab, key: lab.engine.replay_execution(execution_id=key),
    "revoke": lambda lab, key: lab.engine.revoke_lease(execution_id=key, reason="x"),
    "hold": lambda lab, key: lab.engine.hold_execution(execution_id=key),
    "release": lambda lab, key: lab.engine.release_execution(execution_id=key),
    "unblock": lambda lab, key: lab.engine.unblock_execution(execution_id=key),
    "priority": lambda lab, key: lab.engine.change_priority(execution_id=key, new_priority=1),
    "tag": lambda lab, key: lab.engine.set_execution_tag(execution_id=key, key="a.b", value="c"),
    "lease": lambda lab, key: lab.engine.mark_lease_expired_if_due(execution_id=key),
    "promote": lambda lab, key: lab.engine.promote_delayed(execution_id=key),
    "complete": lambda lab, key: lab.engine.complete_execution(
        execution_id=key, source="operator_override"
    ),
    "grant": lambda lab, key: lab.engine.issue_claim_grant(
        execution_id=key, worker_id="w", worker_instance_id="i"
    ),
}


@scenario
async def test_a_malformed_id_is_refused_by_every_operation(lab: Lab) -> None:
    """One spelling, the partition in range."""
    await lab.create()
    async with lab.unchanged():
        for name, call in BY_ID.items():
            for wrong in MALFORMED_IDS:
                with pytest.raises(InvalidInput, match="execution_id"):
                    await call(lab, wrong)
                assert name


@scenario
async def test_a_well_formed_id_of_another_partition_is_simply_unknown(lab: Lab) -> None:
    """The partition belongs to the id and is not accepted apart from it."""
    execution_id = await lab.create()
    number = int(execution_id[4 : execution_id.index("}")])
    other = f"{{fp:{(number + 1) % 256}}}:{execution_id[-36:]}"
    assert await lab.engine.describe_execution(execution_id=other) is None
    assert await lab.engine.describe_execution(execution_id=f"{{fp:0}}:{new_uuid7s(1)[0]}") is None


@scenario
async def test_a_payload_over_the_limit_is_refused_and_one_at_the_limit_kept(lab: Lab) -> None:
    """The limit is configurable; 1 MiB by default."""
    assert lab.config.payload_bytes_max == 1024 * 1024
    await lab.configure(payload_bytes_max=1000)
    execution_id = await lab.create(input_payload=b"x" * 1000)
    async with lab.refuses(PayloadTooLarge, field="input_payload"):
        await lab.create(input_payload=b"x" * 1001)
    claimed = await lab.claim()
    async with lab.refuses(PayloadTooLarge, field="result"):
        await lab.engine.complete(claimed.handle, result=b"x" * 1001)
    await lab.engine.complete(claimed.handle, result=b"x" * 1000)
    assert await lab.engine.get_execution_result(execution_id=execution_id) == b"x" * 1000


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"retries": 3}, "retries"),
        ({"retry_policy": {"max_retry": 3}}, "max_retry"),
        ({"retry_policy": {"max_retries": -1}}, "max_retries"),
        ({"retry_policy": {"max_retries": "3"}}, "policy"),
        ({"retry_policy": {"backoff": {"type": "linear"}}}, "policy"),
        ({"retry_policy": {"backoff": {"type": "exponential", "multiplier": 0.5}}}, "multiplier"),
        ({"retry_policy": {"backoff": {"type": "fixed", "delay_ms": -1}}}, "delay_ms"),
        ({"timeout_policy": {"attempt_timeout_ms": 0}}, "attempt_timeout_ms"),
        ({"timeout_policy": {"execution_deadline_ms": -5}}, "execution_deadline_ms"),
        ({"timeout_policy": {"max_reclaim_count": 5}}, "max_reclaim_count"),
        ({"max_reclaim_count": -1}, "max_reclaim_count"),
        ({"max_replay_count": 2**40}, "max_replay_count"),
        ({"dedup_window_ms": 0}, "dedup_window_ms"),
        ({"retention_ttl_ms": -1}, "retention_ttl_ms"),
        ({"delay_until": -1}, "delay_until"),
        ({"enforcement_mode": "strict"}, "enforcement_mode"),
    ],
    ids=str,
)
@scenario
async def test_a_policy_field_is_honoured_or_refused(
    lab: Lab, policy: dict[str, Any], field: str
) -> None:
    """Never stored and ignored."""
    async with lab.refuses(InvalidInput, field=field):
        await lab.create(policy=policy)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": ""}, "execution_kind"),
        ({"kind": "a\x00b"}, "execution_kind"),
        ({"kind": "x" * 257}, "execution_kind"),
        ({"kind": "\ud800"}, "execution_kind"),
        ({"kind": 5}, "execution_kind"),
        ({"namespace": "a\nb"}, "namespace"),
        ({"input_payload": "text"}, "input_payload"),
        ({"payload_encoding": "a\x00"}, "payload_encoding"),
        ({"creator_identity": "a\x00"}, "creator_identity"),
        ({"idempotency_key": "a\x00"}, "idempotency_key"),
        ({"idempotency_key": "x" * 513}, "idempotency_key"),
        ({"delay_until": -1}, "delay_until"),
        ({"delay_until": 2**63}, "delay_until"),
        ({"delay_until": "soon"}, "delay_until"),
        ({"execution_deadline_at": 1.5}, "execution_deadline_at"),
        ({"tags": {"a.b": "x\x00"}}, "tags"),
        ({"tags": {"a.b": 5}}, "tags"),
        ({"tags": {"a.b": "x" * 1025}}, "tags"),
        ({"tags": ["a.b"]}, "tags"),
        ({"tags": {f"a.b{n}": "x" for n in range(65)}}, "tags"),
    ],
    ids=lambda value: str(value)[:40],
)
@scenario
async def test_a_malformed_field_of_a_create_is_named(
    lab: Lab, fields: dict[str, Any], field: str
) -> None:
    """Everything is checked before anything is written."""
    async with lab.refuses(InvalidInput, field=field):
        await lab.create(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"execution_kind": "k", "partition_id": 5}, "partition_id"),
        ({"execution_kind": "k", "execution_id": "{fp:0}:x"}, "execution_id"),
        ({"lane_id": "default"}, "execution_kind"),
        ({"execution_kind": None}, "execution_kind"),
    ],
    ids=str,
)
@scenario
async def test_an_unknown_or_missing_field_of_a_dict_is_named(
    lab: Lab, fields: Any, field: str
) -> None:
    """An unknown keyword of the method is Python's own error; a dict is checked as data is."""
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.create_executions([fields])


@pytest.mark.parametrize("key", ["", "nodot", "A.b", "a b.c", "a.b\x00", "a.", 5, "a." + "x" * 255])
@scenario
async def test_a_malformed_tag_is_refused_when_set(lab: Lab, key: str) -> None:
    execution_id = await lab.create()
    engine = lab.engine if isinstance(key, str) else lab.direct
    async with lab.refuses(InvalidTagKey):
        await engine.set_execution_tag(execution_id=execution_id, key=key, value="x")


@scenario
async def test_the_number_of_tags_stays_bounded_when_they_are_set_one_by_one(lab: Lab) -> None:
    execution_id = await lab.create(tags={f"a.b{n}": "x" for n in range(TAGS_MAX)})
    await lab.engine.set_execution_tag(execution_id=execution_id, key="a.b0", value="y")
    async with lab.refuses(InvalidInput, field="tags"):
        await lab.engine.set_execution_tag(execution_id=execution_id, key="one.more", value="x")


@scenario
async def test_a_foreign_handle_is_refused_by_every_call(lab: Lab) -> None:
    """One check at the entrance."""
    claimed = await lab.started()
    strange = replace(claimed.handle, backend="valkey")
    engine = lab.engine
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: engine.renew(strange),
        lambda: engine.progress(strange, percent=1),
        lambda: engine.complete(strange),
        lambda: engine.fail(strange, reason="x"),
        lambda: engine.cancel(strange, reason="x"),
        lambda: engine.delay(strange, delay_until=lab.now),
    ]
    for call in calls:
        async with lab.refuses(HandleFromOtherBackend, field="handle"):
            await call()


@pytest.mark.parametrize("wrong", [None, "handle", b"", b"junk", b"\x02\x02junk", 5, {}], ids=repr)
@scenario
async def test_anything_but_a_handle_is_refused(lab: Lab, wrong: Any) -> None:
    await lab.started()
    async with lab.refuses(InvalidInput, field="handle"):
        await lab.engine.complete(wrong)


@scenario
async def test_every_damaged_byte_of_a_handle_is_noticed_or_harmless(lab: Lab) -> None:
    """A handle from the wire never crashes the engine and never gains a right."""
    claimed = await lab.started()
    data = claimed.handle.encode()
    before = await lab.record(claimed.execution_id)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x15
        try:
            handle = Handle.decode(bytes(damaged))
            if handle.fence == claimed.handle.fence:
                continue  # only a label was hit
            await lab.engine.complete(handle)
        except StoreError as error:
            raise AssertionError(f"byte {position}: {error}") from error
        except FlowFabricError:
            continue
        raise AssertionError(f"byte {position} was accepted")
    assert await lab.record(claimed.execution_id) == before


@pytest.mark.parametrize(
    "fence",
    [
        Fence("\ud800", 1, "a"),
        Fence("x" * 10_000, 1, "a"),
        Fence("a\x00b", 1, "a"),
        Fence("a", 2**70, "a"),
        Fence("a", -1, "a"),
    ],
    ids=["surrogate", "long", "nul", "huge", "negative"],
)
@scenario
async def test_a_strange_fence_is_a_typed_refusal(lab: Lab, fence: Fence) -> None:
    claimed = await lab.started()
    async with lab.unchanged():
        with pytest.raises(FlowFabricError) as refusal:
            await lab.engine.complete_execution(
                execution_id=claimed.execution_id, fence=fence, source="lease_holder"
            )
    assert not isinstance(refusal.value, StoreError), refusal.value


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": "1"}, "limit"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"wait_ms": None}, "wait_ms"),
        ({"lanes": ()}, "lanes"),
        ({"lanes": "default"}, "lanes"),
        ({"worker_instance_id": ""}, "worker_instance_id"),
        ({"worker_instance_id": "a\x00"}, "worker_instance_id"),
        ({"kinds": [""]}, "kinds"),
        ({"kinds": [5]}, "kinds"),
        ({"namespace": ""}, "namespace"),
        ({"capabilities": "gpu"}, "capabilities"),
    ],
    ids=str,
)
@scenario
async def test_a_malformed_claim_is_named(lab: Lab, fields: dict[str, Any], field: str) -> None:
    await lab.create()
    async with lab.refuses(FlowFabricError, field=field):
        await lab.claims(**fields)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"percent": -1}, "percent"),
        ({"percent": 101}, "percent"),
        ({"percent": 5.5}, "percent"),
        ({"message": "a\x00b"}, "message"),
        ({"message": "x" * 4097}, "message"),
        ({"message": 5}, "message"),
    ],
    ids=lambda value: str(value)[:30],
)
@scenario
async def test_progress_stays_within_its_bounds(
    lab: Lab, fields: dict[str, Any], field: str
) -> None:
    claimed = await lab.started()
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.progress(claimed.handle, **fields)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda lab, each: lab.engine.fail(each.handle, reason=5), "reason"),
        (
            lambda lab, each: lab.engine.fail(each.handle, reason="x", failure_class="bad luck"),
            "failure_class",
        ),
        (
            lambda lab, each: lab.engine.fail(each.handle, reason="x", retry_after_ms=-1),
            "retry_after_ms",
        ),
        (lambda lab, each: lab.engine.fail(each.handle, reason="x", category=""), "category"),
        (lambda lab, each: lab.engine.delay(each.handle, delay_until=-1), "delay_until"),
        (lambda lab, each: lab.engine.delay(each.handle, delay_until="soon"), "delay_until"),
        (lambda lab, each: lab.engine.cancel(each.handle, reason=5), "reason"),
        (lambda lab, each: lab.cancel(each.execution_id, 5), "reason"),
        (
            lambda lab, each: lab.engine.revoke_lease(execution_id=each.execution_id, reason=5),
            "reason",
        ),
        (
            lambda lab, each: lab.engine.revoke_lease(
                execution_id=each.execution_id, reason="x", expected_lease_id=5
            ),
            "expected_lease_id",
        ),
        (
            lambda lab, each: lab.engine.revoke_lease(
                execution_id=each.execution_id, reason="x", expected_lease_id="\ud800"
            ),
            "expected_lease_id",
        ),
        (
            lambda lab, each: lab.engine.complete(each.handle, result="text"),
            "result",
        ),
        (
            lambda lab, each: lab.engine.complete(each.handle, result_encoding="a\x00"),
            "result_encoding",
        ),
        (
            lambda lab, each: lab.engine.renew_lease(
                execution_id=each.execution_id, fence=each.handle.fence, lease_ttl_ms=-1
            ),
            "lease_ttl_ms",
        ),
        (
            lambda lab, each: lab.engine.complete_execution(
                execution_id=each.execution_id, fence="fence", source="x"
            ),
            "fence",
        ),
        (
            lambda lab, each: lab.engine.complete_execution(
                execution_id=each.execution_id, fence=each.handle.fence, source=""
            ),
            "source",
        ),
        (
            lambda lab, each: lab.engine.change_priority(
                execution_id=each.execution_id, new_priority="high"
            ),
            "new_priority",
        ),
        (lambda lab, _: lab.engine.list_workers(cursor="\ud800"), "cursor"),
        (lambda lab, _: lab.engine.list_workers(cursor=5), "cursor"),
        (lambda lab, _: lab.engine.list_executions(cursor=5), "cursor"),
        (lambda lab, _: lab.engine.list_executions(tag="a.b"), "tag"),
        (lambda lab, _: lab.engine.list_executions(namespace="a\x00"), "namespace"),
        (lambda lab, _: lab.engine.list_executions(tag=("a.b", "x\x00")), "tag"),
        (lambda lab, _: lab.engine.trim_retention(limit=0), "limit"),
        (lambda lab, _: lab.engine.list_expired_leases(limit=10_001), "limit"),
        (lambda lab, _: lab.engine.list_expired_leases(as_of=-1), "as_of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@scenario
async def test_a_malformed_argument_is_named(
    lab: Lab, call: Callable[[Lab, Any], Awaitable[Any]], field: str
) -> None:
    claimed = await lab.started()
    async with lab.refuses(ValidationError, field=field):
        await call(lab, claimed)


@scenario
async def test_a_renewal_longer_than_allowed_is_refused_in_a_forged_handle(lab: Lab) -> None:
    """The handle is the worker's own bytes; its lease length is checked like any other."""
    claimed = await lab.started()
    for lease_ttl_ms in (-1, 0, 3_600_001, 2**60):
        forged = replace(claimed.handle, lease_ttl_ms=lease_ttl_ms)
        async with lab.refuses(InvalidInput, field="lease_ttl_ms"):
            await lab.engine.renew(forged)


@pytest.mark.parametrize(
    "field", ["input_payload", "tags", "budget_ids", "creator_identity", "lane_id"]
)
@scenario
async def test_none_is_no_way_to_leave_a_field_out(lab: Lab, field: str) -> None:
    """The same in the process and over a wire, for one, several and a flow."""
    given: dict[str, Any] = {"execution_kind": "work", field: None}
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.create_execution(**given)
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.create_executions([NewExecution(**given)])
    async with lab.refuses(InvalidInput, field=field):
        await lab.engine.submit_flow(nodes=[FlowNode(name="a", execution=NewExecution(**given))])
