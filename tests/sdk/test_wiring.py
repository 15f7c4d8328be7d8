"""Arguments that come in pieces: what is sent, and how it is put together again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowfabric.errors import InvalidInput
from flowfabric.sdk.flow.joins import Node, any_of_nodes, quorum
from flowfabric.sdk.flow.wiring import Wiring
from flowfabric.sdk.pieces import assembled


def whole(payload: dict[str, Any]) -> Any:
    found = assembled(json.dumps(payload).encode())
    return None if found is None else json.loads(found)


def node(name: str) -> Node[Any]:
    return Node(None, name, None)


def test_a_payload_in_one_piece_stays_as_it_is() -> None:
    assert assembled(b'{"a": 1, "b": {"c[0]": 2}}') is None
    assert assembled(b"[1]") is None
    assert assembled(b"nonsense") is None
    assert assembled(b"") is None


def test_pieces_are_put_together_in_their_order() -> None:
    payload = {"parts": [], "parts[10]": "c", "parts[2]": "b", "parts[0]": "a", "x": 1}
    assert whole(payload) == {"parts": ["a", "b", "c"], "x": 1}
    assert whole({"named": {"x": 1}, "named.a b.c": 2}) == {"named": {"x": 1, "a b.c": 2}}
    assert whole({"best": None, "best|2": 2, "best|1": 1}) == {"best": 1}
    assert whole({"parts[0]": 1, "again=": "parts[0]"}) == {"parts": [1], "again": 1}
    assert whole({"parts[1]=": "a", "a": 5, "parts": []}) == {"parts": [5], "a": 5}


def test_a_result_that_did_not_arrive_is_left_out() -> None:
    assert whole({"again=": "gone", "again": None}) == {"again": None}
    assert whole({"parts": [], "again=": "parts[0]"}) == {"parts": []}


def test_results_are_never_taken_for_pieces() -> None:
    payload = {"parts[0]": {"x=": "parts[1]", "y[0]": 1}, "parts": []}
    assert whole(payload) == {"parts": [{"x=": "parts[1]", "y[0]": 1}]}


def test_numbers_keep_their_digits() -> None:
    found = assembled(b'{"parts[0]": 12345678901234567890.10, "parts": []}')
    assert found == b'{"parts":[12345678901234567890.10]}'


def test_the_arguments_sent_and_the_arguments_waited_for() -> None:
    a, b = node("a"), node("b")
    wiring = Wiring({"x": 1, "one": a, "many": [b, 2, a], "named": {"k": b, "l": 3}})
    assert wiring.inputs == {a: "one", b: "many[0]"}
    assert wiring.own == {
        "x": 1,
        "many": [],
        "many[1]": 2,
        "many[2]=": "one",
        "named": {"l": 3},
        "named.k=": "many[0]",
    }
    assert wiring.pending == ["one", "many", "named"]


def test_joins_are_lists_or_alternatives() -> None:
    a, b = node("a"), node("b")
    wiring = Wiring({"all": quorum(1, a, b), "first": any_of_nodes([a, b], None, False)})
    assert wiring.inputs == {a: "all[0]", b: "all[1]"}
    assert wiring.own == {"all": [], "first|0=": "all[0]", "first|1=": "all[1]"}
    assert len(wiring.joins) == 2


def test_a_key_that_could_be_misread_is_refused() -> None:
    a = node("a")
    for key in ("x=", 3):
        with pytest.raises(InvalidInput, match="cannot stand under the key"):
            Wiring({"named": {key: a}})
