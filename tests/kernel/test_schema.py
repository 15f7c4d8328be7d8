"""A payload is let in exactly when the waiter can decode it; what differs is listed here."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowfabric.errors import InvalidInput, InvalidPayload
from flowfabric.kernel.wait.schema import check_schema, payload_problem

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
def test_the_payloads_a_schema_accepts_are_those_that_decode(
    name: str, data: st.DataObject
) -> None:
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
    refused = payload_problem(b"[" * 3_000 + b"]" * 3_000, SCHEMAS["anything"])
    assert refused is not None
    assert refused.error is InvalidPayload
    assert "64 levels" in refused.detail


# --- what a stranger may send ------------------------------------------------------------------


class Left(msgspec.Struct, tag="left"):
    part: Left | Right | int


class Right(msgspec.Struct, tag="right"):
    part: Left | Right | int


def union(*names: str, **rest: Any) -> dict[str, Any]:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names], **rest}


def form(word: str | None, part: Any) -> dict[str, Any]:
    properties = {"part": part, **({} if word is None else {"type": {"const": word}})}
    return {"type": "object", "properties": properties, "required": list(properties)}


PARTS = {"anyOf": [{"type": "integer"}, union("A", "B")]}
BY_REFERENCE = {
    "tagged, by msgspec": schema_text(Left | Right),
    "tagged, without a discriminator": json.dumps(
        {**PARTS, "$defs": {"A": form("left", PARTS), "B": form("right", PARTS)}}
    ),
    "untagged": json.dumps({**PARTS, "$defs": {"A": form(None, PARTS), "B": form(None, PARTS)}}),
    "by the root": json.dumps(
        {"anyOf": [{"type": "integer"}, form("left", {"$ref": "#"}), form("b", {"$ref": "#"})]}
    ),
}


@pytest.mark.parametrize("depth", [2, 18, 60])
@pytest.mark.parametrize("name", BY_REFERENCE)
def test_unions_inside_unions_are_told_apart_in_few_steps(name: str, depth: int) -> None:
    """18 levels took 22 seconds; the answer is exact, not that there was no time for one."""
    schema = check_schema(BY_REFERENCE[name])
    assert schema is not None
    for core, is_in in ((1, True), ("x", False)):
        value: Any = core
        for _ in range(depth):
            value = {"part": value, "type": "left"}  # the tag comes last, the trap first
        refused = payload_problem(json.dumps(value).encode(), schema)
        assert (refused is None) == is_in
        assert refused is None or "takes too long" not in refused.detail


def test_the_tag_of_a_union_decides_alone() -> None:
    schema = BY_REFERENCE["tagged, by msgspec"]
    for payload, place in (
        (b'{"part": 1}', "payload.type: is required"),
        (b'{"part": 1, "type": "up"}', "payload.type: 'up' names no alternative"),
        (b'{"part": 1, "type": ["left"]}', "payload.type: ['left'] names no alternative"),
        (b'{"part": {"part": "x", "type": "right"}, "type": "left"}', "payload.part"),
    ):
        refused = payload_problem(payload, schema)
        assert refused is not None
        assert place in refused.detail


class One(msgspec.Struct, tag=1):
    pass


class Two(msgspec.Struct, tag=2):
    pass


@pytest.mark.parametrize(
    ("payload", "is_in"),
    [(b'{"type":1}', True), (b'{"type":"1"}', False), (b'{"type":true}', False), (b"{}", False)],
)
def test_a_tag_may_be_a_number(payload: bytes, is_in: bool) -> None:
    assert (payload_problem(payload, schema_text(One | Two)) is None) == is_in


ALTERNATIVES = {
    "parts": {"type": "array", "items": {"type": "integer"}},
    "sizes": {"type": "array", "items": True, "uniqueItems": True, "const": [1]},
    "words": {"type": "array", "items": {"enum": list("abcdefghi")}},
}


@pytest.mark.parametrize("name", ALTERNATIVES)
def test_a_check_of_too_many_steps_is_refused(name: str) -> None:
    """Where parts have no names nothing is known a second time: the steps are what bounds it."""
    schema = check_schema(json.dumps({"anyOf": [ALTERNATIVES[name]] * 700}))
    assert schema is not None
    payload = json.dumps([1] * 10_000 + ["x"]).encode()
    refused = payload_problem(payload, schema)
    assert refused is not None
    assert refused.error is InvalidPayload
    if name == "parts":
        assert "takes too long" in refused.detail


def test_the_longest_plain_payload_fits_into_the_steps() -> None:
    numbers = json.dumps([1] * 32_000, separators=(",", ":")).encode()
    assert len(numbers) <= 65_536
    assert payload_problem(numbers, schema_text(list[int])) is None
    rows = json.dumps([{"x": 1, "y": 2.0}] * 3_000, separators=(",", ":")).encode()
    assert payload_problem(rows, schema_text(list[Point | None])) is None


@pytest.mark.parametrize(
    ("schema", "payload", "is_in"),
    [
        ('{"multipleOf": 3}', b"9" * 4_000, True),
        ('{"multipleOf": 3}', b"9" * 3_999 + b"8", False),
        ('{"multipleOf": 0.5}', b"9" * 4_000, False),
        ('{"multipleOf": 2}', b"1e308", True),
        ('{"multipleOf": 1e-300}', b"1e308", None),
        ('{"maximum": 5}', b"9" * 4_000, False),
        ('{"maximum": 5}', b"9" * 6_000, False),  # no number Python would write out
        ('{"enum": [1]}', b"9" * 4_000, False),
        ('{"const": ' + "9" * 4_000 + "}", b"1", False),
        ('{"pattern": "^(a+)+$"}', b'"' + b"a" * 60 + b'!"', True),  # never matched
    ],
)
def test_numbers_and_texts_of_any_size_get_an_answer(
    schema: str, payload: bytes, is_in: bool | None
) -> None:
    checked = check_schema(schema)
    assert checked is not None
    refused = payload_problem(payload, checked)
    if is_in is not None:
        assert (refused is None) == is_in
    assert refused is None or len(refused.detail) <= 500


# --- what an author may declare ----------------------------------------------------------------

DEEP: Any = {}
for _ in range(70):
    DEEP = {"items": DEEP}
CHAIN = {f"N{n}": {"$ref": f"#/$defs/N{n + 1}"} for n in range(1_500)} | {"N1500": {}}
REFUSED: dict[str, tuple[Any, str]] = {
    "itself": ({"$ref": "#"}, "without an end"),
    "one definition": ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}, "an end"),
    "through a union": ({**union("A"), "$defs": {"A": union("A", "B"), "B": {}}}, "without an end"),
    "through all of": ({"allOf": [{"$ref": "#"}]}, "without an end"),
    "inside a property": (
        {
            "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/A"}]}},
        },
        "without an end",
    ),
    "a chain too long": ({"$ref": "#/$defs/N0", "$defs": CHAIN}, "without an end"),
    "nowhere": ({"$ref": "#/$defs/B", "$defs": {"A": {}}}, "leads nowhere"),
    "elsewhere": ({"$ref": "https://example.org/schema"}, "leads nowhere"),
    "a tag that leads nowhere": (
        {
            **union("A"),
            "discriminator": {"propertyName": "t", "mapping": {"x": "B"}},
            "$defs": {"A": {}},
        },
        "leads nowhere",
    ),
    "too deep": (DEEP, "64 levels"),
    "no multiples": ({"multipleOf": 0}, "multipleOf"),
    "no number": ({"multipleOf": "x"}, "multipleOf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_that_cannot_be_compared_with_is_refused_when_it_is_declared(name: str) -> None:
    schema, problem = REFUSED[name]
    with pytest.raises(InvalidInput, match="payload_type: ") as caught:
        check_schema(json.dumps(schema))
    assert problem in caught.value.detail
    assert caught.value.fields["field"] == "payload_type"


@pytest.mark.parametrize("name", [each for each in REFUSED if each != "a chain too long"])
def test_an_older_type_of_that_kind_refuses_or_lets_in_but_never_fails(name: str) -> None:
    schema = json.dumps(REFUSED[name][0])
    for payload in (None, b"1", b"[[1]]", b'{"a": {"a": 1}, "t": "x"}'):
        refused = payload_problem(payload, schema)
        assert refused is None or refused.error is InvalidPayload


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"$ref": {"type": "string"}, "multipleOf": {"enum": ["x"]}}},
        {"enum": [{"$ref": "#"}], "default": {"$ref": "nowhere"}},
        {"properties": {"next": {"$ref": "#"}}},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}}]},
        {"properties": {"discriminator": {"type": "string"}}},
    ],
    ids=str,
)
def test_a_property_that_only_looks_like_a_reference_is_accepted(schema: Any) -> None:
    assert check_schema(json.dumps(schema)) is not None


@pytest.mark.parametrize("name", TYPES)
def test_every_type_can_be_declared(name: str) -> None:
    assert check_schema(SCHEMAS[name]) == SCHEMAS[name]
