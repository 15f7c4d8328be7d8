"""Whatever is passed for whichever argument, the answer is an outcome or a typed refusal."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from flowfabric.api.budgets import Usage
from flowfabric.api.executions import NewExecution
from flowfabric.api.flows import FlowEdge, FlowNode
from flowfabric.api.leases import Fail
from flowfabric.api.operation import OPERATIONS
from flowfabric.api.waits import Signal, SuspendRequest
from flowfabric.errors import FlowFabricError, InvalidInput, StoreError
from flowfabric.model.audit import Refusals
from flowfabric.model.flow import AnySucceeded, OnSatisfied, Quorum
from flowfabric.model.journal import CodeMark, EntryError, NewEntry
from flowfabric.model.log_lines import LogBatch, NewLine
from flowfabric.model.policy import (
    ExecutionPolicy,
    ExponentialBackoff,
    FixedBackoff,
    RetryPolicy,
    RoutingRequirements,
    SuspensionPolicy,
    TimeoutPolicy,
)
from flowfabric.model.shown import shown
from flowfabric.model.stream import NewFrame
from flowfabric.model.suspension import Single, Token
from tests.support.fingerprints import Fingerprint, fingerprints
from tests.support.lab import Lab, scenario
from tests.support.schedules import HOURLY, start
from tests.support.waits import suspended

WORK = NewExecution(execution_kind="work")
UNKNOWN = "{fp:1}:01890000-0000-7000-8000-000000000001"


class Text(str):
    """Text that is more than text; a driver may not know it."""


class Number(int):
    """The same of a number."""


def nested(depth: int) -> list[Any]:
    """A list in a list in a list."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


STRANGE: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 2**70, 1.5, float("nan"), object()),
    *("", "x", "a\x00b", "\ud800", "x" * 70_000, b"x", UNKNOWN),
    *((), [None], ["\ud800"], {}, {"a": 2**64}, {"\ud800": "x"}, {1: 2}),
    # Neither can be shown by repr, the last two are told from plain ones by some drivers only.
    *(10**5000, nested(1_000), Text("x"), Number(1)),
)

