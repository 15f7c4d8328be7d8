"""How deep JSON may nest, told from its bytes."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidInput
from flowfabric.limits import JSON_DEPTH_MAX
from flowfabric.model.flow import AllSucceeded
from flowfabric.model.handle import Handle
from flowfabric.model.nesting import check_nesting, is_too_deep
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import from_json, is_json, json_object, to_plain


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nest(value: Any, kinds: str) -> Any:
    for kind in kinds:
        value = [value] if kind == "[" else {"a": value}
    return value


scalars = st.none() | st.integers() | st.text('[]{}"\\ a\n', max_size=30)
wide = st.recursive(
    scalars, lambda each: st.lists(each) | st.dictionaries(st.text('[{"\\', max_size=9), each)
)


@given(wide, st.text("[{", min_size=50, max_size=80), st.booleans())
def test_the_depth_is_that_of_the_value(value: Any, kinds: str, compact: bool) -> None:
    """Brackets and quotes inside strings and keys do not count."""
    nested = nest([value, '\\"[[[', value], kinds)
    text = json.dumps(nested, indent=None if compact else 1).encode()
    assert is_too_deep(text) == (depth_of(nested) > JSON_DEPTH_MAX)


def test_the_shortest_text_that_nests_too_deep_is_refused() -> None:
    deepest = b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX
    check_nesting(deepest, "json", field="payload")
    with pytest.raises(InvalidInput, match="payload: nests deeper"):
        check_nesting(b"[" + deepest + b"]", "json", field="payload")


def test_many_shallow_values_are_not_deep() -> None:
    assert not is_too_deep(json.dumps([[{}, []] for _ in range(10_000)]).encode())
    assert not is_too_deep(json.dumps("[" * 10_000).encode())


@pytest.mark.parametrize("depth", [65, 900, 5_000, 500_000])
def test_values_that_no_decoder_can_read_are_too_deep(depth: int) -> None:
    assert is_too_deep(b"[" * depth + b"]" * depth)
    assert is_too_deep(b'{"a":' * depth + b"1" + b"}" * depth)


def test_bytes_that_are_no_json_are_never_too_deep() -> None:
    """They are handed on as they are; nobody decodes them."""
    noise = random.Random(7)
    for _ in range(50):
        assert not is_too_deep(b"[" * 70 + noise.randbytes(10_000))
    assert not is_too_deep(b"{" * 100)
    assert not is_too_deep(b"]" * 100 + b"[" * 100)


DEEP = b"[" * 100_000 + b"]" * 100_000


def test_decoding_never_raises_past_its_own_errors() -> None:
    for kind in (object, list[Any], dict[str, Any], ExecutionPolicy):
        with pytest.raises(InvalidInput, match="field: "):
            from_json(DEEP, kind, field="field")
    assert not is_json(DEEP)
    assert json_object(b'{"a":' + DEEP + b"}") == {}
    value: Any = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidInput, match="field: "):
        to_plain(value, field="field")
    while value:  # a list so deep is taken apart by hand, or its own end is an accident
        value = value[0]
    with pytest.raises(InvalidInput, match="handle"):
        Handle.decode(b"FFH1" + b"\x91" * 100_000)
    assert to_plain(AllSucceeded()) == {"kind": "all_of"}
