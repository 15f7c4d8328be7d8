"""What a release has promised to callers over HTTP holds: `/v1` changes by addition alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowfabric.config import VERSION
from flowfabric.server.routes.all import DESCRIPTION
from tests.support.promises import breaks, kept, promised

FOLDER = Path(__file__).parent / "openapi"
KEPT = sorted(FOLDER.glob("*.json"))


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return promised(DESCRIPTION.document(VERSION))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_nothing_that_a_release_promised_is_broken(path: Path, now: dict[str, Any]) -> None:
    """A field, a path or a word that callers may use stays; what they must send does not grow.
    What is to go is announced first, and stays for two minor releases."""
    assert breaks(kept(path), now) == []


def test_this_release_is_kept() -> None:
    """`tools/keep_openapi.py` keeps it; the first of all promises is that of 0.1.0."""
    assert f"{VERSION}.json" in {path.name for path in KEPT}


def _gone(new: dict[str, Any]) -> None:
    del new["paths"]["GET /v1/lanes"]


def _scope(new: dict[str, Any]) -> None:
    new["paths"]["GET /v1/lanes"]["scope"] = "admin"


def _parameter(new: dict[str, Any]) -> None:
    del new["paths"]["GET /v1/executions"]["parameters"]["query limit"]


def _needed(new: dict[str, Any]) -> None:
    new["paths"]["GET /v1/lanes"]["parameters"]["query region"] = {"required": True, "schema": {}}


def _status(new: dict[str, Any]) -> None:
    del new["paths"]["POST /v1/executions"]["answers"]["201"]


def _field_sent(new: dict[str, Any]) -> None:
    del new["schemas"]["NewExecutionGiven"]["properties"]["priority"]


def _field_needed(new: dict[str, Any]) -> None:
    given = new["schemas"]["NewExecutionGiven"]
    given["required"] = [*given.get("required", ()), "lane_id"]


def _field_answered(new: dict[str, Any]) -> None:
    del new["schemas"]["ExecutionSnapshot"]["properties"]["public_state"]


def _null_answered(new: dict[str, Any]) -> None:
    properties = new["schemas"]["ExecutionSnapshot"]["properties"]
    properties["lane_id"] = {"type": ["string", "null"]}


def _command(new: dict[str, Any]) -> None:
    items = new["paths"]["POST /v1/commands"]["request"]["properties"]["items"]["items"]
    del items["anyOf"][0]


def _kind_answered(new: dict[str, Any]) -> None:
    made = new["schemas"]["Made"]["properties"]["items"]["items"]
    made["anyOf"].append({"$ref": "#/components/schemas/Moon"})


def _word_answered(new: dict[str, Any]) -> None:
    new["schemas"]["PublicState"]["enum"].append("sleeping")


@pytest.mark.parametrize(
    "change",
    [
        *(_gone, _scope, _parameter, _needed, _status),
        *(_command, _kind_answered),
        *(_field_sent, _field_needed, _field_answered, _null_answered, _word_answered),
    ],
)
def test_a_breaking_difference_is_found(
    change: Callable[[dict[str, Any]], None], now: dict[str, Any]
) -> None:
    new = copy.deepcopy(now)
    change(new)
    assert len(breaks(now, new)) >= 1


def test_additions_break_nothing(now: dict[str, Any]) -> None:
    new = copy.deepcopy(now)
    new["paths"]["GET /v1/moons"] = new["paths"]["GET /v1/lanes"]
    lanes = new["paths"]["GET /v1/lanes"]
    lanes["parameters"]["query region"] = {"required": False, "schema": {"type": "string"}}
    new["schemas"]["ExecutionSnapshot"]["properties"]["moon"] = {"type": "string"}
    new["schemas"]["NewExecutionGiven"]["properties"]["moon"] = {"type": "string"}
    assert breaks(now, new) == []