# What makes up a call that could succeed, by the name of the argument. A call that would end,
# wait or switch something that the others need is made about an execution that does not exist.
REFUSED = Refusals(
    actor="ada",
    address="",
    action="GET /v1/lanes",
    code="missing_scope",
    request_id="r",
    namespace="default",
    times=1,
)
USUAL: dict[str, Any] = {
    "action": "release",
    "actor": "ada",
    "approve": True,
    "amounts": {"tokens": 1},
    "arguments": b"[]",
    "before": "a",
    "begin": 1,
    "budget_id": "budget",
    "children": (),
    "claim_id": "claim",
    "consumer": "c1",
    "cursor": None,
    "delivery": "1-1",
    "deltas": {"tokens": 1},
    "delay_until": 1,
    "dimension": "key",
    "dimensions": ("tokens",),
    "downstream_execution_id": UNKNOWN,
    "end": 2,
    "edge_id": "01890000-0000-7000-8000-000000000002",
    "execution_id": UNKNOWN,
    "execution_ids": (UNKNOWN,),
    "execution_kind": "work",
    "expected": "2",
    "expires_in_ms": 5_000,
    "attempt_index": 0,
    "failure_reason": "it broke",
    "flow_id": "01890000-0000-7000-8000-000000000003",
    "frame": NewFrame(payload=b"x"),
    "entries": (NewEntry(position=0, key="a"),),
    "frames": (NewFrame(payload=b"x"),),
    "grace_ms": 1,
    "group_id": "group",
    "hard_limits": (5,),
    "hold_id": "hold",
    "idempotency_suffix": "1",
    "key": "a.b",
    "kid": "k9",
    "lane_id": "default",
    "lane_state": "active",
    "lanes": ("nobody",),
    "lease_duration_ms": 5_000,
    "lease_ttl_ms": 5_000,
    "limit": 1,
    "liveness_ttl_ms": 5_000,
    "logs": LogBatch(lines=(NewLine("x", 1),)),
    "mailbox": "orders",
    "mailboxes": ("orders",),
    "message_id": "message",
    "name": "ci",
    "names": ("priority",),
    "new_kid": "k9",
    "new_priority": 1,
    "new_secret_hex": "ab" * 32,
    "nodes": (),
    "number": 0,
    "origins": ("shop",),
    "operation_id": "01890000-0000-7000-8000-000000000004",
    "part": "0193",
    "payload": b"1",
    "phase": "attempt_timeout",
    "policy": None,
    "quota_policy_id": "quota",
    "reason": "waiting_for_budget",
    "requests": (),
    "refusals": (REFUSED,),
    "schedule_id": "unknown",
    "fingerprint": "0123456789abcdef",
    "schedules": (),
    "scopes": ("read",),
    "secret_hex": "ab" * 32,
    "signal_name": "approved",
    "signals": (),
    "soft_limits": (0,),
    "source": "operator_override",
    "start": start(),
    "tags": {"a.b": "c"},
    "timing": HOURLY,
    "token": Token("ff_unknown"),
    "text": Token("unknown"),
    "token_id": "0000000000",
    "wait_ms": 1,
    "way": "oidc",
    "upstream_execution_id": UNKNOWN,
    "usage": Usage(custom={"tokens": 1}),
    "value": "x",
    "version": "3",
    "waitpoint_id": "nowhere",
    "waitpoint_ids": ("nowhere",),
    "waitpoint_key": "k",
    "worker_id": "w1",
    "worker_instance_id": "w1-1",
    "serial_key": "s",
    "undos": (NewExecution(execution_kind="a", payload_encoding="json", input_payload=b"{}"),),
}
ADMIN_LISTS = {"report_usage_admin": {"deltas": (1,)}}
# A connection of the caller's, the schema, and the end of the engine: not for strange values.
LEFT_OUT = frozenset(
    {"checkpoint_in", "create_executions_in", "prepare", "shares_database", "shutdown_prepare"}
)


def operations(lab: Lab) -> dict[str, Any]:
    """Every operation there is, by the register, and the lists of one kind."""
    lists = ("renew_many", "checkpoint_many", "complete_many", "fail_many")
    return {name: getattr(lab.direct, name) for name in sorted({*OPERATIONS, *lists} - LEFT_OUT)}


