"""A payload is let in exactly when the waiter can decode it; what differs is listed here."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidPayload
from flowfabric.kernel.schema import payload_problem

Meta = msgspec.Meta


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Grade(enum.IntEnum):
    LOW = 0
    HIGH = 1


class Point(msgspec.Struct):
    x: int
    y: float = 0.0


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tags: list[str] = []


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square", forbid_unknown_fields=True):
    side: int
    corner: Point | None = None


class Row(msgspec.Struct, array_like=True):
    number: int
    word: str = "none"


class Tree(msgspec.Struct):
    value: int
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Order:
    item: str
    count: Annotated[int, Meta(ge=1, le=99)]
    notes: list[str | None]


class Options(TypedDict):
    speed: int
    comment: NotRequired[str]


class Pair(NamedTuple):
    first: int
    second: str = "b"


TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": bool,
    "none": None,
    "anything": Any,
    "optional": int | None,
    "several": int | str | None,
    "words": Literal["yes", "no"],
    "numbers": Literal[0, 1],
    "word or none": Literal["x", None],
    "enum": Colour,
    "int enum": Grade,
    "struct": Point,
    "strict struct": Strict,
    "tagged": Circle | Square,
    "array struct": Row,
    "recursive": Tree,
    "dataclass": Order,
    "typed dict": Options,
    "named tuple": Pair,
    "list": list[Point | None],
    "dict": dict[str, list[int]],
    "pair": tuple[int, str],
    "row of ints": tuple[int, ...],
    "bounded int": Annotated[int, Meta(ge=-2, lt=5)],
    "even": Annotated[int, Meta(multiple_of=2)],
    "quarters": Annotated[float, Meta(gt=0, multiple_of=0.25)],
    "short text": Annotated[str, Meta(min_length=1, max_length=3)],
    "short list": Annotated[list[int], Meta(min_length=1, max_length=2)],
    "small dict": Annotated[dict[str, int], Meta(min_length=1, max_length=2)],
    "date": datetime.date,
    "instant": Annotated[datetime.datetime, Meta(tz=True)],
    "length of time": datetime.timedelta,
    "uuid": uuid.UUID,
    "bytes": bytes,
    "nested": dict[str, Circle | Square | list[Order]],
}

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 6),
    st.sampled_from([0.0, 1.0, 0.25, -1.5, 2.0, 1e30, 2**70]),
    st.sampled_from(["", "x", "yes", "no", "red", "blue", "circle", "square", "éé", "long text"]),
    st.sampled_from(
        ["2026-11-16", "2026-13-16", "2026-11-16T05:00:00Z", "P1D", "P", "aGk=", "aGk"]
    ),
    st.sampled_from(["6f1c1c4e-7d0a-4a53-9a3e-3f6c2f0f3c55", "6f1c1c4e7d0a4a539a3e3f6c2f0f3c55"]),
)
WORDS = "x y name tags type radius side corner value left right item count notes speed comment"
names = st.sampled_from(WORDS.split())
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=4)),
    max_leaves=12,
)


def schema_text(kind: Any) -> str:
    return msgspec.json.encode(msgspec.json.schema(kind)).decode()


SCHEMAS = {name: schema_text(kind) for name, kind in TYPES.items()}


def is_decoded(data: bytes, kind: Any) -> bool:
    try:
        msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return False
    return True


def is_let_in(data: bytes, name: str) -> bool:
    return payload_problem(data, SCHEMAS[name]) is None


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_what_is_let_in_is_what_can_be_decoded(name: str, data: st.DataObject) -> None:
    """Values of the right type and any others, with parts changed, dropped and added."""
    kind = TYPES[name]
    if data.draw(st.booleans()):
        value = data.draw(good_values(name))
        if data.draw(st.booleans()):
            value = data.draw(mutated(value))
    else:
        value = data.draw(values)
    text = msgspec.json.encode(value)
    assert is_let_in(text, name) == is_decoded(text, kind), (
        value,
        payload_problem(text, SCHEMAS[name]),
    )


def good_values(name: str) -> st.SearchStrategy[Any]:
    """Plain data a type's own values are encoded to."""
    points = st.fixed_dictionaries({"x": st.integers()}, optional={"y": st.floats(-9, 9)})
    circles = st.fixed_dictionaries({"type": st.just("circle"), "radius": st.floats(-9, 9)})
    squares = st.fixed_dictionaries(
        {"type": st.just("square"), "side": st.integers()},
        optional={"corner": st.one_of(st.none(), points)},
    )
    orders = st.fixed_dictionaries(
        {
            "item": st.text(max_size=3),
            "count": st.integers(1, 99),
            "notes": st.lists(st.one_of(st.none(), st.just("note")), max_size=2),
        }
    )
    trees: st.SearchStrategy[Any] = st.recursive(
        st.fixed_dictionaries({"value": st.integers()}),
        lambda inner: st.fixed_dictionaries(
            {"value": st.integers()}, optional={"left": inner, "right": inner}
        ),
        max_leaves=9,
    )
    made: dict[str, st.SearchStrategy[Any]] = {
        "struct": points,
        "strict struct": st.fixed_dictionaries(
            {"name": st.just("n")}, optional={"tags": st.lists(st.text(max_size=2), max_size=2)}
        ),
        "tagged": st.one_of(circles, squares),
        "array struct": st.one_of(st.just([1]), st.just([1, "w"]), st.just([1, "w", 3])),
        "recursive": trees,
        "dataclass": orders,
        "typed dict": st.fixed_dictionaries(
            {"speed": st.integers()}, optional={"comment": st.text(max_size=2)}
        ),
        "named tuple": st.one_of(st.just([1]), st.just([1, "w"])),
        "list": st.lists(st.one_of(st.none(), points), max_size=3),
        "dict": st.dictionaries(names, st.lists(st.integers(), max_size=2), max_size=2),
        "nested": st.dictionaries(
            names, st.one_of(circles, squares, st.lists(orders, max_size=2)), max_size=2
        ),
        "date": st.dates().map(str),
        "uuid": st.uuids().map(str),
        "bytes": st.binary(max_size=6).map(msgspec.to_builtins),
    }
    return made.get(name, scalars)


