"""Messages that a handler sends: steps with keys of their own, so that none is sent twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from flowfabric.errors import (
    InvalidInput,
    InvalidPayload,
    NoReply,
    NotFound,
    PayloadTooLarge,
    SignalLimitExceeded,
    TargetNotSignalable,
    UnknownMailbox,
    WaitTimeout,
)
from flowfabric.model.record import to_plain
from flowfabric.sdk.journal.journal import Journal
from flowfabric.sdk.journal.plan import NO_STEP_OPTIONS, plan_of_call
from flowfabric.sdk.journal.scopes import current_step
from flowfabric.sdk.journal.steps import prepared

# Raised as themselves, in every run of the handler.
_RAISES: Final = (
    InvalidInput,
    InvalidPayload,
    NotFound,
    PayloadTooLarge,
    NoReply,
    SignalLimitExceeded,
    TargetNotSignalable,
    UnknownMailbox,
    WaitTimeout,
)


async def recorded(
    journal: Journal, name: str, send: Callable[[str | None], Awaitable[Any]], key: str | None
) -> Any:
    """What a call gave, as plain data: recorded, and made with the key of its step unless it has
    one, so that one that was cut off finds its message again."""

    async def body() -> Any:
        chosen = current_step().idempotency_key if key is None else key
        return to_plain(await send(chosen))

    options = NO_STEP_OPTIONS.but(raises=_RAISES, compare="name")
    return await prepared(journal, plan_of_call(name, body, options), (), {})
