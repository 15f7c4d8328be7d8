"""Requests, answers and errors as bytes and back: what crosses a wire, and nothing else does.

MessagePack, because it tells bytes from text: JSON would take a text for the Base64 of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Union, get_args, get_origin

from flowfabric import errors
from flowfabric.api.operation import OPERATIONS, Operation, Request
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.model.record import Raw, Record, as_plain, fields_of, from_msgpack, to_msgpack
from flowfabric.model.suspension import Token

_ERRORS: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FlowFabricError)
}

_UNSENDABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
Path = tuple[str, ...]  # names of fields, from the request's own inwards
_LENGTH: Final = 200  # of a place, and of a decoder's own text, which may repeat what it was given


class Failure(Record, frozen=True, tag=True):
    """An error on the wire."""

    code: str
    detail: str
    fields: dict[str, Any] = {}


# --- values that only a wire carries -------------------------------------------------------------


def _outward(value: object) -> object:
    """A token is text here and only here: the caller that is answered one needs it."""
    if isinstance(value, Token):
        return value.reveal()
    if isinstance(value, FlowFabricError):
        return Failure(value.code, value.detail, value.fields)
    return as_plain(value)


def _inward(kind: type, value: Any) -> Any:
    if kind is not Token:
        raise TypeError(f"{kind.__name__} does not cross a wire")
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return Token(value)


def error_of(code: str, detail: str, fields: Mapping[str, Any]) -> FlowFabricError:
    """An error as it was on the other side of a wire."""
    return _ERRORS.get(code, FlowFabricError)(detail, **fields)


def _error(failure: Failure) -> FlowFabricError:
    """A code of a newer version is an error all the same."""
    return error_of(failure.code, failure.detail, failure.fields)


@cache
def _reply_type(name: str) -> Any:
    """As declared, but with failures in the place of errors among the items of a list."""
    reply = OPERATIONS[name].reply
    items = get_args(get_args(reply)[0]) if get_origin(reply) is list else ()
    if FlowFabricError not in items:
        return reply
    return list[Union[*(Failure if each is FlowFabricError else each for each in items)]]  # type: ignore[misc]


_OF_A_PROBLEM: Final = frozenset(
    {"type", "title", "status", "code", "detail", "retryable", "request_id"}
)


def read_problem(body: Mapping[str, Any]) -> FlowFabricError:
    """The error that a JSON problem tells of."""
    fields = {name: value for name, value in body.items() if name not in _OF_A_PROBLEM}
    if not fields.get("errors"):
        fields.pop("errors", None)
    return error_of(str(body.get("code")), str(body.get("detail", "")), fields)


# --- requests ------------------------------------------------------------------------------------


@cache
def _by_request() -> dict[type[Request[Any]], Operation]:
    return {each.request: each for each in OPERATIONS.values()}


def operation_of(request: Request[Any]) -> Operation:
    """The operation that a request asks for."""
    found = _by_request().get(type(request))
    if found is None:
        detail = f"requests: expected a request, got {type(request).__name__}"
        raise InvalidInput(detail, field="requests")
    return found


def encode_request(request: Request[Any]) -> bytes:
    """The arguments; the operation's name travels beside them."""
    try:
        return to_msgpack(request, hook=_outward)
    except _UNSENDABLE as error:
        raise _unsendable(error, request, ()) from None


def _unsendable(error: Exception, value: object, path: Path) -> InvalidInput:
    """Says where in a value the part is that cannot be sent: each is tried by itself."""
    if not path or not isinstance(error, RecursionError):  # or there might be no end to the parts
        for place, part in _parts(value, path):
            try:
                to_msgpack(part, hook=_outward)
            except _UNSENDABLE as found:
                return _unsendable(found, part, place)
    match error:
        case UnicodeEncodeError():
            what = "is not valid Unicode"
        case OverflowError():
            what = "does not fit into 64 bits"
        case RecursionError():
            what = "nests too deep"
        case _:
            what = f"{type(value).__name__} is nothing that can be sent"
    return _at(path or ("request",), what)


