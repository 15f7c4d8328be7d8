"""Submits that are asked for together share a commit, and each has its own answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flowfabric.api.executions import NewExecution
from flowfabric.errors import IdempotencyConflict, InvalidInput, NotFound
from flowfabric.model.results import Created, Duplicate
from tests.support.lab import Lab, scenario

if TYPE_CHECKING:
    import pytest


@scenario
async def test_submits_of_one_list_share_a_commit(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lab.create()  # its route is known from now on
    commits = []
    transact = lab.direct.store.transact

    async def counted(work: Any) -> Any:
        commits.append(work)
        return await transact(work)

    monkeypatch.setattr(lab.direct.store, "transact", counted)
    asked = [NewExecution(execution_kind="work") for _ in range(20)]
    answers = await lab.engine.call_many(asked)
    assert all(isinstance(each, Created) for each in answers)
    assert len(commits) == 1


@scenario
async def test_one_bad_submit_disturbs_no_neighbour(lab: Lab) -> None:
    first, same, other, absent, bad, last = await lab.engine.call_many(
        [
            NewExecution(execution_kind="work", idempotency_key="a"),
            NewExecution(execution_kind="work", idempotency_key="a"),
            NewExecution(execution_kind="play", idempotency_key="a"),
            NewExecution(execution_kind="work", budget_ids=("nowhere",)),
            NewExecution(execution_kind=""),
            NewExecution(execution_kind="work"),
        ]
    )
    assert isinstance(first, Created)
    assert isinstance(same, Duplicate)
    assert isinstance(other, IdempotencyConflict)
    assert isinstance(absent, NotFound)
    assert isinstance(bad, InvalidInput)
    assert isinstance(last, Created)
