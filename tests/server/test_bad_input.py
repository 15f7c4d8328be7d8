"""Bad input over HTTP, and every error as a client catches it."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any, Final

import pytest

from flowfabric import errors, limits
from flowfabric.api import wire
from flowfabric.client.engine import refusal_of
from flowfabric.client.transport import Reply
from flowfabric.errors import FlowFabricError
from flowfabric.model.record import replace
from flowfabric.server.plain import handle_text
from flowfabric.server.problems import answer_of
from tests.support.http import NOTHING, Desk, escaped
from tests.support.lab import Lab, scenario

NEW: Final = "/v1/executions"
LIST: Final = "/v1/executions"
JSON: Final = {"Content-Type": "application/json"}


def new(**fields: Any) -> bytes:
    return json.dumps({"execution_kind": "work", **fields}).encode()


def raw(text: str) -> bytes:
    return b'{"execution_kind": "work", ' + text.encode("utf-8", "surrogatepass") + b"}"


TAGS: Final = {f"team.t{number}": "v" for number in range(65)}

# What is sent, and the status, code and field that are answered.
BODIES: Final[dict[str, tuple[Any, int, str, str | None]]] = {
    "an opening brace": (b"{", 400, "malformed_json", "body"),
    "a list": (b"[]", 422, "invalid_input", "body"),
    "nothing, announced as JSON": (b"", 400, "malformed_json", "body"),
    "NaN": (raw('"priority": NaN'), 400, "malformed_json", "body"),
    "NaN in the input": (raw('"input": [NaN]'), 400, "malformed_json", "body"),
    "5,000 brackets": (raw('"input": ' + "[" * 5000 + "]" * 5000), 400, "malformed_json", "body"),
    "a lone surrogate": (raw('"lane_id": "\\ud800"'), 400, "malformed_json", "body"),
    "bytes that are no UTF-8": (
        raw('"input": "?"').replace(b"?", b"\xff"),
        400,
        "malformed_json",
        "body",
    ),
    "a number as text": (new(priority="5"), 422, "invalid_input", "priority"),
    "a fraction": (new(priority=5.0), 422, "invalid_input", "priority"),
    "a truth as a number": (new(priority=True), 422, "invalid_input", "priority"),
    "2^63": (new(priority=2**63), 422, "invalid_input", "priority"),
    "two inputs": (new(input=1, input_base64="AA=="), 422, "invalid_input", "input"),
    "base64 with spaces": (new(input_base64="AA ="), 422, "invalid_input", "input_base64"),
    "base64 with bad padding": (new(input_base64="AAA"), 422, "invalid_input", "input_base64"),
    "a tag without a dot": (new(tags={"nodot": "v"}), 422, "invalid_tag_key", None),
    "65 tags": (new(tags=TAGS), 422, "invalid_input", "tags"),
    "a tag of 1,025 bytes": (new(tags={"team.a": "v" * 1025}), 422, "invalid_input", None),
    "an empty lane": (new(lane_id=""), 422, "invalid_input", "lane_id"),
    "a long lane": (new(lane_id="x" * 65), 422, "invalid_input", "lane_id"),
    "a lane with a line break": (new(lane_id="a\nb"), 422, "invalid_input", "lane_id"),
    "an instant far away": (new(delay_until=10**15), 422, "invalid_input", "delay_until"),
    "the year 10000": (
        new(delay_until="10000-01-01T00:00:00Z"),
        422,
        "invalid_input",
        "delay_until",
    ),
    "an instant without an offset": (
        new(delay_until="2026-01-01T00:00:00"),
        422,
        "invalid_input",
        None,
    ),
    "an unknown field": (new(prioritty=5), 422, "invalid_input", "prioritty"),
}

QUERIES: Final[dict[str, tuple[str, int, str, str | None]]] = {
    "a negative limit": ("limit=-1", 422, "invalid_input", "limit"),
    "a limit over 1,000": ("limit=1001", 422, "invalid_input", "limit"),
    "a limit in words": ("limit=abc", 422, "invalid_input", "limit"),
    "two limits": ("limit=1&limit=1", 422, "invalid_input", "limit"),
    "a cursor of nothing": ("cursor=abc", 400, "invalid_cursor", "cursor"),
    "an instant far away": ("created_after=1000000000000000", 422, "invalid_input", None),
    "a tag without a dot": ("tag=nodot:v", 422, "invalid_tag_key", None),
    "a lane that is empty": ("lane_id=", 422, "invalid_input", "lane_id"),
    "a lane with a line break": ("lane_id=a%0Ab", 422, "invalid_input", "lane_id"),
    "the year 10000": ("created_after=10000-01-01T00:00:00Z", 422, "invalid_input", None),
    "an instant without an offset": (
        "created_after=2026-01-01T00:00:00",
        422,
        "invalid_input",
        None,
    ),
    "a parameter that is none": ("limt=1", 422, "invalid_input", "limt"),
}

WAITS: Final = ("26s", "-1", "1e3", "PT5S", "5", "")


@pytest.mark.parametrize("name", BODIES)
@scenario
async def test_a_bad_body_is_refused_by_name_and_nothing_is_made(quick: Lab, name: str) -> None:
    body, status, code, field = BODIES[name]
    async with quick.unchanged():
        told = await Desk(quick.engine).post(NEW, body)
    assert (told.status, told.json["code"]) == (status, code), told
    if field is not None:
        assert told.json["field"] == field
    if code == "malformed_json" and name == "an opening brace":
        assert (told.json["line"], told.json["column"]) == (1, 2)


@pytest.mark.parametrize("name", QUERIES)
@scenario
async def test_a_bad_parameter_is_refused_by_name(quick: Lab, name: str) -> None:
    query, status, code, field = QUERIES[name]
    told = await Desk(quick.engine).get(f"{LIST}?{query}")
    assert (told.status, told.json["code"]) == (status, code), told
    if field is not None:
        assert told.json["field"] == field


@pytest.mark.parametrize("wait", WAITS)
@scenario
async def test_a_wait_is_a_duration_with_a_unit_up_to_the_bound(quick: Lab, wait: str) -> None:
    desk = Desk(quick.engine)
    made = await desk.created()
    told = await desk.get(f"/v1/executions/{made}/outcome?wait={wait}")
    assert (told.status, told.json["field"]) == (422, "wait")
    assert "25000ms" in told.json["detail"]


@scenario
async def test_unknown_field_points_at_itself_and_names_the_nearest(quick: Lab) -> None:
    told = await Desk(quick.engine).post(NEW, new(prioritty=5))
    (error,) = told.json["errors"]
    assert (error["pointer"], error["suggestion"]) == ("/prioritty", "priority")


@scenario
async def test_what_is_just_allowed_is_taken(quick: Lab) -> None:
    desk = Desk(quick.engine)
    for body in (
        new(input_base64=base64.urlsafe_b64encode(b"\xff\xfe\xfd").decode()),
        new(priority=99999),
        new(delay_until="2026-01-01T00:00:00+02:00"),
    ):
        assert (await desk.post(NEW, body)).status == 201
    empty = await desk.get(f"{LIST}?limit=0")
    assert (empty.status, empty.json["items"]) == (200, [])


@scenario
async def test_a_payload_of_exactly_the_limit_is_taken_and_one_byte_more_is_413(
    quick: Lab,
) -> None:
    desk = Desk(quick.engine)
    most = limits.PAYLOAD_BYTES_DEFAULT
    exact = b'{"execution_kind": "work", "input": "' + b"x" * (most - 2) + b'"}'
    assert (await desk.post(NEW, exact)).status == 201
    over = exact[:-2] + b'x"}'
    told = await desk.post(NEW, over)
    assert (told.status, told.json["code"]) == (413, "payload_too_large")


@scenario
async def test_numbers_keys_and_bytes_come_back_byte_for_byte(lab: Lab, desk: Desk) -> None:
    """Scenario 6."""
    text = b'{ "b":12345678901234567,"a" :1.10, "c":[1e5,  null]}'
    body = b'{"execution_kind": "work", "input": ' + text + b"}"
    made = (await desk.post(NEW, body)).headers["location"]
    assert text in (await desk.get(f"{made}/input")).body
    assert (await desk.get(f"{made}/input?raw=1")).body == text
    noise = bytes(range(256)) * 4096
    other = await desk.created(input_base64=base64.b64encode(noise).decode())
    plain = await desk.get(f"/v1/executions/{other}/input?raw=1")
    assert plain.body == noise
    assert plain.headers["x-content-type-options"] == "nosniff"


@scenario
async def test_a_batch_with_a_bad_item_names_it_and_makes_none_or_all_others(
    lab: Lab, desk: Desk
) -> None:
    """Scenario 5: a batch of 1,000 with a bad item 500."""
    items = [{"execution_kind": "work"} for _ in range(1000)]
    items[500] = {"execution_kind": ""}
    async with lab.unchanged():
        told = await desk.post(f"{NEW}/batch", {"items": items})
    assert told.status == 422
    assert told.json["errors"][0]["pointer"].startswith("/items/500/")
    each = await desk.post(f"{NEW}/batch", {"items": items, "atomic": False})
    kinds = [one["type"] for one in each.json["items"]]
    assert (kinds.count("Created"), kinds[500]) == (999, "urn:flowfabric:error:invalid_input")


# --- ids, paths, cursors --------------------------------------------------------------------------


@scenario
async def test_ids_and_paths_that_lead_nowhere(quick: Lab) -> None:
    desk = Desk(quick.engine)
    made = await desk.created()
    full = (await desk.get(f"/v1/executions/{made}")).json["execution_id"]
    assert (await desk.get(f"/v1/executions/{escaped(full)}")).status == 200
    uuid = made.partition(".")[2]
    for path, status in (
        ("/v1/executions/17.xyz", 422),
        (f"/v1/executions/{escaped('{fp:999}:' + uuid)}", 422),
        (f"/v1/executions/{uuid}", 200),
        (f"/v1/executions/{uuid[:-4]}0000", 404),
        ("/v1/executions/../tokens", 404),
        ("/v1/executions/%2e%2e", 404),
        ("/v1//executions", 404),
        ("/v1/executions/%00", 400),
        ("/v1/executions/%ff", 400),
    ):
        told = await desk.get(path)
        assert told.status == status, (path, told)
    node = {"name": "a", "execution": {"execution_kind": "work"}}
    flow = (await desk.post("/v1/flows", {"nodes": [node]})).json["flow_id"]
    told = await desk.get(f"/v1/executions/{flow}")
    assert (told.status, f"/v1/flows/{flow}" in told.json["detail"]) == (404, True)


@scenario
async def test_a_cursor_is_good_for_its_own_filter_alone(lab: Lab, desk: Desk) -> None:
    for _ in range(3):
        await desk.created()
    page = await desk.get(f"{LIST}?limit=1&execution_kind=work")
    cursor = page.json["next_cursor"]
    assert (await desk.get(f"{LIST}?limit=2&execution_kind=work&cursor={cursor}")).status == 200
    for query in (f"cursor={cursor}", f"execution_kind=work&cursor={cursor[:-3]}"):
        told = await desk.get(f"{LIST}?{query}")
        assert (told.status, told.json["code"]) == (400, "invalid_cursor")


@scenario
async def test_handles_that_are_not_of_this_store(quick: Lab) -> None:
    desk = Desk(quick.engine)
    claimed = await quick.started()
    handle = claimed.handle
    elsewhere = handle_text(replace(handle, backend="postgres"))
    for text, status, code in (
        (elsewhere, 422, "handle_from_other_backend"),
        (handle_text(handle)[:-6], 422, "invalid_input"),
    ):
        told = await desk.post("/v1/commands", {"items": [{"type": "complete", "handle": text}]})
        (item,) = told.json["items"]
        assert (item["status"], item["code"]) == (status, code)


@scenario
async def test_commands_are_refused_one_by_one(quick: Lab) -> None:
    desk = Desk(quick.engine)
    items = [{"type": "ping"}, {"type": "pong"}, {"type": "server_time_ms"}]
    told = await desk.post("/v1/commands", {"items": items})
    assert told.status == 200
    assert told.json["items"][1]["code"] == "invalid_input"
    assert isinstance(told.json["items"][2], int)
    many = await desk.post("/v1/commands", {"items": [{"type": "ping"}] * 1001})
    assert (many.status, many.json["field"]) == (422, "items")


CLAIM: Final = {"worker_id": "w", "worker_instance_id": "w-1", "lanes": ["default"], "wait_ms": 0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_ttl_ms", 999),
        ("lease_ttl_ms", 3_600_001),
        ("limit", 1_001),
        ("limit", -1),
        ("wait_ms", 25_001),
        ("wait_ms", -1),
        ("lanes", []),
        ("lanes", "default"),
        ("worker_instance_id", ""),
        ("claim_id", ""),
    ],
)
@scenario
async def test_a_claim_out_of_bounds_is_refused_by_name(
    quick: Lab, field: str, value: object
) -> None:
    desk = Desk(quick.engine)
    await desk.created()
    told = await desk.post("/v1/workers/claim", {**CLAIM, field: value})
    assert (told.status, told.json["code"], told.json["field"]) == (422, "invalid_input", field)


@scenario
async def test_a_report_of_a_finished_attempt_is_the_original_outcome_or_stale(quick: Lab) -> None:
    desk = Desk(quick.engine)
    handle = handle_text((await quick.started()).handle)
    done = {"type": "complete", "handle": handle, "result": 1}
    first, again, other = [
        (await desk.post("/v1/commands", {"items": [each]})).json["items"][0]
        for each in (done, done, {"type": "fail", "handle": handle, "reason": "x"})
    ]
    assert first == again
    assert (other["status"], other["code"]) == (409, "execution_not_active")


# --- headers and bodies on the way ----------------------------------------------------------------


@scenario
async def test_a_body_without_a_length_and_a_gzip_bomb_stop_at_the_limit(quick: Lab) -> None:
    """Scenario 37: a chunked body without length; a gzip bomb of 1,000:1 too."""
    desk = Desk(quick.engine)
    parts = [b'{"execution_kind": "', *[b"x" * 100_000] * 40]
    told = await desk.ask("POST", NEW, headers=JSON, parts=parts)
    assert (told.status, told.json["limit_bytes"]) == (413, desk.service.settings.payload_body_max)
    bomb = gzip.compress(b" " * 100_000_000)
    assert len(bomb) < 100_000
    packed = {**JSON, "Content-Encoding": "gzip"}
    assert (await desk.ask("POST", NEW, headers=packed, parts=[bomb])).status == 413
    fine = gzip.compress(new())
    assert (await desk.ask("POST", NEW, headers=packed, parts=[fine])).status == 201
    cut = await desk.ask("POST", NEW, headers=packed, parts=[fine[:-5]])
    assert (cut.status, cut.json["code"]) == (400, "malformed_request")


@pytest.mark.parametrize("length", ["0" * 5_000 + "2", "9" * 5_000, "٣"])
@scenario
async def test_a_length_that_is_hard_to_read_is_refused(quick: Lab, length: str) -> None:
    desk = Desk(quick.engine)
    headers = {**JSON, "Content-Length": length.encode().decode("latin-1")}
    assert 400 <= (await desk.ask("POST", NEW, headers=headers, parts=[b"{}"])).status < 500


@scenario
async def test_types_and_request_ids(quick: Lab) -> None:
    desk = Desk(quick.engine)
    told = await desk.post(
        NEW, b"a=1", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert (told.status, told.json["code"]) == (415, "unsupported_media_type")
    mine = await desk.get("/v1", headers={"X-Request-Id": "mine-1"})
    assert mine.headers["x-request-id"] == "mine-1"
    for odd in ("a b", "x" * 65, "x\ty", "", "x" * 10_240, "a\nb"):
        other = await desk.get("/v1", headers={"X-Request-Id": odd})
        assert other.headers["x-request-id"] != odd
    wrong = await desk.ask("PUT", NEW, NOTHING)
    assert wrong.status == 405
    assert "POST" in wrong.headers["allow"]
    foreign = await desk.get("/v1", headers={"Host": "evil.example"})
    assert (foreign.status, foreign.json["code"]) == (421, "misdirected_request")


# --- errors ---------------------------------------------------------------------------------------

EVERY: Final = sorted(
    (
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, FlowFabricError)
    ),
    key=lambda kind: kind.code,
)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_every_error_class_over_the_wire_is_caught_as_the_same_class_with_equal_fields(
    kind: type[FlowFabricError],
) -> None:
    """Scenario 30, for answers as JSON problems and for those of our own client."""
    fields = {"field": "lane_id", "count": 3, "allow": ["GET", "HEAD"], "at": None}
    sent = kind("lane_id: said “no”", **fields)
    answer = answer_of(sent, "r1")
    caught = refusal_of(Reply(answer.status, {}, answer.body))
    assert type(caught) is kind
    assert caught.detail == sent.detail
    extra = {"retry_after_ms"} if kind.status in (429, 503) else set()
    assert {k: v for k, v in caught.fields.items() if k not in extra} == fields
    assert wire.decode_error(wire.encode_error(sent)) == sent
    assert kind.code != "not_found" or answer.status == 404
