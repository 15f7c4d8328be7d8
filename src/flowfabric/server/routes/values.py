"""Texts of a path or a query as the values of fields."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from flowfabric.errors import InvalidInput
from flowfabric.ids import partition_of
from flowfabric.model.record import Record, defaults_of
from flowfabric.server.instants import duration_ms, instant
from flowfabric.server.shapes import IS_INSTANT

Read = Callable[[str], Any]

# What a field of a request is called after the question mark, where it has another word there.
QUERY_WORDS: Final = {"states": "state", "wait_ms": "wait", "count_limit": "limit"}
_INTEGER: Final = re.compile(r"-?\d{1,19}")
_LONG: Final = 1 << 63
_PATH_ID: Final = re.compile(r"(\d{1,9})\.([0-9a-fA-F-]{36})")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_FLAGS: Final = {"true": True, "false": False}
_LISTS: Final = (list, tuple, Sequence)


class Param(Record, frozen=True, kw_only=True):
    """One parameter: the field it is for, its word, and how its text is read."""

    field: str
    word: str
    hint: Any
    read: Any
    is_list: bool = False
    is_needed: bool = False
    inside: str | None = None  # the field of the request that holds the record it belongs to


def params_of(kind: type[Record], names: Sequence[str], inside: str | None = None) -> list[Param]:
    """The parameters for some fields; those of a filter stand for themselves."""
    hints = get_type_hints(kind)
    needed = set(names) - set(defaults_of(kind))
    found: list[Param] = []
    for name in names:
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, Record):
            found += params_of(hint, hint.__struct_fields__, inside=name)
            continue
        item, is_list = _item_of(hint)
        word = "tag" if item == tuple[str, str] else QUERY_WORDS.get(name, name)
        found.append(
            Param(
                field=name,
                word=word,
                hint=item,
                read=_reader(item, name, word),
                is_list=is_list,
                is_needed=name in needed,
                inside=inside,
            )
        )
    return found


def _item_of(hint: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there may be several."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [each for each in get_args(hint) if each is not type(None)]
        return _item_of(parts[0])
    items = [each for each in get_args(hint) if each is not Ellipsis]
    if get_origin(hint) in _LISTS and len(items) == 1:
        return items[0], True
    return hint, False


def _reader(hint: Any, name: str, word: str) -> Read:
    """How a text becomes a value of a type."""
    if hint is bool:
        return lambda text: _flag(text, word)
    if hint is int and IS_INSTANT.search(name):
        return lambda text: (
            integer(text, word) if _INTEGER.fullmatch(text) else instant(text, field=word)
        )
    if name == "wait_ms":
        return lambda text: duration_ms(text, field=word)
    if hint is int and name.endswith("_ms"):
        return lambda text: (
            int(text) if text.isdigit() and len(text) < 16 else duration_ms(text, field=word)
        )
    if hint is int:
        return lambda text: integer(text, word)
    if hint == tuple[str, str]:
        return lambda text: _pair(text, word)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda text: _word_of(hint, text, word)
    if word.endswith("execution_id"):
        return full_id
    return str


def integer(text: str, word: str) -> int:
    """A whole number that fits into 64 bits."""
    value = int(text) if _INTEGER.fullmatch(text) else _LONG
    if not -_LONG <= value < _LONG:
        raise InvalidInput(f"{word}: expected a whole number, got {text!s:.80}", field=word)
    return value


def _flag(text: str, word: str) -> bool:
    found = _FLAGS.get(text)
    if found is None:
        raise InvalidInput(f"{word}: expected true or false, got {text!s:.80}", field=word)
    return found


def _pair(text: str, word: str) -> tuple[str, str]:
    """A tag as `key:value`; the value may have colons."""
    key, colon, value = text.partition(":")
    if not colon:
        raise InvalidInput(f"{word}: expected key:value, got {text!s:.80}", field=word)
    return key, value


def _word_of(kind: type[Enum], text: str, word: str) -> Enum:
    try:
        return kind(text)
    except ValueError:
        words = ", ".join(str(each.value) for each in kind)
        detail = f"{word}: expected one of {words}, got {text!s:.80}"
        raise InvalidInput(detail, field=word) from None


# --- ids -----------------------------------------------------------------------------------------


def full_id(text: str) -> str:
    """The id of an execution from its path form, or from the bare UUID of one that was submitted by
    itself; any other text is left to the operation.

    >>> full_id("17.0193a1f0-0000-7000-8000-000000000000")
    '{fp:17}:0193a1f0-0000-7000-8000-000000000000'
    """
    found = _PATH_ID.fullmatch(text)
    if found is None and _UUID.fullmatch(text):
        return f"{{fp:{partition_of(text.lower())}}}:{text.lower()}"
    return text if found is None else f"{{fp:{int(found[1])}}}:{found[2].lower()}"


def path_id(execution_id: str) -> str:
    """The path form of an id: it needs no escaping.

    >>> path_id("{fp:17}:0193a1f0-0000-7000-8000-000000000000")
    '17.0193a1f0-0000-7000-8000-000000000000'
    """
    partition, _, uuid = execution_id.partition(":")[2].partition("}:")
    return f"{partition}.{uuid}"


def is_id(text: str) -> bool:
    """Whether a text may be the id of an execution in a path.

    >>> is_id("17.0193a1f0-0000-7000-8000-000000000000"), is_id("brief")
    (True, False)
    """
    return _PATH_ID.fullmatch(text) is not None or _UUID.fullmatch(text) is not None
