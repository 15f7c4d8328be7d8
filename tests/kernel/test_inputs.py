"""Data passing: what upstreams hand on becomes an input, the same whoever came last."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from flowfabric.kernel.inputs import Passed, compose


def passed(upstream: str, result: bytes | None, name: str | None = None, **rest: str) -> Passed:
    return Passed(name, upstream, result, rest.get("encoding"))


def test_one_edge_without_a_name_replaces_the_input() -> None:
    assert compose(b"own", "text", [passed("a", b"\x00\xff", encoding="octets")]) == (
        b"\x00\xff",
        "octets",
    )
    assert compose(b"own", "text", [passed("a", b"")]) == (b"", None)


def test_nothing_handed_on_keeps_the_input() -> None:
    assert compose(b"own", None, [passed("a", None)]) is None


def test_one_edge_with_a_name_arrives_in_a_map() -> None:
    found = compose(b"", None, [passed("a", b"1", name="left")])
    assert found == (b'{"left":1}', "json")
    assert compose(b"", None, [passed("a", None, name="left")]) == (b'{"left":null}', "json")


def test_several_arrive_under_the_names_of_their_upstreams_in_any_order() -> None:
    three = [passed("b", b"2"), passed("a", b"1"), passed("c", b"3", name="x")]
    found = {compose(b"", None, list(order)) for order in permutations(three)}
    assert found == {(b'{"a":1,"b":2,"x":3}', "json")}


@pytest.mark.parametrize(
    ("payload", "encoding", "kept"),
    [
        (b'{"keep": 1}', None, {"keep": 1}),
        (b'{"keep": 1}', "json", {"keep": 1}),
        (b'{"keep": 1}', "text", {}),  # not said to be JSON
        (b"[1]", "json", {}),
        (b"nonsense", "json", {}),
        (b"\xff", None, {}),
        (b"", None, {}),
        (b'{"a": "old"}', None, {}),  # what is handed on lies above
    ],
)
def test_a_map_is_laid_over_an_object(payload: bytes, encoding: str | None, kept: object) -> None:
    found = compose(payload, encoding, [passed("a", b"1"), passed("b", b"2")])
    assert found is not None
    assert json.loads(found[0]) == {**kept, "a": 1, "b": 2}  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("result", "encoding", "expected"),
    [
        (b'{"n": 1.50}', None, '{"n": 1.50}'),  # as it is written
        (b'"x"', "json", '"x"'),
        (b"x", "json", '{"base64":"eA==","encoding":"json"}'),
        (b"1", "text", '{"base64":"MQ==","encoding":"text"}'),
        (b"\xff", None, '{"base64":"/w==","encoding":null}'),
        (b"", None, '{"base64":"","encoding":null}'),
        (None, None, "null"),
    ],
)
def test_results_that_are_no_json_travel_as_base64(
    result: bytes | None, encoding: str | None, expected: str
) -> None:
    found = compose(b"", None, [Passed("r", "a", result, encoding)])
    assert found == (f'{{"r":{expected}}}'.encode(), "json")
