"""What happens, over HTTP: events, frames, log lines, summaries."""

from __future__ import annotations

from typing import Any

from flowfabric.model.stream import NewFrame, PatchKind
from flowfabric.model.words import StreamMode
from flowfabric.server.plain import handle_text
from flowfabric.server.routes.values import path_id
from tests.support.http import Desk
from tests.support.lab import Lab, scenario


@scenario
async def test_events_are_read_page_by_page_and_none_twice(lab: Lab, desk: Desk) -> None:
    ids = [await lab.completed() for _ in range(3)]
    seen: list[str] = []
    path, after = "/v1/events?kinds=completion&limit=2", ""
    while True:
        page = (await desk.get(path + after)).json
        seen += [each["subject"] for each in page["events"]]
        after = f"&after={page['cursor']}"
        if page["is_end"]:
            break
    assert seen == ids
    assert (await desk.get(path + after)).json["events"] == []
    assert (await desk.get("/v1/events?after=now")).json["events"] == []


@scenario
async def test_gauges_tell_what_stands_where(lab: Lab, desk: Desk) -> None:
    await lab.create()
    (lane,) = (await desk.get("/v1/gauges")).json["lanes"]
    assert (lane["ready"], lane["running"], lane["ready_since"]) == (1, 0, lab.now)


@scenario
async def test_events_of_a_tag_or_an_execution(lab: Lab, desk: Desk) -> None:
    first = await lab.completed()
    await lab.completed()
    found = await desk.get(f"/v1/events?kinds=completion&execution_id={path_id(first)}")
    assert [each["subject"] for each in found.json["events"]] == [first]
    refused = await desk.get("/v1/events?kinds=completions")
    assert (refused.status, refused.json["field"]) == (422, "kinds")
    of_other = await desk.get("/v1/events?kinds=flow&after=" + found.json["cursor"])
    assert (of_other.status, of_other.json["code"]) == (400, "invalid_cursor")


@scenario
async def test_frames_come_and_go_over_http(lab: Lab, desk: Desk) -> None:
    claimed = await lab.started()
    path = f"/v1/executions/{path_id(claimed.execution_id)}"
    frames: list[Any] = [{"payload": {"a": 1}, "mode": "durable"}, {"payload_base64": "_-8="}]
    body = {"handle": handle_text(claimed.handle), "frames": frames}
    made = await desk.post(f"{path}/frames", body)
    assert made.status == 200
    shown = (await desk.get(f"{path}/stream")).json
    assert shown["frames"][0]["payload"] == {"a": 1}
    assert shown["frames"][1]["payload_base64"] == "/+8="
    assert shown["closed_at"] is None
    rest = await desk.get(f"{path}/stream?after={shown['next_cursor']}")
    assert rest.json["frames"] == []
    elsewhere = await lab.started("w2")
    other = f"/v1/executions/{path_id(elsewhere.execution_id)}/frames"
    refused = await desk.post(other, body)
    assert (refused.status, refused.json["field"]) == (422, "handle")
    damaged = await desk.post(f"{path}/frames", {**body, "handle": "AAAA"})
    assert (damaged.status, damaged.json["field"]) == (422, "handle")


@scenario
async def test_a_summary_has_its_version_as_etag(lab: Lab, desk: Desk) -> None:
    claimed = await lab.started()
    path = f"/v1/executions/{path_id(claimed.execution_id)}/summary"
    assert (await desk.get(path)).status == 404
    change = NewFrame(payload=b'{"done":7}', mode=StreamMode.SUMMARY, patch_kind=PatchKind.MERGE)
    await lab.engine.append_frame(claimed.handle, frame=change)
    shown = await desk.get(path)
    assert (shown.json["document"], shown.headers["etag"]) == ({"done": 7}, '"1"')
    same = await desk.get(path, headers={"If-None-Match": '"1"'})
    assert same.status == 304


@scenario
async def test_a_log_is_read_by_attempt(lab: Lab, desk: Desk) -> None:
    claimed = await lab.started()
    path = f"/v1/executions/{path_id(claimed.execution_id)}/logs"
    page = (await desk.get(f"{path}?attempt_index=0&limit=5")).json
    assert page["lines"] == []
    refused = await desk.get(f"{path}?attempt=0")
    assert (refused.status, refused.json["errors"][0]["suggestion"]) == (422, "attempt_index")


@scenario
async def test_signing_keys_are_rotated_and_their_secrets_never_shown(lab: Lab, desk: Desk) -> None:
    secret = "5e" * 32
    rotated = await desk.post(
        "/v1/signing-keys/rotate", {"new_kid": "next", "new_secret_hex": secret}
    )
    assert rotated.status == 200
    listed = await desk.get("/v1/signing-keys")
    assert [each["kid"] for each in listed.json["items"] if each["is_current"]] == ["next"]
    assert secret.encode() not in rotated.body + listed.body


@scenario
async def test_a_server_tells_operators_of_its_store(lab: Lab, desk: Desk) -> None:
    told = (await desk.get("/v1/system")).json
    assert told["store"] == lab.engine.backend_label()
    assert told["checks"] == {"store": True, "loop": True, "serving": True}


@scenario
async def test_a_type_that_is_not_answered_is_refused(quick: Lab) -> None:
    desk = Desk(quick.engine)
    refused = await desk.get("/v1/executions", headers={"Accept": "text/html"})
    assert (refused.status, refused.json["code"]) == (406, "not_acceptable")
    for accept in ("text/html, application/*;q=0.5", "application/json", "*/*", "x/y, */*;q=0.1"):
        assert (await desk.get("/v1/executions", headers={"Accept": accept})).status == 200
    never = await desk.get("/v1/executions", headers={"Accept": "application/json;q=0"})
    assert never.status == 406


@scenario
async def test_a_member_of_a_union_tells_its_kind_as_type_in_both_directions(
    lab: Lab, desk: Desk
) -> None:
    work = {"execution_kind": "work"}
    join = {"type": "any_of", "on_satisfied": "let_run"}
    nodes = [
        {"name": "a", "execution": work},
        {"name": "b", "execution": work},
        {"name": "c", "execution": work, "join": join},
    ]
    edges = [{"upstream": name, "downstream": "c"} for name in "ab"]
    made = await desk.post("/v1/flows", {"nodes": nodes, "edges": edges})
    assert (made.status, made.json["type"]) == (201, "FlowSubmitted")
    (group,) = (await desk.get(made.headers["location"])).json["edge_groups"]
    assert group["policy"] == {**join, "only_if_unshared": False}
    wrong = [*nodes[:2], {**nodes[2], "join": {"kind": "any_of", "on_satisfied": "let_run"}}]
    refused = await desk.post("/v1/flows", {"nodes": wrong, "edges": edges})
    assert (refused.status, refused.json["field"]) == (422, "type")
