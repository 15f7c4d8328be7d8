"""One row of the table of routes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from flowfabric.api.operation import OPERATIONS, Errors, Operation, Scope
from flowfabric.model.record import Record

if TYPE_CHECKING:
    from flowfabric.server.access.caller import Caller
    from flowfabric.server.exchange import Answer, Call, Streamed
    from flowfabric.server.service import Service

Handler = Callable[["Service", "Call"], Awaitable["Answer | Streamed"]]
Judge = Callable[["Call"], bool]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")


@cache
def _parameters(path: str) -> tuple[str, ...]:
    return tuple(_PARAMETER.findall(path))


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


class Reach(StrEnum):
    """What of the store a route touches: the rule by which a token for some namespaces may use it.

    Objects of other namespaces do not exist for such a token. What all namespaces share it may
    read, with what is its own of it; to change that takes a token for all namespaces.
    """

    NOTHING = "nothing"  # no object of the store
    OBJECT = "object"  # the one that the path names, of its namespace
    NAMED = "named"  # objects of the namespaces that the request names, else of the token's
    SHARED = "shared"  # what belongs to all namespaces


class Route(Record, frozen=True, kw_only=True):
    """A method and a path, and all that is known of them.

    `operation`: the one it asks for, from which scope, fields and errors follow. `asks`: others
    that its handler asks for. `fixed`: fields that the route decides. `defaults`: values of fields
    that are not given, where the operation has others. `hidden`: fields of the operation that have
    no place in HTTP. `statuses`: by the class of the reply; 200 unless named.
    """

    method: str
    path: str
    title: str
    operation: str | None = None
    asks: tuple[str, ...] = ()
    scope: Scope | None = None
    also: tuple[Scope, ...] = ()  # scopes that suffice as well
    is_for_known: bool = False  # any token will do; what is asked for is checked by itself
    reach: Reach = Reach.NOTHING
    handler: Handler
    size: Size = Size.NONE
    repeat: Repeat = Repeat.READ
    statuses: Mapping[str, int] = {}
    own_query: Mapping[str, str] = {}  # parameters that are no fields, and what they do
    query: tuple[str, ...] = ()  # fields that come after the question mark
    errors: Errors = ()
    tag: str = "executions"
    fixed: Mapping[str, Any] = {}
    defaults: Mapping[str, Any] = {}
    hidden: tuple[str, ...] = ()
    revision: str | None = None  # the field of the reply that is its ETag
    is_whole: bool = False  # the revision rises with any change of the reply, so 304 may be told
    if_match: str | None = None  # the field of the request that the header If-Match gives
    is_match_needed: bool = False
    absent: str | None = None  # what is not found where the reply is nothing
    media: str = "application/json"
    other_media: tuple[str, ...] = ()  # that it is also answered as, if asked for
    streams: bool = False  # it is also answered as a stream of events
    body: Any = None  # the class of the body, where it is not that of the operation
    reply: Any = None  # the same of the answer
    more: Mapping[str, Any] = {}  # what an answer may have beside the reply, if asked for
    other_statuses: tuple[int, ...] = ()  # that the same reply may be answered with
    has_etag: bool = False  # of its content, where it has no revision
    takes_key: bool = False  # the header Idempotency-Key, for no field of the operation
    is_hot: bool = False
    is_expensive: bool = False  # it may read much of the store: asked for rarely
    reads_much: Judge | None = None  # likewise, if it says so of this request
    is_health: bool = False  # answered without the store, also while it is waited for
    is_open: bool = False  # to anybody: the request proves nothing, or proves it in its body
    is_page: bool = False  # of the dashboard: for people, and no part of the API

    @property
    def parameters(self) -> tuple[str, ...]:
        """The fields that stand in the path."""
        return _parameters(self.path)

    @property
    def name(self) -> str:
        """The method and the path, as logs and metrics name it."""
        return f"{self.method} {self.path}"

    def check(self, caller: Caller) -> None:
        """Refuse a caller that may not use it."""
        if self.scope is not None:
            caller.require(self.scope, *self.also)
            if self.reach is Reach.SHARED and self.operation is None:
                caller.require_all()
        elif self.is_for_known:
            caller.require_known()

    def asked(self) -> Operation:
        """The operation it asks for."""
        return OPERATIONS[self.operation or ""]
