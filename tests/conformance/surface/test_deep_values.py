"""JSON nests 64 deep at most, at every entrance; what older versions stored stalls nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowfabric.api.leases import Complete
from flowfabric.engine.operations import requests
from flowfabric.errors import Corruption, InvalidInput, InvalidPayload
from flowfabric.limits import JSON_DEPTH_MAX
from flowfabric.model.attempt import FailureClass
from flowfabric.model.state import PublicState
from tests.support.flows import arrows, edge, node, submit, woven
from tests.support.lab import Lab, scenario
from tests.support.waits import suspended

PERMANENT = FailureClass.PERMANENT
DEEPEST = b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX
TOO_DEEP = {depth: b"[" * depth + b"]" * depth for depth in (65, 3_000, 200_000)}


@pytest.mark.parametrize("depth", TOO_DEEP)
@scenario
async def test_no_entrance_takes_json_that_nests_too_deep(lab: Lab, depth: int) -> None:
    deep = TOO_DEEP[depth]
    running = await lab.started()
    waiting = await suspended(lab)
    engine, key = lab.engine, running.execution_id
    for encoding in (None, "json"):
        async with lab.refuses(InvalidInput, field="input_payload"):
            await lab.create(input_payload=deep, payload_encoding=encoding)
        async with lab.refuses(InvalidInput, field="result"):
            await engine.complete(running.handle, result=deep, result_encoding=encoding)
        async with lab.refuses(InvalidInput, field="result_payload"):
            await engine.complete_execution(
                execution_id=key,
                source="operator_override",
                result_payload=deep,
                result_encoding=encoding,
            )
    answers = await engine.complete_many([Complete(handle=running.handle, result=deep)])
    assert isinstance(answers[0], InvalidInput)
    if len(deep) < 65_536:
        async with lab.refuses(InvalidPayload, field="payload"):
            await waiting.send("go", payload=deep)
        async with lab.refuses(InvalidPayload, field="comment"):
            await engine.deliver_approval_signal(
                execution_id=waiting.execution_id,
                waitpoint_id=waiting.at["a"].waitpoint_id,
                signal_name="go",
                idempotency_suffix="1",
                comment=deep,
            )
    async with lab.refuses(InvalidInput, field="tags"):
        await lab.create(tags={"a.b": nested(depth)})
    async with lab.refuses(InvalidInput, field="policy"):
        await lab.create(policy=nested(depth))


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(min(depth, 900)):
        value = {"retry_policy": value}
    return value


@scenario
async def test_values_nested_to_the_limit_are_accepted_everywhere(lab: Lab) -> None:
    claimed = await lab.started(input_payload=DEEPEST)
    await lab.engine.complete(claimed.handle, result=DEEPEST)
    waiting = await suspended(lab)
    await waiting.send("go", payload=DEEPEST)


@scenario
async def test_bytes_that_are_not_said_to_be_json_nest_as_they_like(lab: Lab) -> None:
    deep = TOO_DEEP[3_000]
    claimed = await lab.started(input_payload=deep, payload_encoding="text")
    await lab.engine.complete(claimed.handle, result=deep, result_encoding="text")
    assert await lab.engine.get_execution_result(execution_id=claimed.execution_id) == deep


@pytest.mark.parametrize("depth", TOO_DEEP)
@woven
async def test_a_result_too_deep_for_a_named_edge_can_be_failed_at_once(
    lab: Lab, depth: int
) -> None:
    """It is the report that is refused, not an accident of the commit: another report ends it."""
    named = [edge("a", "b", passes_result=True, input_name="x")]
    graph = await submit(lab, "ab", named)
    handle = await graph.handle("a")
    async with lab.refuses(InvalidInput, field="result"):
        await lab.engine.complete(handle, result=TOO_DEEP[depth])
    await lab.engine.fail(handle, reason="the result was refused", failure_class=PERMANENT)
    assert await graph.states() == {"a": "failed", "b": "skipped"}


# --- what is stored already --------------------------------------------------------------------


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As a version without the check would have stored it; `undo` brings the check back."""
    monkeypatch.setattr(requests, "check_nesting", lambda *_, **__: None)
    return monkeypatch


@pytest.mark.parametrize("depth", TOO_DEEP)
@woven
async def test_an_innocent_upstream_of_a_join_is_never_refused(
    lab: Lab, older: pytest.MonkeyPatch, depth: int
) -> None:
    """What it joins with is too deep: its own report stands, and the child fails with the cause."""
    graph = await submit(
        lab,
        ["deep", "flat", "d", "e", "other"],
        [*arrows("deep>d", "flat>d", passes_result=True), *arrows("d>e", "flat>other")],
    )
    await graph.complete("deep", result=TOO_DEEP[depth])
    older.undo()
    await graph.complete("flat", result=b"1")
    assert await graph.states() == {
        "deep": "completed",
        "flat": "completed",
        "d": "failed",
        "e": "skipped",
        "other": "waiting",
    }
    ended = await lab.describe(graph.ids["d"])
    assert ended.failure_category == "input_too_deep"
    assert ended.failure_reason is not None
    assert "handed as deep" in ended.failure_reason
    await graph.complete("other")
    assert (await graph.flow_state()).value == "failed"


@woven
async def test_an_own_input_that_is_too_deep_fails_its_execution_by_name(
    lab: Lab, older: pytest.MonkeyPatch
) -> None:
    graph = await submit(
        lab,
        ["a", node("b", input_payload=b'{"own":' + TOO_DEEP[3_000] + b"}")],
        [edge("a", "b", passes_result=True, input_name="x")],
    )
    older.undo()
    await graph.complete("a", result=b"1")
    ended = await lab.describe(graph.ids["b"])
    assert ended.failure_category == "input_too_deep"
    assert "its own input" in (ended.failure_reason or "")


@woven
async def test_a_cascade_put_off_meets_a_deep_result_and_goes_on(
    lab: Lab, older: pytest.MonkeyPatch
) -> None:
    """The loop resolves it, beside others: nothing stalls, nothing is set aside."""
    named = [edge("a", "b", passes_result=True, input_name="x")]
    deep, flat = await submit(lab, "ab", named), await submit(lab, "ab", named)
    older.setattr("flowfabric.engine.unit.flows.joins.Joins.remaining", 0)
    await deep.complete("a", result=TOO_DEEP[3_000])
    await flat.complete("a", result=b"1")
    older.undo()
    await lab.engine.move_due()
    assert await deep.state("b") == "failed"
    assert await flat.state("b") == "waiting"
    assert json.loads(await flat.payload("b")) == {"x": 1}
    assert lab.engine.loop_status().set_aside == ()


@pytest.mark.parametrize("column", ["policy", "tags", "bounds"])
def test_a_stored_text_that_is_too_deep_makes_its_row_corrupt(
    durable_lab: Lab, column: str
) -> None:
    lab = durable_lab

    async def check() -> None:
        bad, good = await lab.create(), await lab.create()
        text = TOO_DEEP[200_000].decode()
        await lab.sql(
            f"UPDATE ff_exec_body SET {column} = '{text}' WHERE execution_id = '{bad[-36:]}'"
        )
        with pytest.raises(Corruption, match=bad[-36:]):
            await lab.describe(bad)
        assert await lab.state(good) is PublicState.WAITING
        assert (await lab.claim()).execution_id == good
        problems = (await lab.engine.doctor()).problems
        assert {each.subject for each in problems} == {bad, f"ff_exec_body {bad[-36:]}"}

    lab.run(check())
