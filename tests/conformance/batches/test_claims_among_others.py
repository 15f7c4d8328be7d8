"""A claim in a list of requests: one commit with the reports before it, and each its own reply."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flowfabric.api.executions import NewExecution
from flowfabric.api.leases import Claim, Complete
from flowfabric.api.operation import Request
from flowfabric.errors import InvalidInput, StaleLease, StoreUnavailable
from flowfabric.model.record import replace
from flowfabric.model.results import Claimed, Completed
from flowfabric.model.state import PublicState
from tests.support.flows import arrows, node, submit, woven
from tests.support.inner import inner
from tests.support.lab import LANE, TTL_MS, Lab, scenario


def a_claim(**fields: Any) -> Claim:
    given = {"lanes": (LANE,), "worker_id": "w1", "worker_instance_id": "w1-1", **fields}
    return Claim(**{"lease_ttl_ms": TTL_MS, **given})


async def running(lab: Lab, number: int, **fields: Any) -> list[Claimed]:
    await lab.engine.create_executions([NewExecution(execution_kind="work", **fields)] * number)
    return await lab.claims(limit=number)


async def ask(lab: Lab, *requests: Request[Any]) -> list[Any]:
    return await lab.engine.call_many(requests)


@contextmanager
def counted_commits(lab: Lab) -> Iterator[list[int]]:
    """How many commands each commit of the engine carries."""
    batches, sizes = inner(lab.engine).batches, list[int]()
    commit = batches._commit

    async def counted(batch: Any) -> None:
        sizes.append(len(batch))
        await commit(batch)

    batches._commit = counted
    try:
        yield sizes
    finally:
        batches._commit = commit


@scenario
async def test_completions_and_the_next_claim_share_one_commit(lab: Lab) -> None:
    first = await running(lab, 3)
    waiting = [await lab.create() for _ in range(2)]
    with counted_commits(lab) as sizes:
        *ends, claimed = await ask(
            lab, *(Complete(handle=each.handle) for each in first), a_claim(limit=5)
        )
    assert sizes == [4]
    assert [type(each) for each in ends] == [Completed] * 3
    assert [each.execution_id for each in claimed] == waiting
    for each in claimed:  # each lease is as good as one that was claimed alone
        assert type(await lab.engine.complete(each.handle)) is Completed


@scenario
async def test_a_refused_completion_disturbs_no_claim_beside_it(lab: Lab) -> None:
    first = await running(lab, 2)
    waiting = await lab.create()
    stale = replace(first[0].handle, lease_epoch=first[0].handle.lease_epoch + 1)
    malformed = replace(first[0].handle, execution_id="nonsense")
    answers = await ask(
        lab,
        Complete(handle=stale),
        Complete(handle=malformed),
        Complete(handle=first[1].handle),
        a_claim(),
    )
    assert [type(each) for each in answers] == [StaleLease, InvalidInput, Completed, list]
    assert [each.execution_id for each in answers[3]] == [waiting]
    assert await lab.state(first[0].execution_id) is PublicState.ACTIVE


@pytest.mark.parametrize(
    ("wrong", "field"), [({"limit": 0}, "limit"), ({"lanes": ()}, "lanes"), ({"wait_ms": -1}, None)]
)
@scenario
async def test_a_refused_claim_disturbs_no_completion_beside_it(
    lab: Lab, wrong: dict[str, Any], field: str | None
) -> None:
    (first,) = await running(lab, 1)
    await lab.create()
    ended, refused = await ask(lab, Complete(handle=first.handle), a_claim(**wrong))
    assert type(ended) is Completed
    assert isinstance(refused, InvalidInput)
    assert refused.fields["field"] == (field or "wait_ms")


@woven
async def test_a_claim_gets_the_member_that_the_completion_before_it_set_free(lab: Lab) -> None:
    graph = await submit(lab, [node("a"), node("b")], arrows("a>b"))
    first = await lab.claim()
    _, claimed = await ask(lab, Complete(handle=first.handle), a_claim(limit=9))
    assert [each.execution_id for each in claimed] == [graph.ids["b"]]


@scenario
async def test_a_claim_that_may_wait_is_answered_in_a_list_too(lab: Lab) -> None:
    (first,) = await running(lab, 1)
    waiting = await lab.create()
    _, claimed = await ask(lab, Complete(handle=first.handle), a_claim(wait_ms=50))
    assert [each.execution_id for each in claimed] == [waiting]


@scenario
async def test_a_commit_that_fails_takes_neither_the_report_nor_the_claim(lab: Lab) -> None:
    (first,) = await running(lab, 1)
    waiting = await lab.create()
    store = inner(lab.engine).store
    transact = store.transact

    async def down(work: Any) -> Any:
        raise StoreUnavailable("down")

    store.transact = down  # type: ignore[method-assign]
    asked: list[Request[Any]] = [Complete(handle=first.handle, result=b"1"), a_claim()]
    answers = await ask(lab, *asked)
    assert [type(each) for each in answers] == [StoreUnavailable] * 2
    store.transact = transact  # type: ignore[method-assign]
    ended, claimed = await ask(lab, *asked)
    assert type(ended) is Completed
    assert [each.execution_id for each in claimed] == [waiting]