@st.composite
def mutated(draw: st.DrawFn, value: Any) -> Any:
    """The same with one part changed, lost or gained."""
    if isinstance(value, dict) and draw(st.integers(0, 3)):
        changed = dict(value)
        name = draw(st.sampled_from([*value, "unheard_of", "type"]))
        if name in changed and draw(st.booleans()):
            if draw(st.booleans()):
                del changed[name]
            else:
                changed[name] = draw(mutated(changed[name]))
        else:
            changed[name] = draw(scalars)
        return changed
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], draw(mutated(value[at])), *value[at + 1 :]]
    return draw(scalars)


DIFFERENCES: dict[str, tuple[Any, bytes, bool]] = {
    "a schema cannot say that keys are numbers": (dict[int, str], b'{"x": "y"}', True),
    "an instant without a time zone is any text": (datetime.datetime, b'"tomorrow"', True),
    "the bytes behind base64 are not counted": (
        Annotated[bytes, Meta(min_length=3)],
        b'"aGk="',
        True,
    ),
    "no regular expressions": (Annotated[str, Meta(pattern="^a")], b'"b"', True),
    "a decimal must be text": (decimal.Decimal, b"1.5", False),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_differences(name: str) -> None:
    """Let in although it cannot be decoded, or the other way round."""
    kind, data, is_in = DIFFERENCES[name]
    assert (payload_problem(data, schema_text(kind)) is None) == is_in
    assert is_decoded(data, kind) != is_in


def test_a_refusal_names_the_place() -> None:
    refused = payload_problem(b'{"item": "a", "count": 1, "notes": ["x", 7]}', SCHEMAS["dataclass"])
    assert refused is not None
    assert refused.error is InvalidPayload
    assert "payload.notes[1]" in refused.detail
    for data, name, place in (
        (b'{"count": 1, "notes": []}', "dataclass", "payload.item: is required"),
        (b'{"name": "n", "other": 1}', "strict struct", "payload.other: unknown field"),
        (b"[1, 2, 3]", "short list", "payload: longer than 2"),
        (b"7", "bounded int", "payload: 7 breaks exclusiveMaximum 5"),
        (b"{", "int", "payload"),
        (None, "int", "payload: expected integer, got NoneType"),
    ):
        refused = payload_problem(data, SCHEMAS[name])
        assert refused is not None
        assert place in refused.detail


def test_no_payload_is_null() -> None:
    assert payload_problem(None, SCHEMAS["optional"]) is None


def test_depth_is_bounded_and_ample() -> None:
    value: dict[str, Any] = {"value": 0}
    for _ in range(30):
        value = {"value": 1, "left": value}
    assert payload_problem(msgspec.json.encode(value), SCHEMAS["recursive"]) is None
    for _ in range(200):
        value = {"value": 1, "left": value}
    assert payload_problem(msgspec.json.encode(value), SCHEMAS["recursive"]) is not None
    endless = '{"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}'
    refused = payload_problem(b"1", endless)
    assert refused is not None
    assert "nested too deeply" in refused.detail