def usual_arguments(name: str, call: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The arguments a call needs, and no wait; all others keep their defaults."""
    needed = [
        each.name
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty or each.name == "wait_ms"
    ]
    usual = {**USUAL, **known, **ADMIN_LISTS.get(name, {})}
    missing = set(needed) - set(usual)
    assert not missing, f"{name}: give {missing} a usual value"
    return {each: usual[each] for each in needed}


def every_argument(call: Any) -> list[str]:
    return list(inspect.signature(call).parameters)


async def owner(lab: Lab, lanes: Iterator[int]) -> dict[str, Any]:
    """What only the owner of a lease has; on a lane of its own, so that none gets another's."""
    claimed = await lab.started(lane_id=f"lane-{next(lanes)}")
    return {
        "handle": claimed.handle,
        "handles": (claimed.handle,),
        "fence": claimed.handle.fence,
        "request": SuspendRequest(resume_condition=Single("k")),
        "grant": None,
        "signal": None,
    }


@scenario
async def test_no_value_of_any_argument_is_an_accident(lab: Lab) -> None:
    """Issue 2, bad input: each a typed error; none reaches a store that chokes on it."""
    await lab.engine.create_budget(
        budget_id="budget", dimensions=["tokens"], hard_limits=[10**6], soft_limits=[0]
    )
    await lab.engine.create_quota_policy(quota_policy_id="quota", max_concurrent=5)
    await lab.engine.create_consumer_group(group_id="group", after=None)
    lanes = itertools.count()
    async with fingerprints(lab) as stored:
        for name, call in operations(lab).items():
            usual = usual_arguments(name, call, await owner(lab, lanes))
            for argument, strange in itertools.product(every_argument(call), STRANGE):
                given = {**usual, argument: strange}
                done = await is_done(stored, name, call, given, argument)
                if done and not usual.keys().isdisjoint(("handle", "handles", "fence")):
                    usual = usual_arguments(name, call, await owner(lab, lanes))


async def is_done(
    stored: Fingerprint, name: str, call: Any, arguments: dict[str, Any], argument: str
) -> bool:
    """Whether it was accepted; if not, it was refused as it should be and changed nothing."""
    before = await stored()
    said = f"{name}({argument}={shown(arguments[argument])})"
    try:
        await call(**arguments)
    except StoreError as error:
        pytest.fail(f"{said}: {error!r}")
    except FlowFabricError:
        assert before == await stored(), f"{said} was refused and changed"
        return False
    except Exception as error:
        raise AssertionError(f"{said}: {error!r}") from error
    return True


@scenario
async def test_no_field_of_a_signal_is_an_accident(lab: Lab) -> None:
    waiting = await suspended(lab)
    details = waiting.outcome.waitpoints[0]
    usual = {
        "execution_id": waiting.execution_id,
        "waitpoint_id": details.waitpoint_id,
        "token": details.token,
        "signal_name": "other",
    }

    async with fingerprints(lab) as stored:
        await try_fields(stored, Signal, lab.engine.deliver_signal, **usual)


@scenario
async def test_no_field_of_a_suspension_is_an_accident(lab: Lab) -> None:
    lanes = itertools.count()
    handle = (await owner(lab, lanes))["handle"]

    async def suspend(**fields: Any) -> None:
        await lab.engine.suspend(handle, SuspendRequest(**fields))

    async with fingerprints(lab) as stored:
        for field, strange in itertools.product(SuspendRequest.__struct_fields__, STRANGE):
            fields = {"resume_condition": Single("k", "go"), field: strange}
            if await is_done(stored, "suspend", suspend, fields, field):
                handle = (await owner(lab, lanes))["handle"]


@scenario
async def test_no_field_of_a_log_line_is_an_accident(lab: Lab) -> None:
    claimed = await lab.started()

    async def append(batch: LogBatch) -> None:
        await lab.engine.append_logs(claimed.handle, logs=batch)
        await lab.engine.read_logs(execution_id=claimed.execution_id)

    async with fingerprints(lab) as stored:
        await try_fields(stored, LogBatch, append, lines=(NewLine("x", 1),))
        await try_fields(
            stored, NewLine, lambda line: append(LogBatch(lines=(line,))), message="x", at=1
        )


@scenario
async def test_no_field_of_an_entry_is_an_accident(lab: Lab) -> None:
    claimed = await lab.started()

    async def append(entry: NewEntry) -> None:
        await lab.engine.checkpoint(claimed.handle, entries=(entry,))
        await lab.engine.read_journal(execution_id=claimed.execution_id, values=True)

    async def fail(error: EntryError) -> None:
        await append(NewEntry(position=0, key="a", error=error))

    async def mark(code: CodeMark) -> None:
        await append(NewEntry(position=0, key="a", code=code))

    async with fingerprints(lab) as stored:
        await try_fields(stored, NewEntry, append, position=0, key="a")
        await try_fields(stored, EntryError, fail, category="a", reason="b")
        await try_fields(stored, CodeMark, mark)


# Parts of policies, each in the place where it stands.
POLICIES: dict[type[Any], Callable[[Any], ExecutionPolicy]] = {
    ExecutionPolicy: lambda part: part,
    RetryPolicy: lambda part: ExecutionPolicy(retry_policy=part),
    FixedBackoff: lambda part: ExecutionPolicy(retry_policy=RetryPolicy(backoff=part)),
    ExponentialBackoff: lambda part: ExecutionPolicy(retry_policy=RetryPolicy(backoff=part)),
    TimeoutPolicy: lambda part: ExecutionPolicy(timeout_policy=part),
    RoutingRequirements: lambda part: ExecutionPolicy(routing_requirements=part),
    SuspensionPolicy: lambda part: ExecutionPolicy(suspension_policy=part),
}


@scenario
async def test_no_field_of_a_policy_is_an_accident(lab: Lab) -> None:
    """Nor is one accepted that a SQL store keeps and cannot read again."""

    async def create(policy_with: Callable[[Any], ExecutionPolicy], part: Any) -> None:
        await lab.describe(await lab.create(policy=policy_with(part)))

    async with fingerprints(lab) as stored:
        for kind, policy_with in POLICIES.items():
            await try_fields(stored, kind, partial(create, policy_with))


@scenario
async def test_no_field_of_work_in_a_list_is_an_accident(lab: Lab) -> None:
    """What `create_execution` takes as arguments, others take as records in lists."""
    handle = (await owner(lab, itertools.count()))["handle"]

    async def submit(work: NewExecution) -> None:
        await lab.engine.submit_flow(nodes=[FlowNode(name="a", execution=work)])

    async with fingerprints(lab) as stored:
        for use in (
            lambda work: lab.engine.create_executions([work]),
            lambda work: lab.engine.spawn_children(handle, [work]),
            submit,
        ):
            await try_fields(stored, NewExecution, use, execution_kind="work")


@scenario
async def test_no_field_of_a_flow_is_an_accident(lab: Lab) -> None:
    first, second = (FlowNode(name=name, execution=WORK) for name in "ab")
    edge = FlowEdge(upstream="a", downstream="b")

    async def submit(node: FlowNode = second, edge: FlowEdge = edge) -> None:
        await lab.engine.submit_flow(nodes=[first, node], edges=[edge])

    async def join(policy: Any) -> None:
        await submit(FlowNode(name="b", execution=WORK, join=policy))

    async with fingerprints(lab) as stored:
        await try_fields(stored, FlowNode, submit, name="b", execution=WORK)
        await try_fields(stored, FlowEdge, partial(submit, second), upstream="a", downstream="b")
        await try_fields(stored, AnySucceeded, join, on_satisfied=OnSatisfied.LET_RUN)
        await try_fields(stored, Quorum, join, k=1, on_satisfied=OnSatisfied.LET_RUN)


async def try_fields(
    stored: Fingerprint, kind: type[Any], use: Callable[[Any], Awaitable[Any]], **usual: Any
) -> None:
    """Every strange value in every field of a record that is then used."""

    async def call(**fields: Any) -> None:
        await use(kind(**fields))

    for field, strange in itertools.product(kind.__struct_fields__, STRANGE):
        await is_done(stored, kind.__name__, call, {**usual, field: strange}, field)


def test_a_fingerprint_tells_of_every_committed_row(durable_lab: Lab) -> None:
    """With one that does not, the tests above would see no change. In memory it is the dump."""

    async def story(lab: Lab) -> None:
        async with fingerprints(lab) as stored:
            for change in (
                "INSERT INTO ff_lane_registry (lane_id, lane_state, registered_at, changed_at) "
                "VALUES ('new', 'active', 1, 1)",
                "UPDATE ff_lane_registry SET lane_state = 'paused'",
                "DELETE FROM ff_lane_registry",
            ):
                before = await stored()
                await lab.sql(change)
                assert await stored() != before, change

    durable_lab.run(story(durable_lab))


def test_a_fingerprint_does_not_tell_of_locks(durable_lab: Lab) -> None:
    """A refusal may have had to look at what it locked."""

    async def story(lab: Lab) -> None:
        await lab.create()
        is_sqlite = lab.url.startswith("sqlite")
        async with fingerprints(lab) as stored:
            before = await stored()
            await lab.sql("BEGIN IMMEDIATE" if is_sqlite else "SELECT * FROM ff_route FOR UPDATE")
            assert await stored() == before

    durable_lab.run(story(durable_lab))


# --- by name -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "fields", "field"),
    [
        ("claim", {"kinds": "work"}, "kinds"),
        ("claim", {"kinds": 5}, "kinds"),
        ("claim", {"lanes": 5}, "lanes"),
        ("claim", {"lanes": {"default": 1}}, "lanes"),
        ("claim", {"namespaces": "default"}, "namespaces"),
        ("register_worker", {"kinds": "work"}, "kinds"),
        ("claim_for_worker", {"lane_id": ""}, "lane_id"),
        ("claim_for_worker", {"kinds": "work"}, "kinds"),
        ("claim_for_worker", {"worker_capabilities": "gpu"}, "worker_capabilities"),
        ("list_executions", {"states": "waiting"}, "states"),
        ("read_exec_core_fields", {"names": "priority"}, "names"),
        ("describe_waits", {"execution_ids": UNKNOWN}, "execution_ids"),
        ("unblock_execution", {"expected_reason": "mood"}, "expected_reason"),
        ("complete_execution", {"result_payload": "text"}, "result_payload"),
        ("fail_execution", {"failure_reason": None}, "failure_reason"),
        ("fail_execution", {"failure_category": ""}, "failure_category"),
        ("deliver_approval_signal", {"comment": "text"}, "comment"),
        ("deliver_approval_signal", {"signal_dedup_ttl_ms": -1}, "signal_dedup_ttl_ms"),
        ("configure_lane", {"budget_ids": 0}, "budget_ids"),
        ("configure_lane", {"quota_policy_id": 0}, "quota_policy_id"),
        ("release_admission", {"dimension": 0}, "dimension"),
        ("create_execution", {"execution_kind": None}, "execution_kind"),
        ("create_execution", {"tags": 0}, "tags"),
        ("create_execution", {"policy": "\ud800"}, "policy"),
        ("create_executions", {"requests": 5}, "requests"),
        ("create_executions", {"requests": ["work"]}, "requests"),
        ("complete_many", {"requests": 5}, "requests"),
        ("fail_many", {"requests": Fail}, "requests"),
        ("renew_many", {"handles": 5}, "handles"),
        ("list_suspended", {"cursor": (1, "x")}, "cursor"),
        ("list_suspended", {"cursor": "x"}, "cursor"),
        ("create_execution", {"delay_until": 10**5000}, "delay_until"),
        ("create_execution", {"tags": nested(1_000)}, "tags"),
        ("report_usage_admin", {"dimensions": [["tokens"]]}, "dimensions"),
        ("claim", {"limit": True}, "limit"),
    ],
    ids=shown,
)
@scenario
async def test_the_argument_that_is_wrong_is_named(
    lab: Lab, operation: str, fields: dict[str, Any], field: str
) -> None:
    """Above all a text where a list of texts is asked for: letter by letter it matches nothing."""
    call = operations(lab)[operation]
    known = {"handle": None, "handles": (), "fence": None}
    async with lab.refuses(FlowFabricError, field=field):
        await call(**{**usual_arguments(operation, call, known), **fields})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"retry_policy": {"max_retries": 1}}, "policy.retry_policy"),
        ({"timeout_policy": None}, "policy.timeout_policy"),
        ({"routing_requirements": ("gpu",)}, "policy.routing_requirements"),
        ({"suspension_policy": {}}, "policy.suspension_policy"),
    ],
    ids=str,
)
def test_a_policy_built_by_hand_has_parts_of_their_own_types(
    fields: dict[str, Any], field: str
) -> None:
    """Otherwise the first failure of the execution, not its creation, would find out."""
    with pytest.raises(InvalidInput, match=field):
        ExecutionPolicy(**fields)


def test_a_retry_policy_built_by_hand_has_a_backoff() -> None:
    with pytest.raises(InvalidInput, match=r"retry_policy\.backoff"):
        RetryPolicy(backoff=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"backoff\.multiplier"):
        ExponentialBackoff(multiplier="2")  # type: ignore[arg-type]
