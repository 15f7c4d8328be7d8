"""The handle of a worker that owns an execution: its fence and its origin."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from flowfabric.errors import InvalidInput
from flowfabric.model.execution import Fence
from flowfabric.model.record import Record

_MAGIC: Final = b"\x02\x02"  # format 2, version 2: msgpack body


class HandleKind(StrEnum):
    """How the lease was obtained."""

    FRESH = "fresh"
    RESUMED = "resumed"
    RECLAIMED = "reclaimed"


class Handle(Record, frozen=True, array_like=True):
    """Everything needed to act as the owner. Keep it secret: it is the proof of ownership."""

    backend: str
    kind: HandleKind
    execution_id: str
    attempt_index: int
    attempt_id: str
    lease_id: str
    lease_epoch: int
    lease_ttl_ms: int
    lane_id: str
    worker_instance_id: str

    @property
    def fence(self) -> Fence:
        """The triple that every call of the owner presents."""
        return Fence(self.lease_id, self.lease_epoch, self.attempt_id)

    def encode(self) -> bytes:
        """Opaque bytes for transport."""
        return _MAGIC + msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> Handle:
        """The inverse of `encode`; anything else is refused."""
        if not data.startswith(_MAGIC):
            raise InvalidInput("handle: not a handle of this version", field="handle")
        try:
            return msgspec.msgpack.decode(data[len(_MAGIC) :], type=Handle)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise InvalidInput("handle: damaged", field="handle") from None

    def __repr__(self) -> str:
        return (
            f"Handle({self.kind.value}, {self.execution_id}, attempt={self.attempt_index}, "
            f"epoch={self.lease_epoch})"
        )
