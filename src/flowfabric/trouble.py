"""The meaning of an error for the call that met it: wait, try a while, give up, or accept the
reply."""

from __future__ import annotations

from enum import Enum
from typing import Final

from flowfabric.errors import (
    BusyError,
    ConfigurationMismatch,
    FlowFabricError,
    KeyringEmpty,
    RetryExhausted,
    SchemaMismatch,
    StoreCorrupt,
    StoreError,
    StoreReplaced,
)

_LASTING: Final = (
    SchemaMismatch,
    ConfigurationMismatch,
    KeyringEmpty,
    StoreReplaced,
    StoreCorrupt,
)


class Trouble(Enum):
    """The meaning of an error for the call that met it. One rule for workers and loops."""

    PASSING = "passing"  # the store's or the server's: the same call succeeds when that is over
    UNCLEAR = "unclear"  # the store's or our own: it may pass or not, so it is tried a while
    LASTING = "lasting"  # it stays until something is corrected
    REFUSED = "refused"  # the request was understood and refused


def trouble(error: BaseException) -> Trouble:
    """The kind of trouble of an error; a typed error's class says whether it passes."""
    if isinstance(error, _LASTING):
        return Trouble.LASTING
    if isinstance(error, BusyError):
        return Trouble.PASSING
    if isinstance(error, StoreError | RetryExhausted):
        return Trouble.PASSING if error.retryable else Trouble.UNCLEAR
    if isinstance(error, FlowFabricError):
        return Trouble.REFUSED
    return Trouble.PASSING if isinstance(error, OSError) else Trouble.UNCLEAR


def is_passing(error: BaseException) -> bool:
    """Whether the store is the problem and the same call may succeed later."""
    return trouble(error) is Trouble.PASSING


def may_pass(error: BaseException) -> bool:
    """Whether it is worth another try, even without a promise."""
    return trouble(error) in (Trouble.PASSING, Trouble.UNCLEAR)
