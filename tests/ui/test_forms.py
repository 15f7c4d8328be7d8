"""A form from a declared type: its fields, and the payload that a posted form stands for."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from flowfabric.errors import InvalidInput
from flowfabric.kernel.wait.schema import payload_problem
from flowfabric.sdk.payload_types import schema_of
from flowfabric.server.ui.views.answers import Entry, blank, filled, with_problem
from flowfabric.server.ui.views.forms import Field, FieldKind, every_field, field_of, input_name
from tests.ui.cases import CASES, Case, Colour


@dataclass
class Address:
    """Where it goes."""

    street: Annotated[str, msgspec.Meta(max_length=40)]
    zip: Annotated[str, msgspec.Meta(min_length=5, max_length=5, pattern="^[0-9]+$")]
    is_home: bool = False


class Order(pydantic.BaseModel):
    """What is ordered."""

    title: str = pydantic.Field(description="Shown to all", max_length=50)
    count: int = pydantic.Field(gt=0, lt=5)
    colour: Colour = Colour.RED
    only: Literal["one"] = "one"
    by: datetime.date | None = None
    price: decimal.Decimal = decimal.Decimal("1.50")


def shown(kind: Any) -> Field:
    """The form of a type."""
    found = field_of(schema_of(kind))
    assert found is not None
    return found


def posted(kind: Any, *pairs: tuple[str, str]) -> Any:
    """The payload that a form stands for."""
    return json.loads(filled(shown(kind), pairs).checked())


def refusal(kind: Any, *pairs: tuple[str, str]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        filled(shown(kind), pairs).checked()
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=[f"{number}" for number in range(len(CASES))])
def test_a_type_is_asked_for_read_and_refused_with_its_name(case: Case) -> None:
    form, schema = shown(case.kind), schema_of(case.kind)
    assert form.kind is case.as_kind
    payload = filled(form, [("f", case.good)]).checked()
    assert payload_problem(payload, schema) is None
    assert case.payload in (None, json.loads(payload))
    error = refusal(case.kind, ("f", case.wrong))
    assert (error.fields["field"], case.problem in error.detail) == ("payload", True), error
    bypassed = json.dumps(case.bypassed).encode()
    assert payload_problem(bypassed, schema) is not None


def test_a_switch_that_is_off_is_false() -> None:
    assert posted(bool, ("f", "yes")) is True
    assert posted(bool) is False


@dataclass
class Review:
    reason: str
    amount: Annotated[int, msgspec.Meta(ge=1, le=10, description="How many", title="Sum")] = 3
    note: str | None = None
    is_urgent: bool | None = None
    notify: bool = True
    to: Address | None = None
    tags: list[str] = field(default_factory=list)
    colours: set[Literal["red", "blue"]] = field(default_factory=set)
    places: list[Address] = field(default_factory=list)


def test_a_struct_says_its_parts_in_its_order() -> None:
    form = shown(Review)
    kinds = {each.key: each.kind.value for each in form.members}
    assert kinds == {
        "reason": "long_text",
        "amount": "integer",
        "note": "long_text",
        "is_urgent": "choice",
        "notify": "switch",
        "to": "group",
        "tags": "list",
        "colours": "choices",
        "places": "list",
    }
    amount = form.members[1]
    assert (amount.label, amount.help, amount.least, amount.most) == ("Sum", "How many", 1, 10)
    assert form.members[0].label == "Reason"
    assert [each.key for each in form.members[5].members] == ["street", "zip", "is_home"]
    assert form.members[5].members[1].pattern == "[0-9]+"
    first = blank(form)
    assert (first.members[1].text, first.members[4].is_on) == ("3", True)


def test_what_is_left_blank_is_left_out() -> None:
    assert posted(Review, ("f.reason", "x"), ("f.amount", "")) == {"reason": "x", "notify": False}
    assert posted(str | None) is None


def test_an_optional_group_is_whole_or_absent() -> None:
    whole = (("f.reason", "x"), ("f.to.street", "Main"), ("f.to.zip", "12345"))
    assert posted(Review, *whole)["to"] == {"street": "Main", "zip": "12345", "is_home": False}
    assert refusal(Review, *whole[:2]).fields["field"] == "payload.to.zip"
    assert posted(Review, *whole[:1], ("f.to.street", ""), ("f.to.zip", " ")).get("to") is None


def test_blank_rows_of_a_list_are_none_and_more_adds_one() -> None:
    pairs = [("f.reason", "x"), ("f.tags.0", ""), ("f.tags.1", "b"), ("f.tags.5", "c")]
    assert posted(Review, *pairs)["tags"] == ["b", "c"]
    again = filled(shown(Review), pairs, "f.tags").entry.members[6]
    assert [(row.name, row.text) for row in again.members] == [
        ("f.tags.0", "b"),
        ("f.tags.1", "c"),
        ("f.tags.2", ""),
    ]
    rows = [("f.places.2.street", "Main"), ("f.places.2.zip", "12345"), ("f.places.0.zip", "")]
    places = posted(Review, pairs[0], *rows)["places"]
    assert places == [{"street": "Main", "zip": "12345", "is_home": False}]
    assert posted(Review, pairs[0], ("f.colours", '"red"'))["colours"] == ["red"]
    assert refusal(Review, pairs[0], ("f.colours", '"x"')).fields["field"] == "payload.colours"
    sized = Annotated[list[int], msgspec.Meta(min_length=2, max_length=3)]
    assert len(blank(shown(sized)).members) == 2
    assert "at least 2" in refusal(sized, ("f.0", "1")).detail
    assert refusal(sized, ("f.0", "1"), ("f.1", "x")).fields["field"] == "payload[1]"


def test_a_model_of_pydantic_is_a_form_like_others() -> None:
    form = shown(Order)
    assert [each.kind.value for each in form.members] == [
        *("text", "integer", "choice", "fixed", "date", "text")
    ]
    title, count = form.members[:2]
    assert (title.help, title.longest, count.least, count.most) == ("Shown to all", 50, 1, 4)
    sent = posted(Order, ("f.title", "t"), ("f.count", "4"), ("f.colour", '"blue"'))
    assert sent == {"title": "t", "count": 4, "colour": "blue", "only": "one"}
    assert Order.model_validate(sent).colour is Colour.BLUE
    assert refusal(Order, ("f.title", "t"), ("f.count", "5")).fields["field"] == "payload.count"


def test_what_is_not_in_the_form_is_refused() -> None:
    detail = refusal(Review, ("f.reason", "x"), ("f.admin", "1")).detail
    assert "f.admin" in detail
    assert "twice" in refusal(int, ("f", "1"), ("f", "2")).detail
    assert "f.tags.100" in refusal(Review, ("f.reason", "x"), ("f.tags.100", "1")).detail
    assert posted(int, ("f", "1"), ("decision", "approved")) == 1


def test_names_of_properties_make_no_other_input() -> None:
    schema = json.dumps(
        {"type": "object", "properties": {"a.b": {"type": "string"}, "a": {"type": "integer"}}}
    )
    form = field_of(schema)
    assert form is not None
    assert [input_name("f", each.key) for each in form.members] == ["f.a%2Eb", "f.a"]
    assert filled(form, [("f.a%2Eb", "x")]).payload == b'{"a.b":"x"}'


def test_a_schema_that_no_form_fits_is_asked_for_as_json() -> None:
    endless: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    lists: dict[str, Any] = {"$ref": "#/$defs/l", "$defs": {}}
    lists["$defs"]["l"] = {"type": "array", "items": {"$ref": "#/$defs/l"}}
    for schema in (endless, lists, {"$ref": "#/x"}, {"enum": 5}, {"type": 7}, {}):
        form = field_of(json.dumps(schema))
        assert form is not None
        assert form.kind is FieldKind.JSON, schema
    assert field_of(None) is None


def test_deep_parts_of_a_struct_are_json() -> None:
    deep = {"type": "object", "properties": {"x": {"type": "integer"}}}
    for _ in range(3):
        deep = {"type": "object", "properties": {"in": deep}}
    form = field_of(json.dumps(deep))
    assert form is not None
    assert [each.kind.value for each in every_field(form)] == ["group", "group", "json"]


def problems(entry: Entry) -> Sequence[tuple[str, str]]:
    return entry.problems()


def test_what_the_engine_says_stands_at_its_field() -> None:
    pairs = [("f.reason", "x"), ("f.places.0.street", "a"), ("f.places.0.zip", "12345")]
    entry = filled(shown(Review), pairs).entry
    marked = with_problem(entry, "payload.places[0].zip: is wrong")
    assert problems(marked) == (("i-f.places.0.zip", "Zip: is wrong"),)
    assert problems(with_problem(entry, "no more"))[0][1] == "Answer: no more"
    assert problems(with_problem(entry, "payload.gone: is wrong"))[0][0] == "i-f"
