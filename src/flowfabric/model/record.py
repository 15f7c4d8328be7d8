"""The base of every value, and the only place that knows which library builds them.

msgspec structs are built and copied in C: a decision costs microseconds, so batches stay cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import msgspec
from msgspec.structs import force_setattr as force_setattr  # only while a record is being built
from msgspec.structs import replace as replace  # a copy with some fields changed, made in C

from flowfabric.errors import InvalidInput

T = TypeVar("T")


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A frozen value with named fields; unknown fields are refused when it is read.

    Frozen values cannot form cycles, so the garbage collector need not look at them.
    """


fields_of = msgspec.structs.asdict  # a record's values by name
values_of = msgspec.structs.astuple  # the same in the order of the fields


def tag_of(kind: type[Record]) -> str | None:
    """The word by which a record is told from others of its union; None without one."""
    tag = kind.__struct_config__.tag
    return None if tag is None else str(tag)


def tag_field_of(kind: type[Record]) -> str | None:
    """The field that has this word; None without one."""
    return kind.__struct_config__.tag_field


def defaults_of(record: type[Record]) -> dict[str, Any]:
    """The values of fields that need not be given."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(record):
        if field.default is not msgspec.NODEFAULT:
            found[field.name] = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            found[field.name] = field.default_factory()
    return found


_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_DETAIL_LENGTH = 300  # of a decoder's own text, which may quote its input


def to_json(value: object) -> bytes:
    """Encode as JSON, fields in declaration order and unset fields left out."""
    return msgspec.json.encode(value, enc_hook=as_plain)


def as_plain(value: object) -> object:
    """Values of a caller's own subclasses as plain ones: the encoder knows only those."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__index__(value)
    raise TypeError(f"objects of type {type(value).__name__} are not JSON")


def to_plain(value: object, *, field: str = "value") -> Any:
    """Plain lists, maps and scalars, as JSON could express them."""
    try:
        return msgspec.to_builtins(value, enc_hook=as_plain)
    except RecursionError:
        raise InvalidInput(f"{field}: nests too deep", field=field) from None
    except TypeError as error:
        raise InvalidInput(f"{field}: {error}", field=field) from None


def from_json(data: bytes | str, kind: type[T], *, field: str) -> T:
    """Decode JSON into a known type; a mismatch names the field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except _UNREADABLE as error:
        raise InvalidInput(_detail(field, error), field=field) from None


_EXACT_READER = msgspec.json.Decoder(float_hook=Decimal)
_EXACT_WRITER = msgspec.json.Encoder(decimal_format="number")


def exact_from_json(data: bytes, *, field: str) -> Any:
    """Decode JSON with every number as exact as it was written."""
    try:
        return _EXACT_READER.decode(data)
    except (*_UNREADABLE, ValueError) as error:  # a ValueError: a number of thousands of digits
        raise InvalidInput(_detail(field, error), field=field) from None


def exact_to_json(value: object) -> bytes:
    """The inverse of `exact_from_json`."""
    return _EXACT_WRITER.encode(value)


def _detail(field: str, error: Exception) -> str:
    if isinstance(error, RecursionError):
        return f"{field}: nests too deep"
    return f"{field}: {error!s:.{_DETAIL_LENGTH}}"


def to_msgpack(value: object, *, hook: Callable[[object], object] = as_plain) -> bytes:
    """Encode as MessagePack: as JSON, but bytes stay bytes. The hook replaces values of types the
    encoder does not know."""
    return msgspec.msgpack.encode(value, enc_hook=hook)


def from_msgpack(
    data: bytes, kind: type[T], *, field: str, hook: Callable[[type, Any], Any] | None = None
) -> T:
    """Decode MessagePack into a known type; a mismatch names the field and, at the end of its text,
    the path. The hook builds values of types the decoder does not know."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=hook)
    except RecursionError as error:
        raise InvalidInput(_detail(field, error), field=field) from None
    except _UNREADABLE as error:
        raise InvalidInput(f"{field}: {error}", field=field) from None


Raw = msgspec.Raw  # JSON that is passed on unchanged


def json_object(data: bytes) -> dict[str, Raw]:
    """The members of a JSON object as raw text; None for any other value."""
    try:
        return msgspec.json.decode(data, type=dict[str, Raw])
    except _UNREADABLE:
        return {}


def json_lists(data: bytes) -> dict[str, list[Raw]]:
    """The members of a JSON object that has only lists, their items as raw text; none for any other
    value."""
    try:
        return msgspec.json.decode(data, type=dict[str, list[Raw]])
    except _UNREADABLE:
        return {}


def is_json(data: bytes) -> bool:
    """Whether bytes decode as JSON."""
    try:
        msgspec.json.decode(data)
    except _UNREADABLE:
        return False
    return True


def may_be_json(data: bytes) -> bool:
    """Whether bytes decode as JSON, or nest too deep to tell."""
    try:
        msgspec.json.decode(data)
    except RecursionError:
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return True


def convert(value: object, kind: type[T], *, field: str, strict: bool = True) -> T:
    """Check plain data against a type; a mismatch names the field."""
    try:
        return msgspec.convert(value, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidInput(_detail(field, error), field=field) from None
    except UnicodeEncodeError:
        raise InvalidInput(f"{field}: is not valid Unicode", field=field) from None
