"""Bodies as requests of the waist: the inverse of `plain`, strict about names and types.

For each class a shape is made once: the class itself where JSON can express all of it, else a
struct that has text for handles and tokens, JSON or Base64 for bytes, texts for instants, and the
word `type` for the kind of a member of a union. The decoder checks a whole body against it in C; a
class that holds itself is read level by level.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from flowfabric.errors import FlowFabricError, InvalidInput, MalformedJson
from flowfabric.model.handle import Handle
from flowfabric.model.record import Raw, Record, tag_field_of, tag_of
from flowfabric.model.suspension import Token
from flowfabric.server.instants import instant
from flowfabric.server.plain import BASE64, WORDS

Build = Callable[[Any], Any]
_Field = tuple[str, str, Build | None]  # a field, its word, and how it is made; None: of bytes
_MAYBE_RAW: Final = Raw | msgspec.UnsetType
_MAYBE_TEXT: Final = str | msgspec.UnsetType
_UNSET: Final = msgspec.UNSET
_TYPE: Final = "type"
_LEVELS: Final = 32  # of a class that holds itself
_TUPLE: Any = tuple  # types that are made here, of others that are
_LIST: Any = list
_DICT: Any = dict
_UNION: Any = Union
IS_INSTANT: Final = re.compile(
    r"(_at|_until|^since|^until|^created_after|^created_before|^begin|^end)$"
)
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"required field `(\w+)`")
_PLACE: Final = re.compile(r" - at `(\$.*)`$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_DETAIL: Final = 300


def same(value: Any) -> Any:
    """What needs no change."""
    return value


class Shape:
    """How one class is read: what the decoder makes of a body, and how that becomes the value."""

    __slots__ = ("build", "decoder", "kind", "words")

    def __init__(self, kind: Any, build: Build, words: Iterable[str]) -> None:
        self.kind = kind
        self.build = build
        self.words = tuple(words)
        self.decoder = msgspec.json.Decoder(kind)

    def read(self, body: bytes | Raw) -> Any:
        """The value; an error names the place by a JSON pointer."""
        try:
            str(body, "utf-8")  # the decoder passes bytes of embedded JSON on without a look
            return self.build(self.decoder.decode(body))
        except msgspec.ValidationError as error:
            raise misfit(error, self.words) from None
        except msgspec.DecodeError as error:
            raise malformed(body, error) from None
        except RecursionError:
            raise MalformedJson("body: nests too deep", field="body") from None
        except UnicodeDecodeError:
            raise MalformedJson("body: is not UTF-8", field="body") from None


@cache
def shape_of(
    kind: type[Record], *, without: frozenset[str] | None = None, tag: str | None = None
) -> Shape:
    """The shape of a class. `without` some fields, which come from elsewhere, it reads a map of the
    others. `tag`: of commands, which tell their operation as `type`."""
    shaped, build = _record(kind, without=without, tag=tag)
    return Shape(shaped, build, _words(kind, without or frozenset()))


def _words(kind: type[Record], without: frozenset[str]) -> list[str]:
    found = []
    for name, field in _hints(kind).items():
        if name not in without:
            word = WORDS.get(name, name)
            found += [word, word + BASE64] if _is_bytes(field) else [word]
    return found


@cache
def _hints(kind: type[Record]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    # A connection of the caller's process is no part of a wire.
    return {name: hints[name] for name in kind.__struct_fields__ if name != "connection"}


def _needs_shape(kind: Any, seen: set[Any]) -> bool:
    """Whether JSON cannot express all of it as it is; classes may hold themselves."""
    if kind in seen:
        return False
    if kind in (Handle, Token, bytes):
        return True
    if not (isinstance(kind, type) and issubclass(kind, Record)):
        return any(_needs_shape(part, seen) for part in get_args(kind))
    seen.add(kind)
    if _is_tagged_otherwise(kind):
        return True
    return len(_hints(kind)) < len(kind.__struct_fields__) or any(
        (IS_INSTANT.search(name) and int in (hint, *get_args(hint))) or _needs_shape(hint, seen)
        for name, hint in _hints(kind).items()
    )


def _is_tagged_otherwise(kind: type[Record]) -> bool:
    """Whether it is told from others of its union by another word than here."""
    return tag_field_of(kind) not in (None, _TYPE)


# --- types ---------------------------------------------------------------------------------------


_making: list[Any] = []


@cache
def _shaped(kind: Any) -> tuple[Any, Build]:
    if not _needs_shape(kind, set()):
        return kind, same
    if kind in _making:
        return Raw, _Level(kind)
    _making.append(kind)
    try:
        return _made(kind)
    finally:
        _making.pop()


class _Level:
    """Reads a part that is of the same type as what holds it."""

    __slots__ = ("_depth", "_kind")

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._depth = 0

    def __call__(self, raw: Any) -> Any:
        if self._depth == _LEVELS:
            raise InvalidInput(f"body: nests deeper than {_LEVELS} levels", field="body")
        decoder, build = _decoder(self._kind)
        self._depth += 1
        try:
            return build(decoder.decode(raw))
        except msgspec.ValidationError as error:
            raise misfit(error) from None
        finally:
            self._depth -= 1


@cache
def _decoder(kind: Any) -> tuple[Any, Build]:
    shaped, build = _made(kind)
    return msgspec.json.Decoder(shaped), build


def _made(kind: Any) -> tuple[Any, Build]:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _union(parts)
    if origin in (list, tuple, Sequence):
        return _several(kind, origin, parts)
    if origin in (dict, Mapping):
        return _mapped(kind, parts)
    if kind is Handle:
        return str, read_handle
    if kind is Token:
        return str, Token
    if kind is bytes:
        return Raw, bytes
    if isinstance(kind, type) and issubclass(kind, Record):
        return _record(kind)
    return kind, same


def _union(parts: tuple[Any, ...]) -> tuple[Any, Build]:
    shaped = [_shaped(each) for each in parts]
    if all(build is same for _, build in shaped):
        return Union[*parts], same
    builds = {part if isinstance(part, type) else object: build for part, build in shaped}
    by_shape = {shape: build for shape, build in shaped if isinstance(shape, type)}

    def build(value: Any) -> Any:
        found = by_shape.get(type(value)) or builds.get(type(value), same)
        return found(value)

    return Union[*(shape for shape, _ in shaped)], build


def _several(kind: Any, origin: Any, parts: tuple[Any, ...]) -> tuple[Any, Build]:
    items = [each for each in parts if each is not Ellipsis]
    shaped, build = _shaped(items[0])
    if len(items) > 1 or build is same:  # pairs of words, and lists of what is as it is
        return kind, same
    make = list if origin is list else tuple

    def build_all(value: Any) -> Any:
        return make(_built(build, each, index) for index, each in enumerate(value))

    return (_TUPLE[shaped, ...] if origin is tuple else _LIST[shaped]), build_all


def _built(build: Build, value: Any, step: object) -> Any:
    """A part of what is built; an error of it knows its place."""
    try:
        return build(value)
    except FlowFabricError as error:
        place = f"/{_escaped(str(step))}"
        items = error.fields.get("errors")
        if items is None:
            error.fields["errors"] = [{"pointer": place, "detail": error.detail}]
        else:
            for each in items:
                each["pointer"] = place + each["pointer"]
        raise


def _mapped(kind: Any, parts: tuple[Any, ...]) -> tuple[Any, Build]:
    shaped, build = _shaped(parts[1])
    if build is same:
        return kind, same
    return _DICT[str, shaped], lambda value: {
        key: _built(build, each, key) for key, each in value.items()
    }


def _is_bytes(kind: Any) -> bool:
    return kind is bytes or (
        get_origin(kind) in (Union, types.UnionType) and bytes in get_args(kind)
    )


# --- records -------------------------------------------------------------------------------------


def _record(
    kind: type[Record], *, without: frozenset[str] | None = None, tag: str | None = None
) -> tuple[Any, Build]:
    """A class as it is, or a struct of the same fields and what makes the class of it; `without`
    some fields, it makes a map of the others."""
    changed: list[_Field] = []
    fields: list[Any] = []
    required = _required(kind)
    for name, hint in _hints(kind).items():
        if name in (without or ()):
            continue
        word = WORDS.get(name, name)
        if _is_bytes(hint):
            changed.append((name, word, None))
            fields += [(word, _MAYBE_RAW, _UNSET), (word + BASE64, _MAYBE_TEXT, _UNSET)]
            continue
        shaped, build = _instants(hint, name) if IS_INSTANT.search(name) else _shaped(hint)
        changed.append((name, name, build))
        if name in required:
            fields.append((name, shaped))
        else:
            fields.append((name, _UNION[shaped, msgspec.UnsetType], _UNSET))
    is_same = all(build is same for _, _, build in changed) and not _is_tagged_otherwise(kind)
    if without is None and tag is None and is_same:
        return kind, same
    told = tag or tag_of(kind)
    shaped_record = msgspec.defstruct(
        kind.__name__,
        fields,
        kw_only=True,
        forbid_unknown_fields=True,
        tag_field=_TYPE if told else None,
        tag=told,
        gc=False,
    )
    if without is not None:
        return shaped_record, _builder(changed, dict, frozenset())
    return shaped_record, _builder(changed, kind, frozenset(required))


def _instants(hint: Any, name: str) -> tuple[Any, Build]:
    """UTC milliseconds, or RFC 3339 text."""
    if int not in (hint, *get_args(hint)):
        return _shaped(hint)

    def build(value: Any) -> Any:
        return instant(value, field=name) if isinstance(value, str) else value

    return _UNION[hint, str], build


def _required(kind: type[Record]) -> set[str]:
    found = set()
    for field in msgspec.structs.fields(kind):
        if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
            found.add(field.name)
    return found


def _builder(
    changed: Sequence[_Field], make: Callable[..., Any], required: frozenset[str]
) -> Build:
    """What makes the class, or a map of its fields, of what the decoder made. The decoder has seen
    that what is required is there, but for bytes, which have two words."""

    def build(read: Any) -> Any:
        values: dict[str, Any] = {}
        for name, word, build_one in changed:
            if build_one is None:
                _take_bytes(values, name, word, read)
                if name in required and name not in values:
                    raise missing(word)
            elif (value := getattr(read, word)) is not _UNSET:
                values[name] = value if build_one is same else _built(build_one, value, word)
        return make(**values)

    return build


def _take_bytes(values: dict[str, Any], name: str, word: str, read: Any) -> None:
    """JSON as it came, or Base64; without either the field is left to its default."""
    value, other = getattr(read, word), getattr(read, word + BASE64)
    if value is not _UNSET:
        if other is not _UNSET:
            detail = f"{word}: give {word} or {word}{BASE64}, not both"
            items = [{"pointer": f"/{word}", "detail": detail}]
            raise InvalidInput(detail, field=word, errors=items)
        values[name] = bytes(value)
    elif other is not _UNSET:
        field = word + BASE64
        values[name] = _built(lambda text: from_base64(text, field=field), other, field)


def read_handle(text: str) -> Handle:
    """The inverse of `plain.handle_text`."""
    try:
        data = base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput("handle: damaged", field="handle") from None
    return Handle.decode(data)


def from_base64(text: str, *, field: str) -> bytes:
    """Bytes from Base64 of either alphabet, padded as it should be."""
    try:
        return base64.b64decode(text.translate(_STANDARD), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(f"{field}: is not Base64", field=field) from None


_STANDARD: Final = str.maketrans("-_", "+/")


# --- errors --------------------------------------------------------------------------------------


def malformed(body: bytes | Raw, error: Exception) -> MalformedJson:
    """Not JSON: with the line and column where it ends to be."""
    found = re.search(r"byte (\d+)", str(error))
    data = bytes(body)
    before = data if found is None else data[: int(found[1])]
    line, column = before.count(b"\n") + 1, len(before) - (before.rfind(b"\n") + 1) + 1
    return MalformedJson(
        f"body: {error!s:.{_DETAIL}}, line {line} column {column}",
        field="body",
        line=line,
        column=column,
    )


def misfit(error: Exception, words: Sequence[str] = ()) -> InvalidInput:
    """JSON of another shape: the pointer to the place, and the nearest word for an unknown one."""
    text = str(error)
    place = _PLACE.search(text)
    steps = [name or index for name, index in _STEP.findall(place[1])] if place else []
    what = text[: place.start()] if place else text
    item: dict[str, Any] = {}
    if (unknown := _UNKNOWN.search(what)) is not None:
        steps.append(unknown[1])
        near = difflib.get_close_matches(unknown[1], words or [], 1) if len(steps) == 1 else []
        item["suggestion"] = near[0] if near else None
    elif (missing := _MISSING.search(what)) is not None:
        steps.append(missing[1])
    pointer = "".join(f"/{_escaped(step)}" for step in steps)
    item = {"pointer": f"{pointer:.{_DETAIL}}", "detail": f"{what:.{_DETAIL}}", **item}
    hint = f", did you mean {item['suggestion']}?" if item.get("suggestion") else ""
    name = _field_of(steps)
    return InvalidInput(f"{name}: {what:.{_DETAIL}}{hint}", field=name, errors=[item])


def missing(word: str) -> InvalidInput:
    """A field that is not there and must be."""
    items = [{"pointer": f"/{word}", "detail": "is required"}]
    return InvalidInput(f"{word}: is required", field=word, errors=items)


def placed(error: FlowFabricError, prefix: str) -> FlowFabricError:
    """With pointers that begin at the body, of an error of a part of it."""
    field = error.fields.get("field")
    own = f"/{field}" if field not in (None, "body") else ""
    items = error.fields.setdefault("errors", [{"pointer": own, "detail": error.detail}])
    for each in items:
        each["pointer"] = prefix + each["pointer"]
    return error


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _field_of(steps: Sequence[str]) -> str:
    """The innermost name; an index, or an entry the decoder does not name, is none."""
    names = [step for step in steps if step != "..." and not step.isdigit()]
    return f"{names[-1]:.200}" if names else "body"
