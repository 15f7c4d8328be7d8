"""Executions over HTTP: what is sent, what is answered, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowfabric.server.plain import handle_text
from flowfabric.server.routes import executions
from tests.support.http import Desk
from tests.support.lab import Lab, scenario
from tests.support.statistics import roll_up

if TYPE_CHECKING:
    import pytest


@scenario
async def test_a_submit_is_read_back_by_its_location(lab: Lab, desk: Desk) -> None:
    made = await desk.post("/v1/executions", {"execution_kind": "work", "input": {"a": 1}})
    assert (made.status, made.json["type"]) == (201, "Created")
    read = await desk.get(made.headers["location"])
    assert read.status == 200
    assert read.json["execution_id"] == made.json["execution_id"]
    assert read.json["public_state"] == "waiting"
    listed = await desk.get("/v1/executions?state=waiting&execution_kind=work")
    assert [each["execution_id"] for each in listed.json["items"]] == [made.json["execution_id"]]


@scenario
async def test_a_submit_repeated_with_the_same_idempotency_key_answers_200_duplicate(
    lab: Lab, desk: Desk
) -> None:
    """Scenario 3: … with the first id; other content 409."""
    key = {"Idempotency-Key": "k1"}
    first = await desk.post("/v1/executions", {"execution_kind": "work"}, headers=key)
    again = await desk.post("/v1/executions", {"execution_kind": "work"}, headers=key)
    other = await desk.post("/v1/executions", {"execution_kind": "other"}, headers=key)
    assert first.status == 201
    assert (again.status, again.json["type"]) == (200, "Duplicate")
    assert again.json["execution_id"] == first.json["execution_id"]
    assert (other.status, other.json["code"]) == (409, "idempotency_conflict")
    both = {"execution_kind": "work", "idempotency_key": "k2"}
    refused = await desk.post("/v1/executions", both, headers=key)
    assert (refused.status, refused.json["field"]) == (422, "idempotency_key")


@scenario
async def test_what_was_spent_is_read_by_execution_flow_and_kind(lab: Lab, desk: Desk) -> None:
    flow = await lab.engine.create_flow()
    key = await lab.create(colocate_with=flow.flow_id)
    await lab.engine.add_execution_to_flow(flow_id=flow.flow_id, execution_id=key)
    await lab.engine.record_spend(budget_id="b", execution_id=key, deltas={"tokens": 5})
    line = {"budget_id": "b", "dimension": "tokens", "spent": 5}
    for path in (f"/v1/executions/{key}/spend", f"/v1/flows/{flow.flow_id}/spend"):
        assert (await desk.get(path)).json["items"] == [line]
    found = (await desk.get("/v1/spend?execution_kind=work")).json["items"]
    assert found == [{"namespace": "default", "execution_kind": "work", **line}]
    assert (await desk.get("/v1/spend?execution_kind=other")).json["items"] == []
    gone = await desk.get("/v1/flows/01890000-0000-7000-8000-000000000003/spend")
    assert (gone.status, gone.json["code"]) == (404, "not_found")


@scenario
async def test_a_count_stops_where_it_would_cost_too_much_and_says_so(
    lab: Lab, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await desk.created()
    counted = await desk.get("/v1/executions/count?state=waiting")
    assert counted.json == {"count": 3, "exact": True, "capped_at": 10_000}
    monkeypatch.setattr(executions, "_COUNTED", 2)
    capped = await desk.get("/v1/executions/count")
    assert capped.json == {"count": 2, "exact": False, "capped_at": 2}


@scenario
async def test_a_retry_with_another_input_answers_201_and_is_found_from_both_sides(
    lab: Lab, desk: Desk
) -> None:
    claimed = await lab.started(input_payload=b'{"a":1}', payload_encoding="json")
    path = f"/v1/executions/{claimed.execution_id}"
    early = await desk.post(f"{path}/retry", {"input": {"a": 2}})
    assert (early.status, early.json["code"]) == (409, "execution_not_terminal")
    await lab.engine.fail(claimed.handle, reason="no", failure_class="permanent")
    key = {"Idempotency-Key": "k"}
    made = await desk.post(f"{path}/retry", {"input": {"a": 2}, "reason": "typo"}, headers=key)
    assert (made.status, made.json["type"]) == (201, "Retried")
    again = await desk.post(f"{path}/retry", {"input": {"a": 2}}, headers=key)
    assert again.json == {**made.json, "is_new": False}
    new = await desk.get(f"{made.headers['location']}?include=input")
    assert (new.json["retried_from"], new.json["input"]["input"]) == (
        claimed.execution_id,
        {"a": 2},
    )
    other = await desk.post(f"{path}/retry", {"input_base64": "AP8="})
    assert other.status == 201
    merged = await desk.post(f"{path}/retry", {"arguments": {"b": 3}})
    assert merged.status == 201
    listed = (await desk.get(f"{path}/retries")).json["items"]
    ids = {each.json["execution_id"] for each in (made, other, merged)}
    assert {each["execution_id"] for each in listed} == ids
    for wrong, field in (
        ({"input": 1, "cascade": True}, "cascade"),
        ({"payload_encoding": "json"}, "payload_encoding"),
        ({"input": 1, "arguments": {"b": 3}}, "input_payload"),
    ):
        refused = await desk.post(f"{path}/retry", wrong)
        assert (refused.status, refused.json["field"]) == (422, field)
    replayed = await desk.post(f"{path}/retry", {"fresh": True}, headers=key)
    assert (replayed.status, replayed.json["type"]) == (200, "Replayed")


@scenario
async def test_failures_that_are_alike_are_told_and_marked_over_http(lab: Lab, desk: Desk) -> None:
    origin = {"exception": "NoCard", "frame": "shop:charge", "line": 7}
    ids = []
    for _ in range(2):
        claimed = await lab.started()
        failed = {"type": "fail", "handle": handle_text(claimed.handle), "reason": "no card"}
        given = {**failed, "failure_class": "permanent", "origin": origin}
        assert (await desk.post("/v1/commands", {"items": [given]})).status == 200
        ids.append(claimed.execution_id)
    await roll_up(lab)
    (group,) = (await desk.get("/v1/failures?by=total")).json["items"]
    assert (group["failed"], group["frame"], group["message"]) == (2, "shop:charge", "no card")
    path = f"/v1/failures/{group['fingerprint']}"
    assert (await desk.get(path)).json["failed"] == 2
    told = await desk.get(f"/v1/executions/{ids[0]}/failure")
    assert (told.json["fingerprint"], told.json["group"]["failed"]) == (group["fingerprint"], 2)
    letters = await desk.get(f"/v1/dead?fingerprint={group['fingerprint']}")
    assert {each["execution_id"] for each in letters.json["items"]} == set(ids)
    marked = await desk.post(f"{path}/known", {"known_until": lab.now + 60_000, "reason": "bank"})
    assert marked.status == 200
    assert (await desk.get("/v1/failures")).json["items"] == []
    assert len((await desk.get("/v1/failures?with_known=true")).json["items"]) == 1
    assert (await desk.get("/v1/failures/0123")).status == 404
    new = await desk.get(f"/v1/executions/{await lab.create()}/failure")
    assert (new.status, new.json["entity"]) == (404, "failure")
    bulk = {"action": "retry", "fingerprint": group["fingerprint"]}
    assert (await desk.post("/v1/executions/bulk", bulk)).json["matched"] == 2


@scenario
async def test_the_trace_that_a_caller_names_in_headers_goes_with_what_it_submits(
    lab: Lab, desk: Desk
) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    trace = {"traceparent": parent, "tracestate": "a=1"}
    work, own = {"execution_kind": "work"}, parent.replace("0af", "1af")
    made = await desk.post("/v1/executions", work, headers=trace)
    assert made.status == 201
    batch = {"items": [work, {**work, "traceparent": own}]}
    assert (await desk.post("/v1/executions/batch", batch, headers=trace)).status == 201
    nodes = {"nodes": [{"name": "a", "execution": work}]}
    assert (await desk.post("/v1/flows", nodes, headers=trace)).status == 201
    hostile = {"traceparent": "00-" + "z" * 3_000, "tracestate": "\x7f"}
    assert (await desk.post("/v1/executions", work, headers=hostile)).status == 201
    found = [each.trace and each.trace.parent for each in await lab.claims(limit=9)]
    assert sorted(map(str, found)) == sorted([parent, parent, own, parent, "None"])
