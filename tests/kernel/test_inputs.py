"""Data passing: what upstreams hand on becomes an input, the same whoever came last."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from flowfabric.kernel.flow import inputs
from flowfabric.kernel.flow.inputs import (
    Passed,
    TooLarge,
    compose,
    handing_on,
    named_alike,
    refuse_sizes,
)
from flowfabric.model.flow import EdgeRow, EdgeState

LIMIT = 1000


def passed(upstream: str, result: bytes | None, name: str | None = None, **rest: str) -> Passed:
    return Passed(name, upstream, result, rest.get("encoding"))


def test_one_edge_without_a_name_replaces_the_input() -> None:
    assert compose(b"own", "text", [passed("a", b"\x00\xff", encoding="octets")], LIMIT) == (
        b"\x00\xff",
        "octets",
    )
    assert compose(b"own", "text", [passed("a", b"")], LIMIT) == (b"", None)


def test_nothing_handed_on_keeps_the_input() -> None:
    assert compose(b"own", None, [passed("a", None)], LIMIT) is None
    assert compose(b"own", None, [], LIMIT) is None


def test_one_edge_with_a_name_arrives_in_a_map() -> None:
    found = compose(b"", None, [passed("a", b"1", name="left")], LIMIT)
    assert found == (b'{"left":1}', "json")
    assert compose(b"", None, [passed("a", None, name="left")], LIMIT) == (b'{"left":null}', "json")


def test_several_arrive_under_the_names_of_their_upstreams_in_any_order() -> None:
    three = [passed("b", b"2"), passed("a", b"1"), passed("c", b"3", name="x")]
    found = {compose(b"", None, list(order), LIMIT) for order in permutations(three)}
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
    found = compose(payload, encoding, [passed("a", b"1"), passed("b", b"2")], LIMIT)
    assert isinstance(found, tuple)
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
    found = compose(b"", None, [Passed("r", "a", result, encoding)], LIMIT)
    assert found == (f'{{"r":{expected}}}'.encode(), "json")


# --- the limit ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "results", "size"),
    [
        (b"own", {None: b"x" * 10}, 10),  # it replaces the input
        (b"", {"a": b'"xx"', "b": b"22"}, 17),  # {"a":"xx","b":22}
        (b'{"own":1}', {"a": b"1"}, 15),  # {"own":1,"a":1}
        (b"", {"a": b"\xff"}, 39),  # {"a":{"base64":"/w==","encoding":null}}
    ],
)
def test_an_input_may_be_as_large_as_the_limit_and_no_larger(
    payload: bytes, results: dict[str | None, bytes], size: int
) -> None:
    handed = [passed("u", result, name=name) for name, result in results.items()]
    found = compose(payload, None, handed, size)
    assert isinstance(found, tuple)
    assert len(found[0]) == size
    assert compose(payload, None, handed, size - 1) == TooLarge(size, size - 1)


def test_an_input_too_large_by_its_parts_is_not_assembled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(inputs, "to_json")
    handed = [passed("a", b"1" * 6), passed("b", b"2" * 5), passed("c", None)]
    assert compose(b"", None, handed, 10) == TooLarge(11, 10)


def test_of_results_under_one_name_only_the_last_counts() -> None:
    handed = [passed("a", b"1" * 900, name="x"), passed("b", b"2", name="x")]
    assert compose(b"", None, handed, 10) == (b'{"x":2}', "json")


def test_sizes_alone_say_when_it_is_too_much() -> None:
    assert refuse_sizes((4, 6), 10) is None
    excess = refuse_sizes((4, 7), 10)
    assert excess == TooLarge(11, 10)
    assert excess.reason.startswith("input_too_large: ")
    assert "11" in excess.reason
    assert "payload_bytes_max is 10" in excess.reason


def test_late_edges_and_losses_hand_nothing_on() -> None:
    met, late, lost, staged = (
        EdgeRow("f", name, "u", "d", "success_only", state, 1)
        for name, state in (
            ("met", EdgeState.SATISFIED),
            ("late", EdgeState.SATISFIED),
            ("lost", EdgeState.IMPOSSIBLE),
            ("staged", EdgeState.PENDING),
        )
    )
    assert handing_on([met, late, lost, staged], {"late"}) == [met]


def test_of_several_edges_each_result_is_named_even_if_only_one_succeeded() -> None:
    bare, called = Passed(None, "up", b"1", None), Passed("n", "up", b"1", None)
    assert named_alike([bare], 1) == [bare]
    assert [each.name for each in named_alike([bare, called], 2)] == ["up", "n"]
    assert [each.name for each in named_alike([bare], 2)] == ["up"]
