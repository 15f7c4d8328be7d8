"""A handler's view of a wait: the waitpoints it handed out, the signals that came."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, overload

import msgspec

from flowfabric.errors import InvalidPayload
from flowfabric.model.suspension import ResumeCause, ResumeInfo, ResumeSignal, Token
from flowfabric.sdk import codec
from flowfabric.sdk.durations import to_datetime
from flowfabric.sdk.links import Address, make_link

T = TypeVar("T")
_PLAIN: Final = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Waitpoint:
    """An address for signals, with its token. Hand out `link()`, or `id` and `token.reveal()`."""

    id: str
    key: str
    token: Token
    execution_id: str

    def link(self) -> str:
        """One text for a callback. It is a credential: do not log it."""
        return make_link(Address(self.execution_id, self.id, self.token))


@dataclass(frozen=True, slots=True)
class ReceivedSignal:
    """A signal that ended a wait, or helped to."""

    name: str
    key: str  # of the waitpoint it was sent to
    source: str  # "user:ada": as its sender says, unless your own program delivered it
    raw: bytes | None
    encoding: str
    id: str
    category: str
    correlation_id: str
    at: datetime

    @property
    def payload(self) -> Any:
        """The payload, from JSON to plain values; other encodings as bytes."""
        if self.raw is None or self.encoding != codec.JSON:
            return self.raw
        try:
            return _PLAIN.decode(self.raw)
        except codec.DecodeErrors:
            return self.raw  # no type was declared, so the payload was not checked

    @overload
    def payload_as(self, kind: type[T]) -> T: ...
    @overload
    def payload_as(self, kind: Any) -> Any: ...

    def payload_as(self, kind: Any) -> Any:
        """The payload, read as a type: a dataclass, a struct, a pydantic model, JSON types."""
        decoder = codec.decoder_of(kind, field="payload")
        try:
            return decoder.decode(b"null" if self.raw is None else self.raw)
        except (*codec.DecodeErrors, ValueError) as error:
            detail = f"payload of {self.name}: {codec.where(error)[1]}"
            raise InvalidPayload(detail, field="payload") from None


def received(signals: Iterable[ResumeSignal]) -> tuple[ReceivedSignal, ...]:
    """The engine's signals as a handler sees them, in the order they came."""
    return tuple(
        ReceivedSignal(
            name=each.signal_name,
            key=each.waitpoint_key,
            source=":".join(filter(None, (each.source_type, each.source_identity))),
            raw=each.payload,
            encoding=each.payload_encoding,
            id=each.signal_id,
            category=each.signal_category,
            correlation_id=each.correlation_id,
            at=to_datetime(each.accepted_at),
        )
        for each in signals
    )


@dataclass(frozen=True, slots=True)
class Ended:
    """How the last wait of an attempt ended."""

    cause: ResumeCause
    actor: str
    signals: tuple[ReceivedSignal, ...]
    continuation: str | None
    ended_at: int = 0


def ended(info: ResumeInfo | None) -> Ended | None:
    """The engine's record of it, for the handler."""
    if info is None:
        return None
    pointer = info.continuation_metadata_pointer
    return Ended(info.cause, info.actor, received(info.signals), pointer, info.ended_at)
