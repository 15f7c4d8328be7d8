"""Other arguments than those that an execution was submitted with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from flowfabric import limits
from flowfabric.engine.machine import Machine
from flowfabric.engine.operations.new_entries import check_key
from flowfabric.engine.operations.requests import check_payload
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_name
from flowfabric.model.nesting import JSON

_OBJECT: Final[msgspec.json.Decoder[dict[str, msgspec.Raw]]] = msgspec.json.Decoder(
    dict[str, msgspec.Raw]
)


def json_values(machine: Machine, given: object, field: str) -> dict[str, bytes]:
    """JSON by names."""
    if not isinstance(given, Mapping):
        detail = f"{field}: expected JSON by names, got {type(given).__name__}"
        raise InvalidInput(detail, field=field)
    if len(given) > limits.ENTRIES_MAX:
        raise InvalidInput(f"{field}: more than {limits.ENTRIES_MAX}", field=field)
    check: Any = check_key if field == "results" else check_name
    return {check(name, field=field): _json(machine, value, field) for name, value in given.items()}


def _json(machine: Machine, value: object, field: str) -> bytes:
    text = check_payload(value, JSON, machine.config, field=field)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{field}: is not JSON: {error}", field=field) from None
    return text


def with_arguments(machine: Machine, payload: bytes, arguments: dict[str, bytes]) -> bytes:
    """An input with some other arguments, by their names."""
    try:
        known = _OBJECT.decode(payload or b"{}")
    except msgspec.MsgspecError:
        detail = "arguments: the input of the execution is no JSON object"
        raise InvalidInput(detail, field="arguments") from None
    known.update({name: msgspec.Raw(value) for name, value in arguments.items()})
    return check_payload(msgspec.json.encode(known), JSON, machine.config, field="arguments")
