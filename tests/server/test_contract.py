"""The document of the API: what it lists, and that it is one."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import pytest

from flowfabric.server.openapi.document import errors_of
from flowfabric.server.openapi.page import page
from flowfabric.server.routes.all import ROUTES
from tests.support.contract import document, faults
from tests.support.http import Desk
from tests.support.lab import Lab, scenario

# What a caller may rely on, written down apart from the table of routes.
DEMANDED: Final = """
POST /v1/executions
POST /v1/executions/batch
GET /v1/executions
GET /v1/executions/count
GET /v1/executions/{}
GET /v1/executions/{}/outcome
POST /v1/executions/outcomes
GET /v1/executions/{}/attempts
GET /v1/executions/{}/why
GET /v1/executions/{}/waits
GET /v1/executions/{}/timeline
GET /v1/executions/{}/logs
GET /v1/executions/{}/input
GET /v1/executions/{}/result
PATCH /v1/executions/{}
POST /v1/executions/{}/cancel
POST /v1/executions/{}/hold
POST /v1/executions/{}/release
POST /v1/executions/{}/revoke
POST /v1/executions/{}/resume
POST /v1/executions/{}/retry
POST /v1/executions/bulk
POST /v1/flows
GET /v1/flows
GET /v1/flows/{}
GET /v1/flows/{}/members
GET /v1/flows/{}/edges
POST /v1/flows/{}/cancel
POST /v1/flows/{}/members
POST /v1/flows/{}/edges
PATCH /v1/flows/{}
GET /v1/waits
POST /v1/waits/{}/{}/approve
POST /v1/waits/{}/{}/reject
POST /v1/waits/{}/{}/signal
POST /v1/budgets
POST /v1/quotas
GET /v1/budgets
GET /v1/quotas
GET /v1/budgets/{}
GET /v1/quotas/{}
POST /v1/budgets/{}/reset
POST /v1/budgets/{}/usage
GET /v1/lanes
PATCH /v1/lanes/{}
POST /v1/commands
POST /v1/workers/register
POST /v1/workers/claim
POST /v1/workers/stops
GET /v1/workers
DELETE /v1/workers/{}
POST /v1/workers/{}/drain
POST /v1/workers/{}/dead
GET /v1/events
GET /v1/executions/{}/stream
POST /v1/executions/{}/frames
GET /v1/executions/{}/summary
GET /v1/operations/{}
GET /v1/operations
POST /v1/operations/{}/stop
GET /v1/signing-keys
POST /v1/signing-keys
POST /v1/signing-keys/rotate
GET /v1/stats
GET /v1/system
POST /v1/doctor
GET /v1
GET /livez
GET /readyz
GET /openapi.json
GET /docs
"""


def test_every_path_that_is_promised_is_there() -> None:
    there = {re.sub(r"\{\w+\}", "{}", each.name) for each in ROUTES}
    assert not set(DEMANDED.strip().splitlines()) - there


def every(value: Any) -> Any:
    """A value and all that is in it."""
    yield value
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from every(each)


def test_openapi_lists_every_route_and_every_code() -> None:
    paths = document()["paths"]
    assert sum(map(len, paths.values())) == len(ROUTES)
    for route in ROUTES:
        about = paths[route.path][route.method.lower()]
        assert about["x-errors"] == [each.code for each in errors_of(route)]
        assert {str(each.status) for each in errors_of(route)} <= about["responses"].keys()


def test_openapi_is_whole() -> None:
    """Every reference leads somewhere, every parameter of a path is declared, and each operation
    has a name of its own."""
    components = document()["components"]
    ids = []
    for each in every(document()):
        if isinstance(each, dict) and isinstance(each.get("$ref"), str):
            _, _, group, name = each["$ref"].split("/")
            assert name in components[group], each
    for path, methods in document()["paths"].items():
        for about in methods.values():
            ids.append(about["operationId"])
            words = [(each["in"], each["name"]) for each in about.get("parameters", ())]
            declared = [name for where, name in words if where == "path"]
            assert declared == re.findall(r"\{(\w+)\}", path)
            assert len(words) == len(set(words)), path
            assert any(status.startswith(("2", "5")) for status in about["responses"])
    assert len(ids) == len(set(ids))


def test_no_schema_of_the_document_says_nothing_by_mistake() -> None:
    """A class that the writer does not know would be `{}`: anything at all."""
    empty = [name for name, each in document()["components"]["schemas"].items() if not each]
    assert not empty
    wide = [
        f"{name}.{field}"
        for name, each in document()["components"]["schemas"].items()
        for field, one in each.get("properties", {}).items()
        if not one
    ]
    assert (
        wide
        == [
            "JournalEntryGiven.value",
        ]
        or not wide
    ), wide


@scenario
async def test_the_document_is_served_with_an_etag(quick: Lab) -> None:
    desk = Desk(quick.engine)
    first = await desk.get("/openapi.json")
    assert first.json["openapi"] == "3.1.0"
    again = await desk.get("/openapi.json", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


@scenario
async def test_the_reference_page_needs_no_other_host(quick: Lab) -> None:
    shown = await Desk(quick.engine).get("/docs")
    assert shown.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in shown.headers["content-security-policy"]
    text = shown.body.decode()
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text)
    assert "<script" not in text
    for route in ROUTES:
        assert f"<code>{route.path}</code>" in text
    links = set(re.findall(r'href="#([^"]+)"', text))
    assert links <= set(re.findall(r'id="([^"]+)"', text))


def test_the_page_escapes_what_it_shows() -> None:
    odd = json.loads(json.dumps(document()))
    odd["info"]["title"] = "<script>"
    assert b"<script>" not in page(odd)


# --- the validator itself -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        (1, {"type": "string"}),
        (True, {"type": "integer"}),
        ({}, {"type": "object", "required": ["a"]}),
        ({"b": 1}, {"type": "object", "properties": {"a": {}}}),
        ([1], {"type": "array", "items": {"type": "string"}}),
        ([1, 2], {"type": "array", "maxItems": 1}),
        ({"a": 1}, {"anyOf": [{"type": "null"}, {"properties": {"a": {"const": 2}}}]}),
        ({"a": 1, "c": 1}, {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
        ("x", {"enum": ["a", "b"]}),
    ],
)
def test_the_validator_finds_what_does_not_fit(value: Any, schema: Any) -> None:
    assert faults(value, schema)
