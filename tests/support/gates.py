"""Words for tests about quotas and budgets, and the check that counters equal rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec

from flowfabric.api.executions import NewExecution
from flowfabric.model.execution import Execution
from flowfabric.model.quota import AdmissionRow, AdmissionState, GateRow
from flowfabric.model.results import Created
from flowfabric.stores.tables import ADMISSIONS, GATES
from tests.support.lab import Lab, scenario

P = ParamSpec("P")

QUOTA = "q"
BUDGET = "b"


def counted(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A scenario after which every gate's counters must equal the rows they count."""

    @wraps(test)
    async def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        await test(*args, **kwargs)
        lab = kwargs["lab"]
        assert isinstance(lab, Lab)
        await assert_counters(lab)

    return scenario(checked)


async def assert_counters(lab: Lab) -> None:
    """Counters equal rows, and whoever runs under a quota has exactly one running place."""
    dump = await lab.dump()
    active: Counter[tuple[str, str]] = Counter()
    in_window: Counter[tuple[str, str]] = Counter()
    states: dict[tuple[str, str, str], AdmissionState] = {}
    for row in dump[ADMISSIONS.name]:
        key = (row.quota_policy_id, row.dimension)
        active[key] += row.is_active
        in_window[key] += row.counted_at is not None
        states[(*key, row.execution_id)] = row.state
        assert row.is_active or row.counted_at is not None, f"{row} has nothing to say"
        assert row.due_at is None or row.state is AdmissionState.RESERVED, row
    gates = {(gate.quota_policy_id, gate.dimension): gate for gate in dump[GATES.name]}
    assert set(active) <= set(gates)
    for key, gate in gates.items():
        assert (gate.active, gate.in_window) == (active[key], in_window[key]), gate
    for execution in dump["executions"]:
        if isinstance(execution, Execution) and execution.bounds.gate is not None:
            place = states.get((*execution.bounds.gate, execution.execution_id))
            runs = place is AdmissionState.RUNNING
            assert not runs or execution.is_leased, f"{execution} holds a place and does not run"


async def quota(lab: Lab, name: str = QUOTA, **limits: int) -> None:
    """A policy: `rate`, `cap`, `window` in seconds, `jitter_ms`."""
    await lab.engine.create_quota_policy(
        quota_policy_id=name,
        window_seconds=limits.get("window", 10),
        max_requests_per_window=limits.get("rate", 0),
        max_concurrent=limits.get("cap", 0),
        jitter_ms=limits.get("jitter_ms", 0),
    )


async def budget(lab: Lab, name: str = BUDGET, hard: int = 10, **fields: Any) -> None:
    """A budget with one dimension, `tokens`."""
    await lab.engine.create_budget(
        budget_id=name, dimensions=["tokens"], hard_limits=[hard], soft_limits=[0], **fields
    )


async def spend(lab: Lab, tokens: int, name: str = BUDGET) -> None:
    """Use some of a budget."""
    await lab.engine.report_usage_admin(budget_id=name, dimensions=["tokens"], deltas=[tokens])


async def many(lab: Lab, count: int, **fields: Any) -> list[str]:
    """New executions under the quota, in order of age."""
    fields = {"quota_policy_id": QUOTA, "execution_kind": "work", **fields}
    created = await lab.engine.create_executions([NewExecution(**fields) for _ in range(count)])
    return [each.execution_id for each in created if isinstance(each, Created)]


async def gate(lab: Lab, dimension: str = "default", name: str = QUOTA) -> GateRow:
    """A gate's counters."""
    for row in (await lab.dump())[GATES.name]:
        if (row.quota_policy_id, row.dimension) == (name, dimension):
            assert isinstance(row, GateRow)
            return row
    return GateRow(name, dimension)


async def admissions(lab: Lab) -> dict[str, AdmissionRow]:
    """Admission rows by execution."""
    return {row.execution_id: row for row in (await lab.dump())[ADMISSIONS.name]}


async def places(lab: Lab) -> set[str]:
    """The executions that take a place."""
    return {key for key, row in (await admissions(lab)).items() if row.is_active}
