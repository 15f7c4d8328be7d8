"""The request that calls come with, where a server asks for them on behalf of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from flowfabric.model.audit import RequestOrigin

_ORIGIN: Final[ContextVar[RequestOrigin | None]] = ContextVar("flowfabric_origin", default=None)


@contextmanager
def coming_from(origin: RequestOrigin) -> Iterator[None]:
    """Calls of the block are audited as parts of this request."""
    before = _ORIGIN.set(origin)
    try:
        yield
    finally:
        _ORIGIN.reset(before)


def origin_now() -> RequestOrigin | None:
    """The request that the present call is a part of; None beside the store."""
    return _ORIGIN.get()
