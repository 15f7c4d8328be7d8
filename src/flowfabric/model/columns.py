"""Markers in the annotations of stored records.

A field's type says what it holds. Its markers say the rest that a store must know of its column:
how large its numbers get, and which writes it belongs to. Stores derive everything from the two, so
that a new field is a line in its record and a migration.
"""

from __future__ import annotations

from enum import Enum, auto
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from flowfabric.limits import INSTANT_MS_MAX, PRIORITY_MAX, PRIORITY_MIN
from flowfabric.model.record import Record

T = TypeVar("T")

_SMALL_BITS: Final = 31  # of a column for small numbers, beside the sign


class Numbers(Record, frozen=True):
    """The numbers a column may hold, both ends included."""

    most: int
    least: int = 0

    @property
    def are_small(self) -> bool:
        """Whether a column of 32 bits has room for them."""
        return self.most.bit_length() <= _SMALL_BITS


class Text(Enum):
    """What a text holds."""

    HEX = auto()  # bytes
    JSON = auto()  # a document, stored as it was given
    WORDS = auto()  # several words, which hold no comma, with commas between them


class Written(Enum):
    """When the column of an execution's field is written.

    A field without this marker is written with the new row, and whenever it changed. The markers
    save writes. Fields of STEP, TAKEN and LATER that have a default must have it in a new row.
    """

    ONCE = auto()  # with the new row, and never again
    STEP = auto()  # by every transition
    TAKEN = auto()  # when a lease is taken: renewals and ends keep it
    FREED = auto()  # with the new row, and when dependencies release the execution
    LATER = auto()  # when it changed: a new row has the default
    BODY = auto()  # with the body, which has a table of its own


class Usually(Record, frozen=True):
    """The other field whose value this one has nearly always."""

    field: str


Once: TypeAlias = Annotated[T, Written.ONCE]
Step: TypeAlias = Annotated[T, Written.STEP]
Taken: TypeAlias = Annotated[T, Written.TAKEN]
Freed: TypeAlias = Annotated[T, Written.FREED]
Later: TypeAlias = Annotated[T, Written.LATER]
InBody: TypeAlias = Annotated[T, Written.BODY]

Instant: TypeAlias = Annotated[int, Numbers(INSTANT_MS_MAX)]  # UTC milliseconds
Priority: TypeAlias = Annotated[int, Numbers(PRIORITY_MAX, PRIORITY_MIN)]
Percent: TypeAlias = Annotated[int, Numbers(100)]
# Its column has 32 bits; one at the end of its range must be able to go on.
Counter: TypeAlias = Annotated[int, Numbers((1 << 30) - 1)]
# A priority times this many milliseconds still fits in 64 bits.
Long: TypeAlias = Annotated[int, Numbers((1 << 48) - 1)]


class Held(NamedTuple):
    """What a column holds: the plain type, whether it may hold nothing, and the markers."""

    plain: Any
    is_optional: bool
    marks: tuple[Any, ...]

    @property
    def numbers(self) -> Numbers | None:
        """The range of its numbers, where it is declared."""
        return next((mark for mark in self.marks if isinstance(mark, Numbers)), None)

    @property
    def usually(self) -> str | None:
        """The field with the same value in nearly all records, where there is one."""
        return next((mark.field for mark in self.marks if isinstance(mark, Usually)), None)

    @property
    def written(self) -> Written | None:
        """When it is written, where that is declared."""
        return next((mark for mark in self.marks if isinstance(mark, Written)), None)


def held(annotation: Any) -> Held:
    """An annotation taken apart."""
    marks: tuple[Any, ...] = ()
    is_optional = False
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            marks += tuple(more)
        elif get_origin(annotation) in (Union, UnionType) and NoneType in get_args(annotation):
            is_optional = True
            others = tuple(each for each in get_args(annotation) if each is not NoneType)
            annotation = Union[others]  # noqa: UP007 - of any number of types
        else:
            return Held(annotation, is_optional, marks)