def _parts(value: object, path: Path) -> Iterator[tuple[Path, object]]:
    """What a value is made of, and where each part is."""
    if isinstance(value, Record):
        yield from (((*path, name), part) for name, part in fields_of(value).items())
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            yield (*path[:-1], f"{path[-1]}[{index}]"), part
    elif isinstance(value, Mapping):
        yield from ((path, key) for key in value)
        for key, part in value.items():
            yield (*path[:-1], f"{path[-1]}.{key!s:.80}"), part


def decode_request(name: str, body: bytes) -> Request[Any]:
    """The inverse; what does not fit names its field."""
    found = OPERATIONS.get(name)
    if found is None:
        raise InvalidInput(f"there is no operation {name!s:.80}", field="operation")
    try:
        return from_msgpack(body, found.request, field=name, hook=_inward)
    except InvalidInput as error:
        raise _placed(error) from None


def _placed(error: InvalidInput) -> InvalidInput:
    """With the place that the decoder's text ends with: `$.limit`, `$.edges[0].upstream`; for a map
    the decoder does not say which of its entries it was (`$.deltas[...]`)."""
    before, found, place = error.detail.rpartition("`$.")
    if not found:
        return InvalidInput(f"{error.detail:.{_LENGTH}}", **error.fields)
    what = before.partition(": ")[2].rpartition(" - at")[0]
    return _at(tuple(place.partition("`")[0].replace("[...]", "").split(".")), what)


def _at(path: Path, what: str) -> InvalidInput:
    """The text has the whole path. The field is named as the engine does: an item of a list with
    its place in it, anything else by its own name, and not by what it was handed over in."""
    error = InvalidInput(f"{'.'.join(path):.{_LENGTH}}: {what:.{_LENGTH}}")
    items = [re.fullmatch(r"\w+\[(\d+)\].*", step, re.DOTALL) for step in path]
    listed = next((item for item in items if item is not None), None)
    if listed is None:
        error.fields["field"] = path[-1]
    else:
        error.fields["field"] = f"{'.'.join(path[items.index(listed) :]):.{_LENGTH}}"
        error.fields["index"] = int(listed[1])
    return error


# --- answers -------------------------------------------------------------------------------------


def encode_reply(reply: object) -> bytes:
    """The answer."""
    return to_msgpack(reply, hook=_outward)


def decode_reply(operation: Operation, body: bytes) -> Any:
    """The inverse."""
    kind = _reply_type(operation.name)
    reply = from_msgpack(body, kind, field=operation.name, hook=_inward)
    if kind is operation.reply:
        return reply
    return [_error(each) if isinstance(each, Failure) else each for each in reply]


def encode_error(error: FlowFabricError) -> bytes:
    """An error with its code, its own text and its fields."""
    return to_msgpack(error, hook=_outward)


def decode_error(body: bytes) -> FlowFabricError:
    """The inverse."""
    return _error(from_msgpack(body, Failure, field="error", hook=_inward))


# --- many at once --------------------------------------------------------------------------------

CONTENT_TYPE: Final = "application/vnd.flowfabric+msgpack"

Sent = tuple[str, Raw]  # an operation's name, and its request
Told = tuple[bool, Raw]  # whether it is the reply, and the reply or the error


def encode_requests(encoded: Sequence[tuple[str, bytes]]) -> bytes:
    """Several requests as one body: the name of each, and what `encode_request` made of it."""
    return to_msgpack([(name, Raw(body)) for name, body in encoded])


def decode_requests(body: bytes) -> list[tuple[str, bytes]]:
    """The inverse; each request is still to be decoded."""
    sent = from_msgpack(body, list[Sent], field="items")
    return [(name, bytes(raw)) for name, raw in sent]


def encode_answers(answers: Sequence[object]) -> bytes:
    """Replies and errors as one body, in the order of their requests."""
    return to_msgpack(
        [(not isinstance(each, FlowFabricError), each) for each in answers], hook=_outward
    )


def decode_answers(operations: Sequence[Operation], body: bytes) -> list[Any]:
    """The inverse: a reply or an error for each operation that was asked for."""
    told = from_msgpack(body, list[Told], field="items")
    if len(told) != len(operations):
        raise InvalidInput(
            f"items: {len(operations)} were asked, {len(told)} answered", field="items"
        )
    return [
        decode_reply(operation, bytes(raw)) if is_reply else decode_error(bytes(raw))
        for operation, (is_reply, raw) in zip(operations, told, strict=True)
    ]
