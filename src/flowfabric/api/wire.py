"""Requests, answers and errors as bytes and back: what crosses a wire, and nothing else does.

MessagePack, because it tells bytes from text: JSON would take a text for the Base64 of bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from flowfabric import errors
from flowfabric.api.operation import OPERATIONS, Operation, Request
from flowfabric.errors import FlowFabricError, InvalidInput
from flowfabric.model.record import Record, from_msgpack, to_msgpack

_ERRORS: Final = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FlowFabricError)
}


class Failure(Record, frozen=True):
    """An error on the wire."""

    code: str
    detail: str
    fields: dict[str, Any] = {}


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
        return to_msgpack(request)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{operation_of(request).name}: {error!s:.200}") from None


def decode_request(name: str, body: bytes) -> Request[Any]:
    """The inverse; what does not fit names its field."""
    found = OPERATIONS.get(name)
    if found is None:
        raise InvalidInput(f"there is no operation {name!s:.80}", field="operation")
    try:
        return from_msgpack(body, found.request, field=name)
    except InvalidInput as error:
        raise _placed(error) from None


def _placed(error: InvalidInput) -> InvalidInput:
    """With the field that the decoder's text ends with, as `$.limit`."""
    _, found, place = error.detail.rpartition("`$.")
    field = place.partition("`")[0].partition("[")[0].partition(".")[0] if found else ""
    if not field:
        return error
    what = error.detail.partition(": ")[2].rpartition(" - at")[0]
    return InvalidInput(f"{field}: {what}", field=field)


def encode_reply(reply: object) -> bytes:
    """The answer."""
    return to_msgpack(reply)


def decode_reply(operation: Operation, body: bytes) -> Any:
    """The inverse."""
    return from_msgpack(body, operation.reply, field=operation.name)


def encode_error(error: FlowFabricError) -> bytes:
    """An error with its code, its own text and its fields."""
    return to_msgpack(Failure(error.code, error.detail, error.fields))


def decode_error(body: bytes) -> FlowFabricError:
    """The inverse; a code of a newer version is an error all the same."""
    failure = from_msgpack(body, Failure, field="error")
    return _ERRORS.get(failure.code, FlowFabricError)(failure.detail, **failure.fields)
