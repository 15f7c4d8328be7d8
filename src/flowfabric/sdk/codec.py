"""Values to JSON and back, by their annotations. Never pickle: stored data must not run code.

msgspec knows dataclasses, its own structs, enums, dates, bytes and the JSON types. Models that can
`model_dump` and `model_validate` (pydantic's) are recognised by these two methods, so pydantic is
never imported here.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from flowfabric.model.shown import shown
from flowfabric.sdk.errors import InvalidTask

JSON: Final = "json"

_PATH: Final = re.compile(r" - at `\$\.?([^`]*)`$")
_FIELD: Final = re.compile(r"field `([^`]+)`")


def _dump(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")
    return dump(mode="json")


def _load(kind: Any, plain: Any) -> Any:
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        raise NotImplementedError(f"{kind!r} cannot be read from JSON")
    return validate(plain)


def encoder(order: Literal["deterministic"] | None = None) -> msgspec.json.Encoder:
    """A writer of values; `deterministic`: sets and mappings in one order in every process."""
    return msgspec.json.Encoder(enc_hook=_dump, order=order)


_ENCODER: Final = encoder()
encode = _ENCODER.encode
# A value that nests too deep ends in a RecursionError, either way.
DecodeErrors: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
EncodeErrors: Final = (
    msgspec.MsgspecError,
    TypeError,
    ValueError,
    NotImplementedError,
    RecursionError,
)


def decoder_of(kind: Any, *, field: str) -> msgspec.json.Decoder[Any]:
    """A reader for one type; a type that JSON cannot carry is refused at once."""
    try:
        decoder = msgspec.json.Decoder(kind, dec_hook=_load)
        unknown = _unreadable(msgspec.inspect.type_info(kind), set())
    except (TypeError, NameError) as error:
        raise InvalidTask(f"{field}: {error}", field=field) from None
    except (ValueError, RecursionError) as error:  # of a value that cannot even be shown
        raise InvalidTask(f"{field}: {shown(kind)} is no type: {error}", field=field) from None
    if unknown is not None:
        detail = (
            f"{field}: {unknown.__name__} cannot be read from JSON; use a dataclass or a struct"
        )
        raise InvalidTask(detail, field=field)
    return decoder


def where(error: Exception) -> tuple[str, str]:
    """The argument an error is about (empty if unknown) and the path with the defect."""
    text = str(error)
    if path := _PATH.search(text):
        name = re.split(r"[.\[]", path[1])[0]
        return name, f"{path[1]}: {text[: path.start()]}" if path[1] else text
    named = _FIELD.search(text)
    return (named[1] if named else ""), text


def _unreadable(info: Any, seen: set[int]) -> type | None:
    """The first class inside a type that neither msgspec nor a `model_validate` can read."""
    if isinstance(info, msgspec.inspect.CustomType):
        return None if hasattr(info.cls, "model_validate") else info.cls
    if id(info) in seen:
        return None
    seen.add(id(info))
    parts: tuple[Any, ...] = ()
    if isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        parts = tuple(getattr(info, name) for name in info.__struct_fields__)
    elif isinstance(info, tuple):
        parts = info
    return next((found for part in parts if (found := _unreadable(part, seen))), None)
