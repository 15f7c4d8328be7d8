"""Places of signals that a handler opens before it waits there. They are recorded in its journal:
another run of it finds them again, also as another attempt."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from flowfabric import limits
from flowfabric.api.backend import EngineBackend
from flowfabric.errors import FlowFabricError
from flowfabric.model.handle import Handle
from flowfabric.model.journal import EntryKind, EntryState, NewEntry
from flowfabric.model.suspension import Token, WaitpointDetails
from flowfabric.sdk.journal.interruption import interruptible, to_its_end
from flowfabric.sdk.journal.scopes import Scope, name_with

NO_TOKEN: Final = Token("")  # of a waitpoint that is closed


@dataclass(frozen=True, slots=True)
class OpenPlace:
    """A pending waitpoint. One that an earlier run has opened comes without its token."""

    id: str
    key: str
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A place as it stands in the journal: `name` is its key there. One without an id has yet to be
    opened."""

    name: str
    number: int
    key: str
    id: str | None = None


def recorded_place(owner: Any, scope: Scope, key: str) -> Place:
    """A place as it stands in the journal."""
    name = scope.key(name_with("waitpoint", key)).now
    asked = owner.journal.ask(scope, name, kind=EntryKind.WAITPOINT, is_aside=True)
    known = None if asked.entry is None else asked.entry.refers_to
    return Place(name, asked.number, key, known)


async def open_place(
    owner: Any, place: Place, schema: str | None, expires_in_ms: int = limits.DURATION_MS_MAX
) -> OpenPlace:
    """Make a waitpoint, and record it in the same transaction."""
    entry = NewEntry(
        position=0,
        key=place.name,
        kind=EntryKind.WAITPOINT,
        state=EntryState.OPEN,
        asked=place.number,
        began_at=max(0, owner.now_ms()),
    )

    async def send(entries: tuple[NewEntry, ...]) -> WaitpointDetails:
        make = partial(_create, owner.claimed.handle, place.key, expires_in_ms, schema, entries)
        made: WaitpointDetails = await owner.ask(make)
        return made

    made = await interruptible(owner, to_its_end(owner.journal.outbox.carry([entry], send)))
    return OpenPlace(made.waitpoint_id, made.waitpoint_key, made.token)


async def _create(
    handle: Handle,
    key: str,
    expires_in_ms: int,
    schema: str | None,
    entries: tuple[NewEntry, ...],
    engine: EngineBackend,
) -> WaitpointDetails:
    return await engine.create_waitpoint(
        handle,
        waitpoint_key=key,
        expires_in_ms=expires_in_ms,
        payload_type=schema,
        entries=entries,
    )


async def close_places(owner: Any, places: Iterable[OpenPlace]) -> None:
    """The wait is over: signals that come now are told so. What is left open closes with the
    execution."""
    if owner.is_stopped:
        return
    execution_id = owner.claimed.execution_id
    for each in places:
        close = partial(_close, execution_id, each.id)
        with suppress(FlowFabricError):
            await owner.ask(close)


async def _close(execution_id: str, waitpoint_id: str, engine: EngineBackend) -> object:
    return await engine.close_waitpoint(
        execution_id=execution_id, waitpoint_id=waitpoint_id, reason="the wait is over"
    )
