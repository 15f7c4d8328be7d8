"""The grammar of every name and number a caller may pass, used by every entrance."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, TypeVar

from flowfabric import limits
from flowfabric.errors import FlowFabricError, InvalidCapabilities, InvalidInput, InvalidTagKey
from flowfabric.model.shown import shown, shown_length

E = TypeVar("E", bound=StrEnum)

_TAG_KEY: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*")
_EXECUTION_ID: Final = re.compile(
    r"\{fp:(0|[1-9][0-9]{0,4})\}:"
    r"([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})"
)
_LANE: Final = re.compile(r"[\x20-\x7e]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def part_of(field: str, key: object) -> str:
    """The name of one entry of a map, for an error text; a key may be any value."""
    return f"{field}.{key[:80]}" if type(key) is str else f"{field}.{shown(key, 80)}"


def check_execution_id(value: object, *, partitions: int, field: str = "execution_id") -> str:
    """An id in the one spelling that is stored: `{fp:N}:<lowercase uuid>`, N below the count."""
    match = _EXECUTION_ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidInput(
            f"{field}: expected {{fp:N}}:<uuid>, got {shown(value, 80)}", field=field
        )
    if int(match[1]) >= partitions:
        raise InvalidInput(f"{field}: partition {match[1]} is not below {partitions}", field=field)
    return match[0]


def check_text(
    value: object, *, field: str, max_bytes: int, empty: bool = False, control: bool = False
) -> str:
    """Text every store can keep: no NUL, no lone surrogate, within the limit.

    A subclass of `str`, such as a member of an enumeration, becomes plain text: drivers treat
    subclasses differently.
    """
    if (
        type(value) is str
        and value.isascii()
        and value.isprintable()
        and len(value) <= max_bytes
        and (value or empty)
    ):
        return value  # the usual case, decided without a look at single characters
    if not isinstance(value, str):
        raise InvalidInput(f"{field}: expected text, got {type(value).__name__}", field=field)
    value = str.__str__(value)
    if not value and not empty:
        raise InvalidInput(f"{field}: must not be empty", field=field)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{field}: is not valid Unicode", field=field) from None
    if size > max_bytes:
        raise InvalidInput(f"{field}: {size} bytes is over the limit {max_bytes}", field=field)
    if "\x00" in value or (not control and _CONTROL.search(value)):
        raise InvalidInput(f"{field}: control characters are not allowed", field=field)
    return value


def clip_text(value: object, max_bytes: int, *, field: str) -> str:
    """Free text made storable: NUL and lone surrogates replaced, cut at the limit."""
    if not isinstance(value, str):
        raise InvalidInput(f"{field}: expected text, got {type(value).__name__}", field=field)
    clean = str.__str__(value).replace("\x00", "\ufffd").encode(errors="replace")
    return clean[:max_bytes].decode(errors="ignore")


def check_uuid(value: object, *, field: str = "flow_id") -> str:
    """A UUID in lower case."""
    text = check_text(value, field=field, max_bytes=36)
    parts = text.split("-")
    shape = [len(part) for part in parts]
    if shape != [8, 4, 4, 4, 12] or not set("".join(parts)) <= set("0123456789abcdef"):
        raise InvalidInput(f"{field}: expected a UUID in lower case", field=field)
    return text


def check_name(value: object, *, field: str) -> str:
    """A kind, namespace, worker or creator."""
    return check_text(value, field=field, max_bytes=limits.NAME_BYTES)


def check_lane(value: object, *, field: str = "lane_id") -> str:
    """A lane: 1 to 64 bytes of printable ASCII."""
    lane = check_text(value, field=field, max_bytes=limits.LANE_ID_BYTES)
    if not _LANE.fullmatch(lane):
        raise InvalidInput(f"{field}: only printable ASCII is allowed", field=field)
    return lane


def check_integer(value: object, *, field: str, least: int, most: int) -> int:
    """An integer within bounds, as a plain `int`: see `check_text`."""
    if type(value) is int and least <= value <= most:
        return value  # the usual case
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInput(f"{field}: expected a whole number, got {shown(value)}", field=field)
    value = int.__index__(value)
    if not least <= value <= most:
        if field.endswith("_ms"):
            raise _wrong_length(value, field, least, most)
        raise InvalidInput(
            f"{field}: {shown(value)} is not between {least} and {most}", field=field
        )
    return value


def _wrong_length(value: int, field: str, least: int, most: int) -> InvalidInput:
    """Durations are shown with their units: `10ms is below 1s`."""
    wrong = f"below {shown_length(least)}" if value < least else f"above {shown_length(most)}"
    return InvalidInput(f"{field}: {shown_length(value)} is {wrong}", field=field)


def check_instant(value: object, *, field: str) -> int:
    """An instant in UTC milliseconds."""
    return check_integer(value, field=field, least=0, most=limits.INSTANT_MS_MAX)


def check_lease_ttl(value: object, *, field: str = "lease_ttl_ms") -> int:
    """A lease duration: long enough to renew, short enough to recover."""
    least, most = limits.LEASE_TTL_MS_MIN, limits.LEASE_TTL_MS_MAX
    if isinstance(value, int) and not isinstance(value, bool) and not least <= value <= most:
        raise _wrong_length(int.__index__(value), field, least, most)
    return check_integer(value, field=field, least=least, most=most)


def check_list(values: object, *, field: str) -> tuple[Any, ...]:
    """A sequence of values. A single string is refused: its letters would match nothing."""
    if type(values) is list or type(values) is tuple:
        return tuple(values)  # the usual case
    if isinstance(values, str | bytes | bytearray | Mapping) or not isinstance(values, Iterable):
        raise InvalidInput(f"{field}: expected a list, got {type(values).__name__}", field=field)
    return tuple(values)


def check_flag(value: object, *, field: str) -> bool:
    """A `bool`, not merely a value that is truthy."""
    if not isinstance(value, bool):
        raise InvalidInput(
            f"{field}: expected true or false, got {type(value).__name__}", field=field
        )
    return value


def word_of(value: object, words: type[E]) -> E | None:
    """A member of the enumeration, or None. A value that is not text is not passed to the
    enumeration: its own error may fail on such a value."""
    if not isinstance(value, str) or value not in words._value2member_map_:
        return None
    return words(value)


def check_capabilities(values: object, *, field: str) -> tuple[str, ...]:
    """Capability tokens, sorted and unique: one grammar for workers and executions."""
    if type(values) is tuple and not values:
        return values  # the usual case
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidCapabilities(f"{field}: expected a list of words", field=field)
    tokens: set[str] = set()
    for given in values:
        if not isinstance(given, str):
            raise InvalidCapabilities(f"{field}: {shown(given)} is not text", field=field)
        token = str.__str__(given)
        if not token:
            raise InvalidCapabilities(f"{field}: an empty word", field=field)
        if "," in token:
            raise InvalidCapabilities(f"{field}: {shown(token, 80)} contains a comma", field=field)
        if not token.isprintable() or any(character.isspace() for character in token):
            raise InvalidCapabilities(
                f"{field}: {shown(token, 80)} contains a space or control character", field=field
            )
        tokens.add(token)
    if len(tokens) > limits.CAPABILITY_TOKENS_MAX:
        raise InvalidCapabilities(
            f"{field}: more than {limits.CAPABILITY_TOKENS_MAX} words", field=field
        )
    ordered = tuple(sorted(tokens))
    if len(",".join(ordered).encode()) > limits.CAPABILITY_CSV_BYTES:
        raise InvalidCapabilities(
            f"{field}: more than {limits.CAPABILITY_CSV_BYTES} bytes", field=field
        )
    return ordered


def check_tag_key(key: object, *, field: str = "key") -> str:
    """A tag key: lowercase words, at least one dot, so it never equals an engine field's name."""
    if not isinstance(key, str) or not _TAG_KEY.fullmatch(key) or len(key) > limits.NAME_BYTES:
        raise InvalidTagKey(f"{field}: {shown(key, 80)}", field=field)
    return str.__str__(key)


