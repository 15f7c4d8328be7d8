"""Merge patches: RFC 7396 by its own examples, and against an implementation of another kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.kernel.stream.merge import CannotAppend, append_all, is_deeper, merge_patch
from flowfabric.model.record import exact_from_json, exact_to_json

# Appendix A of RFC 7396: the original, the patch, the result.
APPENDIX = [
    ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
    ('{"a":"b"}', '{"a":null}', "{}"),
    ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
    ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
    ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
    ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
    ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
    ('["a","b"]', '["c","d"]', '["c","d"]'),
    ('{"a":"b"}', '["c"]', '["c"]'),
    ('{"a":"foo"}', "null", "null"),
    ('{"a":"foo"}', '"bar"', '"bar"'),
    ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
    ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
    ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
]

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
KEYS = st.sampled_from(["a", "b", "c", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


def by_paths(target: Any, patch: Any) -> Any:
    """The same by another way: the patch is taken apart into steps at paths, each done alone."""
    if not isinstance(patch, dict):
        return patch
    document = json.loads(json.dumps(target)) if isinstance(target, dict) else {}
    for path, value in _steps(patch, ()):
        _put(document, path, value)
    return document


def _steps(patch: dict[str, Any], path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for key, value in patch.items():
        found.append(((*path, key), {} if isinstance(value, dict) else value))
        if isinstance(value, dict):
            found += _steps(value, (*path, key))
    return found


def _put(document: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *way, last = path
    for key in way:
        document = document[key]
    if value is None:
        document.pop(last, None)
    elif value == {} and isinstance(value, dict):
        if not isinstance(document.get(last), dict):
            document[last] = {}
    else:
        document[last] = value


@pytest.mark.parametrize(("original", "patch", "wanted"), APPENDIX)
def test_the_examples_of_the_standard(original: str, patch: str, wanted: str) -> None:
    assert merge_patch(json.loads(original), json.loads(patch)) == json.loads(wanted)
    assert by_paths(json.loads(original), json.loads(patch)) == json.loads(wanted)


@given(VALUES, VALUES)
def test_both_implementations_agree(target: Any, patch: Any) -> None:
    assert merge_patch(target, patch) == by_paths(target, patch)


@given(VALUES, VALUES)
def test_a_patch_applied_twice_is_applied_once(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS)
def test_an_empty_patch_changes_nothing(target: dict[str, Any]) -> None:
    assert merge_patch(target, {}) == target


@given(OBJECTS, OBJECTS)
def test_the_given_values_stay_as_they_are(target: dict[str, Any], patch: dict[str, Any]) -> None:
    before = json.dumps([target, patch])
    merge_patch(target, patch)
    assert json.dumps([target, patch]) == before


@given(st.integers(min_value=-(10**300), max_value=10**300))
def test_whole_numbers_are_exact(number: int) -> None:
    text = str(number).encode()
    assert exact_to_json(exact_from_json(text, field="x")) == text


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_fractions_keep_their_digits(number: Any) -> None:
    text = str(number).encode()
    assert exact_from_json(exact_to_json(exact_from_json(text, field="x")), field="x") == number


@given(st.lists(st.text(max_size=5), max_size=5))
def test_appended_text_is_all_of_it(parts: list[str]) -> None:
    document: dict[str, Any] = {"t": ""}
    for part in parts:
        document = append_all(document, [{"path": "/t", "value": part}])
    assert document == {"t": "".join(parts)}


@pytest.mark.parametrize(
    "steps", [{}, [1], [{"path": "t"}], [{"path": "x", "value": ""}], [{"path": "/t", "value": 1}]]
)
def test_a_step_that_does_not_fit_is_named(steps: Any) -> None:
    with pytest.raises(CannotAppend):
        append_all({"t": ""}, steps)


def test_an_append_leaves_the_given_document_alone() -> None:
    given_document = {"a": {"l": [1]}}
    append_all(given_document, [{"path": "/a/l", "value": [2]}])
    assert given_document == {"a": {"l": [1]}}


@pytest.mark.parametrize(("depth", "is_too_deep"), [(0, False), (2, False), (3, True)])
def test_levels_are_counted_below_the_root(depth: int, is_too_deep: bool) -> None:
    value: Any = {}
    for _ in range(depth):
        value = {"x": value}
    assert is_deeper(value, 2) is is_too_deep
