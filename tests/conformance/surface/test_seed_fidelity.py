"""What the seeds promise of single calls, field by field."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.seeds import SEED_OPERATIONS
from flowfabric.engine.engine import Engine
from flowfabric.errors import InvalidInput
from flowfabric.ids import new_execution_id, new_uuid7s
from flowfabric.limits import TAGS_MAX
from flowfabric.model.budget import BudgetAlreadySatisfied
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from flowfabric.model.quota import QuotaAlreadySatisfied
from flowfabric.model.record import to_plain
from flowfabric.model.results import AlreadySatisfied
from flowfabric.model.suspension import AllOf, Single
from tests.support.budgets import make_budget
from tests.support.flows import node, submit
from tests.support.gates import QUOTA, quota
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended

# Seed 004, `read_exec_core_fields`: columns, aliases, and what lives in the bag.
CORE_FIELDS: Final = (
    "lane_id",
    "lifecycle_phase",
    "ownership_state",
    "eligibility_state",
    "public_state",
    "attempt_state",
    "blocking_reason",
    "cancellation_reason",
    "cancelled_by",
    "attempt_index",
    "flow_id",
    "priority",
    "created_at_ms",
    "terminal_at_ms",
    "deadline_at_ms",
    "current_attempt_index",
    "completed_at",
    "cancel_reason",
    "required_capabilities",
    "current_waitpoint_id",
    "current_worker_instance_id",
    "budget_ids",
    "quota_policy_id",
)


@scenario
async def test_the_23_fields_of_the_seed_are_answered(lab: Lab) -> None:
    """Issue 10 C, seed 004: each name with its value, in every phase of a life."""
    await make_budget(lab, "one", hard={"a": 9})
    await make_budget(lab, "two", hard={"a": 9})
    await quota(lab, cap=1)
    graph = await submit(
        lab,
        [
            node(
                "a",
                priority=7,
                budget_ids=("two", "one"),
                quota_policy_id=QUOTA,
                execution_deadline_at=lab.now + 99_000,
                policy=ExecutionPolicy(
                    routing_requirements=RoutingRequirements(required_capabilities=("gpu", "cuda"))
                ),
            )
        ],
    )
    key, made_at = graph.ids["a"], lab.now
    wanted: dict[str, str | None] = {
        "lane_id": "default",
        "lifecycle_phase": "runnable",
        "ownership_state": "unowned",
        "eligibility_state": "eligible_now",
        "public_state": "waiting",
        "attempt_state": "pending_first_attempt",
        "blocking_reason": "waiting_for_worker",
        "cancellation_reason": None,
        "cancelled_by": None,
        "attempt_index": "0",
        "flow_id": graph.flow_id,
        "priority": "7",
        "created_at_ms": str(made_at),
        "terminal_at_ms": None,
        "deadline_at_ms": str(made_at + 99_000),
        "current_attempt_index": "0",
        "completed_at": None,
        "cancel_reason": None,
        "required_capabilities": "cuda,gpu",
        "current_waitpoint_id": None,
        "current_worker_instance_id": None,
        "budget_ids": "one,two",
        "quota_policy_id": QUOTA,
    }
    assert tuple(wanted) == CORE_FIELDS
    read = lab.engine.read_exec_core_fields
    assert await read(execution_id=key, names=CORE_FIELDS) == wanted
    running = await lab.claim(capabilities=("gpu", "cuda"))
    assert (await read(execution_id=key, names=["current_worker_instance_id"])) == {
        "current_worker_instance_id": "w1-1"
    }
    both = AllOf((Single("a"), Single("b")))
    waiting = await suspended(lab, both, claimed=running)
    assert await read(execution_id=key, names=("current_waitpoint_id", "public_state")) == {
        "current_waitpoint_id": waiting.at["a"].waitpoint_id,
        "public_state": "suspended",
    }
    lab.clock.advance(5)
    await lab.cancel(key, "enough")
    ended = await read(execution_id=key, names=CORE_FIELDS)
    wanted |= {
        "lifecycle_phase": "terminal",
        "eligibility_state": "not_applicable",
        "public_state": "cancelled",
        "attempt_state": "attempt_terminal",
        "blocking_reason": "none",
        "cancellation_reason": "enough",
        "cancel_reason": "enough",
        "cancelled_by": "operator_override",
        "terminal_at_ms": str(made_at + 5),
        "completed_at": str(made_at + 5),
    }
    assert ended == wanted


@scenario
async def test_the_fields_of_an_absent_execution_are_a_map_of_none(lab: Lab) -> None:
    """Issue 10 C, seed 004: no row is no error."""
    nobody = new_execution_id(lab.engine.store.partitions)
    read = lab.engine.read_exec_core_fields
    assert await read(execution_id=nobody, names=CORE_FIELDS) == dict.fromkeys(CORE_FIELDS)
    assert await read(execution_id=nobody, names=()) == {}
    known = await lab.create()
    assert await read(execution_id=known, names=("no_such_field",)) == {"no_such_field": None}


@scenario
async def test_capabilities_tell_operations_and_nothing_else(lab: Lab) -> None:
    """Issue 10 C: what is there, what is missing, and the schema that is really used."""
    told = lab.engine.capabilities()
    for name in SEED_OPERATIONS:
        assert told.supports[name] is hasattr(Engine, name), name
    assert [name for name in SEED_OPERATIONS if not told.supports[name]] == ["as_any"]
    operations = dict(inspect.getmembers(Engine))
    for name, is_there in told.supports.items():
        assert not is_there or callable(operations[name]), name
    machinery = ("execute", "transact", "fold", "read", "check_id", "moment", "offer", "start")
    assert not told.supports.keys() & set(machinery)
    assert {"submit_flow", "reserve_budget", "spawn_children"} <= told.supports.keys()
    assert told.supports["create_executions_in"] is (told.family == "postgres")
    applied = await lab.engine.store.migration_status()
    assert told.schema_version == max((each.version for each in applied), default=0)


@scenario
async def test_already_satisfied_names_what_it_is_about(lab: Lab) -> None:
    """Issue 10 C: the id the call named, under the seeds' name."""
    await make_budget(lab, "money", hard={"a": 1})
    again = await make_budget(lab, "money", hard={"a": 1})
    assert again == BudgetAlreadySatisfied("money")
    await quota(lab, cap=1)
    twice = await lab.engine.create_quota_policy(
        quota_policy_id=QUOTA, window_seconds=10, max_concurrent=1
    )
    assert twice == QuotaAlreadySatisfied(QUOTA)
    execution_id = await lab.create()
    unowned = await lab.engine.revoke_lease(execution_id=execution_id, reason="x")
    assert unowned == AlreadySatisfied("no_active_lease", execution_id)