def check_tag_value(value: object, *, field: str = "value") -> str:
    """A tag value: any text within the limit."""
    return check_text(value, field=field, max_bytes=limits.TAG_VALUE_BYTES, empty=True)


def check_tag(tag: object, *, field: str = "tag") -> tuple[str, str]:
    """One (key, value) pair to filter by."""
    if not isinstance(tag, tuple | list) or len(tag) != 2:
        raise InvalidInput(f"{field}: expected (key, value)", field=field)
    return check_tag_key(tag[0], field=field), check_tag_value(tag[1], field=field)


def too_many_tags(count: int) -> InvalidInput | None:
    """The one error for a tag too many, however it is set."""
    if count <= limits.TAGS_MAX:
        return None
    return InvalidInput(f"tags: {count} are more than {limits.TAGS_MAX}", field="tags")


def check_tags(tags: object, *, field: str = "tags") -> dict[str, str]:
    """Tags with valid keys and values, sorted so that equal tags are stored equally."""
    if not isinstance(tags, Mapping):
        raise InvalidInput(f"{field}: expected a map of text to text", field=field)
    if excess := too_many_tags(len(tags)):
        raise excess
    checked = {}
    for key, value in tags.items():
        place = part_of(field, key)
        checked[check_tag_key(key, field=place)] = check_tag_value(value, field=place)
    return dict(sorted(checked.items()))


def clamp_priority(value: object, *, field: str = "priority") -> int:
    """A priority inside 0..9000; values outside are clamped, as the seeds ask."""
    if type(value) is int and limits.PRIORITY_MIN <= value <= limits.PRIORITY_MAX:
        return value  # the usual case
    bound = limits.PRIORITY_GIVEN_MAX
    number = check_integer(value, field=field, least=-bound, most=bound)
    return max(limits.PRIORITY_MIN, min(limits.PRIORITY_MAX, number))


@contextmanager
def named_within(field: str) -> Iterator[None]:
    """Errors name the part of a request that they are about."""
    try:
        yield
    except FlowFabricError as error:
        error.detail = f"{field}: {error.detail}"
        if "field" in error.fields:
            error.fields["field"] = f"{field}.{error.fields['field']}"
        raise
