"""Results of steps, as they are recorded and as every run sees them."""

from __future__ import annotations

from typing import TypeVar

from flowfabric.limits import JSON_DEPTH_MAX
from flowfabric.model.nesting import is_too_deep
from flowfabric.sdk import codec
from flowfabric.sdk.journal.failures import Unrecordable
from flowfabric.sdk.journal.plan import Plan, settled

T = TypeVar("T")


def encoded(plan: Plan, key: str, value: T, bytes_max: int) -> tuple[T, bytes]:
    """A result as later runs see it, and how it is recorded."""
    try:
        data = codec.encode(value)
    except codec.EncodeErrors as error:
        detail = f"the result of {key} cannot be written as JSON: {error}"
        raise Unrecordable(detail) from error
    if len(data) > bytes_max:
        detail = f"the result of {key} has {len(data)} bytes, which is over the limit {bytes_max}"
        raise Unrecordable(detail, size=len(data), limit=bytes_max)
    if is_too_deep(data):
        raise Unrecordable(f"the result of {key} nests deeper than {JSON_DEPTH_MAX} levels")
    try:
        return settled(plan, value, data), data
    except codec.DecodeErrors as error:
        detail = f"the result of {key} is not of the annotated type: {error}"
        raise Unrecordable(detail) from error