@scenario
async def test_a_budgets_status_has_the_seeds_fields_beside_its_policy(lab: Lab) -> None:
    """Issue 10 C, seed 000 `get_budget_status_impl`: flat, and in what crosses a wire."""
    await make_budget(
        lab,
        "money",
        hard={"a": 10, "b": 3},
        soft={"a": 5, "b": 1},
        scope_type="lane",
        scope_id="research",
        enforcement_mode="advisory",
    )
    found = await lab.engine.get_budget_status(budget_id="money")
    assert found.policy is not None
    told = to_plain(found)
    for name, value in {
        "scope_type": "lane",
        "scope_id": "research",
        "enforcement_mode": "advisory",
        "hard_limits": {"a": 10, "b": 3},
        "soft_limits": {"a": 5, "b": 1},
    }.items():
        assert told[name] == value, name
        assert getattr(found, name) == getattr(found.policy, name) == value
    plain = {"usage", "breach_count", "soft_breach_count", "last_breach_at", "last_breach_dim"}
    assert plain | {"next_reset_at", "created_at", "budget_id"} <= told.keys()


FULL: Final = {f"a.t{number}": "x" for number in range(TAGS_MAX)}
OVER: Final = {**FULL, "a.more": "x"}


async def _fed(lab: Lab) -> None:
    key = await lab.create(tags=FULL)
    await lab.engine.set_execution_tag(execution_id=key, key="a.more", value="x")


async def _flow_fed(lab: Lab) -> None:
    flow_id = (await submit(lab, [node("a")])).flow_id
    await lab.engine.set_flow_tags(flow_id=flow_id, tags=FULL)
    await lab.engine.set_flow_tag(flow_id=flow_id, key="a.more", value="x")


async def _flow_fed_by_many(lab: Lab) -> None:
    flow_id = (await submit(lab, [node("a")])).flow_id
    await lab.engine.set_flow_tag(flow_id=flow_id, key="a.more", value="x")
    await lab.engine.set_flow_tags(flow_id=flow_id, tags=FULL)


async def _spawned(lab: Lab) -> None:
    child = NewExecution(execution_kind="child", tags=OVER)
    await lab.engine.spawn_children((await lab.started()).handle, [child])


TAGGING: Final[dict[str, Callable[[Lab], Awaitable[Any]]]] = {
    "create": lambda lab: lab.create(tags=OVER),
    "create many": lambda lab: lab.engine.create_executions(
        [NewExecution(execution_kind="a", tags=OVER)]
    ),
    "set one": _fed,
    "node of a flow": lambda lab: submit(lab, [node("a", tags=OVER)]),
    "submit a flow": lambda lab: submit(lab, [node("a")], tags=OVER),
    "create a flow": lambda lab: lab.engine.create_flow(
        flow_id=new_uuid7s(1)[0], flow_kind="k", tags=OVER
    ),
    "set one of a flow": _flow_fed,
    "set many of a flow": _flow_fed_by_many,
    "spawn": _spawned,
}


@pytest.mark.parametrize("way", TAGGING)
@scenario
async def test_the_65th_tag_gets_one_answer_from_one_place(lab: Lab, way: str) -> None:
    """Issue 10 C: the same error with the same words, on every path; the 64th is taken."""
    with pytest.raises(InvalidInput) as refused:
        await TAGGING[way](lab)
    assert refused.value.detail.endswith(f"tags: {TAGS_MAX + 1} are more than {TAGS_MAX}")
    assert refused.value.fields["field"].endswith("tags")
    assert (await lab.describe(await lab.create(tags=FULL))).tags == FULL
