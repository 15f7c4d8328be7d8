"""One row of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from flowfabric.api.operation import OPERATIONS, Errors, Operation, Scope
from flowfabric.model.record import Record

if TYPE_CHECKING:
    from flowfabric.server.exchange import Answer, Call, Streamed
    from flowfabric.server.service import Service

Handler = Callable[["Service", "Call"], Awaitable["Answer | Streamed"]]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")


class Size(StrEnum):
    """How large the body of a route may be."""

    NONE = "none"  # it takes none
    SMALL = "small"  # words and numbers
    PAYLOAD = "payload"  # one payload, perhaps in Base64
    SIGNAL = "signal"
    BATCH = "batch"  # many items


class Repeat(StrEnum):
    """How a repeated request is safe."""

    READ = "read"  # it changes nothing
    KEY = "key"  # by its idempotency key
    FENCE = "fence"  # by the handle
    STATE = "state"  # it answers the same, or a refusal that tells what is so


class Route(Record, frozen=True, kw_only=True):
    """A method and a path, and all that is known of them.

    `operation`: the one it asks for, from which scope, fields and errors follow. `renames`: fields
    that have another word here. `fixed`: fields that the path decides.
    """

    method: str
    path: str
    title: str
    operation: str | None = None
    scope: Scope | None = None
    handler: Handler
    size: Size = Size.NONE
    repeat: Repeat = Repeat.READ
    statuses: Mapping[str, int] = {}  # by the class of the reply; 200 unless named
    query: tuple[str, ...] = ()  # fields that come after the question mark
    errors: Errors = ()
    tag: str = "executions"
    fixed: Mapping[str, Any] = {}
    media: str = "application/json"
    body: Any = None  # the class of the body, where it is not that of the operation
    reply: Any = None  # the same of the answer
    is_hot: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields that stand in the path."""
        return tuple(_PARAMETER.findall(self.path))

    def asked(self) -> Operation:
        """The operation it asks for."""
        return OPERATIONS[self.operation or ""]
