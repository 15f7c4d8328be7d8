"""Capabilities: one grammar on both sides, matched inside the search."""

from __future__ import annotations

from typing import Any

import pytest

from flowfabric.errors import InvalidCapabilities, InvalidInput
from flowfabric.model.policy import ExecutionPolicy, RoutingRequirements
from tests.support.lab import Lab, scenario


def needs(*tokens: str) -> ExecutionPolicy:
    return ExecutionPolicy(routing_requirements=RoutingRequirements(required_capabilities=tokens))


def plain(tokens: Any) -> dict[str, Any]:
    return {"routing_requirements": {"required_capabilities": tokens}}


@scenario
async def test_a_superset_matches_and_a_subset_does_not(lab: Lab) -> None:
    execution_id = await lab.create(policy=needs("gpu", "cuda"))
    for offered in ((), ("gpu",), ("cuda",), ("GPU", "CUDA")):
        assert await lab.claims(capabilities=offered) == []
    claimed = await lab.claim(capabilities=("x", "gpu", "cuda"))
    assert claimed.execution_id == execution_id


@scenario
async def test_work_that_no_worker_can_run_delays_no_other(lab: Lab) -> None:
    """However much of it is in front."""
    for _ in range(60):
        await lab.create(priority=9, policy=needs("quantum"))
    runnable = await lab.create(priority=0)
    assert (await lab.claim()).execution_id == runnable


@scenario
async def test_two_half_capable_workers_do_not_make_a_whole_one(lab: Lab) -> None:
    await lab.create(policy=needs("a", "b"))
    async with lab.unchanged():
        assert await lab.claims("w1", capabilities=("a",)) == []
        assert await lab.claims("w2", capabilities=("b",)) == []


WORDS_256 = [f"w{number}" for number in range(256)]
BAD = [
    ["a,b"],
    ["a b"],
    ["a\tb"],
    ["a\x7f"],
    ["a\u00a0b"],
    [""],
    [*WORDS_256, "one-more"],
    ["x" * 4097],
    ["x" * 4095, "y"],
]


@pytest.mark.parametrize("tokens", BAD, ids=lambda tokens: repr(tokens)[:20])
@scenario
async def test_a_malformed_list_is_refused_on_both_sides(lab: Lab, tokens: list[str]) -> None:
    await lab.create()
    async with lab.refuses(InvalidCapabilities, field="capabilities"):
        await lab.claims(capabilities=tokens)
    async with lab.refuses(InvalidCapabilities, field="capabilities"):
        await lab.create(policy=plain(tokens))
    async with lab.refuses(InvalidCapabilities, field="capabilities"):
        await lab.engine.register_worker(
            worker_id="w1",
            worker_instance_id="w1-1",
            lanes=("default",),
            capabilities=tokens,
            liveness_ttl_ms=1000,
        )


@pytest.mark.parametrize(
    "tokens",
    [WORDS_256, ["x" * 4096], ["x" * 4094, "y"], ["东京-gpu"], ["a=b", "c/d:1"]],
    ids=lambda tokens: repr(tokens)[:20],
)
@scenario
async def test_capabilities_within_the_bounds_are_accepted_on_both_sides(
    lab: Lab, tokens: list[str]
) -> None:
    """Both maxima are inclusive."""
    execution_id = await lab.create(policy=plain(tokens))
    claimed = await lab.claim(capabilities=list(reversed(tokens)))
    assert claimed.execution_id == execution_id
    assert (await lab.describe(execution_id)).required_capabilities == tuple(sorted(tokens))


@pytest.mark.parametrize(
    "policy",
    [
        plain({"gpu": True}),
        plain("gpu"),
        plain([5]),
        plain(None),
        {"routing_requirements": ["gpu"]},
        {"routing_requirements": "gpu"},
        ["gpu"],
        "gpu",
        5,
    ],
    ids=repr,
)
@scenario
async def test_a_requirement_of_another_shape_never_means_anybody(lab: Lab, policy: Any) -> None:
    """Strict, it does not fail open."""
    async with lab.refuses(InvalidInput, field="policy"):
        await lab.create(policy=policy)
