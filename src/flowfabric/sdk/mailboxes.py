"""The mailboxes that a task declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_text
from flowfabric.sdk import codec
from flowfabric.sdk.payload_types import schema_of


@dataclass(frozen=True, slots=True)
class Mailbox:
    """What comes there: how it is read, and the schema that it must fit, if any."""

    decoder: msgspec.json.Decoder[Any]
    schema: str | None


def read_mailboxes(given: object) -> dict[str, Mailbox]:
    """Mailboxes by their names, from the types of their messages; `Any` takes all JSON."""
    field = "mailboxes"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        detail = f"{field}: expected types by names, got {type(given).__name__}"
        raise InvalidInput(detail, field=field)
    if len(given) > limits.MAILBOXES_MAX:
        raise InvalidInput(f"{field}: more than {limits.MAILBOXES_MAX}", field=field)
    found = {}
    for name, kind in given.items():
        checked = check_text(name, field=field, max_bytes=limits.MAILBOX_NAME_BYTES)
        place = f"{field}.{checked}"
        decoder = codec.decoder_of(kind, field=place)
        found[checked] = Mailbox(decoder, None if kind is Any else schema_of(kind, field=place))
    return found
