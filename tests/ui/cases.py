"""Types that a wait may declare, with what is typed into their forms, and what comes of it."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from flowfabric.server.ui.views.forms import FieldKind


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Loan(msgspec.Struct, tag="loan"):
    sum: int


class Gift(msgspec.Struct, tag="gift"):
    note: str


class Case(NamedTuple):
    """A type, what is posted and its payload; what is posted wrongly, and what is said of it."""

    kind: Any
    as_kind: FieldKind
    good: str
    payload: Any
    wrong: str
    problem: str
    bypassed: Any  # a payload that the engine refuses


POSITIVE: Final = Annotated[int, msgspec.Meta(ge=1, le=10)]
CASES: Final = (
    Case(Annotated[str, msgspec.Meta(max_length=3)], FieldKind.TEXT, "abc", "abc", "abcd", "3", 1),
    Case(str, FieldKind.LONG_TEXT, "a\r\nb", "a\nb", " ", "is required", None),
    Case(int, FieldKind.INTEGER, "-12", -12, "1.5", "no whole number", 1.5),
    Case(POSITIVE, FieldKind.INTEGER, "10", 10, "11", "at most 10", 11),
    Case(float, FieldKind.NUMBER, "1.5e2", 150.0, "1e400", "too large", "1.5"),
    Case(float, FieldKind.NUMBER, "7", 7, "nan", "is no number", True),
    Case(Annotated[float, msgspec.Meta(gt=0)], FieldKind.NUMBER, "0.1", 0.1, "0", "more than 0", 0),
    Case(Colour, FieldKind.CHOICE, '"red"', "red", '"green"', "none of the choices", "green"),
    Case(Level, FieldKind.CHOICE, "2", 2, '"2"', "none of the choices", "2"),
    Case(Literal["a", 1], FieldKind.CHOICE, "1", 1, "true", "none of the choices", True),
    Case(datetime.date, FieldKind.DATE, "2030-02-28", "2030-02-28", "2030-02-30", "no date", "x"),
    Case(
        datetime.datetime,
        FieldKind.DATE_TIME,
        "2030-01-31T12:00",
        "2030-01-31T12:00:00Z",
        "2030-01-31",
        "no date with a time",
        "noon",
    ),
    Case(
        datetime.datetime,
        FieldKind.DATE_TIME,
        "2030-01-31T12:00:30+02:00",
        "2030-01-31T10:00:30Z",
        "0001-01-01T00:00:00+14:00",
        "no date with a time",
        5,
    ),
    Case(decimal.Decimal, FieldKind.TEXT, "1.10", "1.10", "", "is required", "one"),
    Case(dict[str, int], FieldKind.JSON, '{"a":1}', {"a": 1}, "{", "is no JSON", {"a": "b"}),
    Case(Loan | Gift, FieldKind.JSON, '{"type":"gift","note":""}', None, "nix", "is no JSON", {}),
    Case(tuple[int, str], FieldKind.JSON, '[1,"a"]', [1, "a"], "[1", "is no JSON", ["a"]),
)
