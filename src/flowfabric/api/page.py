"""One page of a listing, and the cursor that leads to the next.

Every listing takes `cursor` and `limit` and answers a `Page`. `limit` is at most `limits.PAGE_MAX`
and `limits.PAGE_DEFAULT` unless given; 0 asks for nothing and is answered an empty page. A row that
is added or removed meanwhile moves no other: a cursor carries the place of the last item in the
order of its listing, and not a number of items.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from flowfabric import limits
from flowfabric.errors import InvalidCursor, ValidationError
from flowfabric.model.checks import check_instant, check_integer, check_text, check_uuid
from flowfabric.model.record import Record, from_json, to_json

T = TypeVar("T")
P = TypeVar("P", bound=tuple[Any, ...])

_FIELD: Final = "cursor"
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")


class Page(Record, Generic[T], frozen=True):
    """Some items of a listing in its order; hand `next_cursor` back for those that follow.

    Without a `next_cursor` this is the last page. A page may hold fewer items than were asked for,
    or none, and still have a next one.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None


async def every_item(ask: Callable[[str | None], Awaitable[Page[T]]]) -> list[T]:
    """The items of all pages; `ask` takes a cursor and answers a page.

    >>> await every_item(lambda cursor: backend.list_lanes(cursor=cursor))  # doctest: +SKIP
    """
    page = await ask(None)
    found = list(page.items)
    while page.next_cursor is not None:
        page = await ask(page.next_cursor)
        found += page.items
    return found


# --- cursors -------------------------------------------------------------------------------------


def encode_cursor(listing: str, position: Sequence[int | str]) -> str:
    """A place in a listing as text that fits into a URL as it is.

    >>> encode_cursor("list_lanes", ["mail"])
    'WyJsaXN0X2xhbmVzIiwibWFpbCJd'
    """
    plain = binascii.b2a_base64(to_json([listing, *position]), newline=False)
    return plain.translate(_TO_URL, b"=").decode()


def decode_cursor(listing: str, cursor: object, check: Callable[..., P]) -> P | None:
    """The place that a cursor of this listing stands for; `check` takes the parts of a place."""
    if cursor is None:
        return None
    text = check_text(cursor, field=_FIELD, max_bytes=limits.CURSOR_BYTES)
    try:
        body = base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
        named, *position = from_json(body, list[int | str], field=_FIELD)
    except (ValidationError, ValueError, binascii.Error):
        raise InvalidCursor("cursor: no listing gave this one", field=_FIELD) from None
    if named != listing:
        raise InvalidCursor(f"cursor: not one of {listing}", field=_FIELD)
    try:
        return check(*position)
    except (ValidationError, TypeError):
        raise InvalidCursor(f"cursor: no place in {listing}", field=_FIELD) from None


# --- places in a listing -------------------------------------------------------------------------


def at_instant(when: object, uuid: object) -> tuple[int, str]:
    """In a listing by time: an instant, and a UUID among those of that instant."""
    return check_instant(when, field=_FIELD), check_uuid(uuid, field=_FIELD)


def at_number(number: object) -> tuple[int]:
    """In a listing by number."""
    return (check_integer(number, field=_FIELD, least=0, most=limits.INSTANT_MS_MAX),)


def at_uuid(uuid: object) -> tuple[str]:
    """In a listing by id."""
    return (check_uuid(uuid, field=_FIELD),)


def at_name(name: object) -> tuple[str]:
    """In a listing by name."""
    return (check_text(name, field=_FIELD, max_bytes=limits.NAME_BYTES),)


def at_names(first: object, second: object) -> tuple[str, str]:
    """In a listing by two names."""
    return *at_name(first), *at_name(second)
