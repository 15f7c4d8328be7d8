"""How much waits for people: counted for the navigation of every page, and kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from flowfabric.api.approvals import CountWaits
from flowfabric.api.asks import ListBudgetAsks
from flowfabric.api.operation import Scope
from flowfabric.clock import monotonic
from flowfabric.errors import FlowFabricError
from flowfabric.model.state import BlockingReason
from flowfabric.server.exchange import Call
from flowfabric.server.routes.asking import ask
from flowfabric.server.ui.views.approvals import PATH

if TYPE_CHECKING:
    from flowfabric.server.service import Service

COUNT_MAX: Final = 100  # more are told as 99+
_KEPT_S: Final = 10.0
_CALLERS_MAX: Final = 1_000
_Key = tuple[str, ...] | None
_kept: WeakKeyDictionary[Service, dict[_Key, tuple[float, int]]] = WeakKeyDictionary()


async def counts_for(service: Service, call: Call) -> Mapping[str, str]:
    """The numbers beside places of the navigation. A page is shown without them where the store
    does not answer."""
    if call.caller.scopes.isdisjoint((Scope.READ, Scope.APPROVE)):
        return {}
    try:
        number = await waiting_for(service, call)
    except FlowFabricError:
        return {}
    return {PATH: in_words(number)} if number else {}


def in_words(number: int) -> str:
    """A number that was counted only so far."""
    return str(number) if number < COUNT_MAX else f"{COUNT_MAX - 1}+"


def forget(service: Service) -> None:
    """Count anew: something was decided here."""
    _kept.pop(service, None)


async def waiting_for(service: Service, call: Call) -> int:
    """How many approvals and questions wait in the caller's namespaces, as of a moment ago."""
    key = _own(call)
    known = _kept.setdefault(service, {})
    found = known.get(key)
    if found is not None and monotonic() - found[0] < _KEPT_S:
        return found[1]
    return await counted(service, call, key)


def _own(call: Call) -> _Key:
    own = call.caller.namespaces
    return None if own is None else tuple(sorted(own))


async def counted(
    service: Service, call: Call, namespaces: _Key, *, asks: int | None = None
) -> int:
    """The same, counted now; no further than `COUNT_MAX`. `asks`: how many questions there are,
    where that is known. It is kept only for callers of just these namespaces: questions are
    counted as far as this caller sees them, which others may not."""
    number = await _approvals(service, call, namespaces)
    number += await _asks(service, call) if asks is None else asks
    number = min(COUNT_MAX, number)
    if namespaces != _own(call):
        return number
    known = _kept.setdefault(service, {})
    if len(known) >= _CALLERS_MAX:
        known.clear()
    known[namespaces] = (monotonic(), number)
    return number


async def _approvals(service: Service, call: Call, namespaces: _Key) -> int:
    reason = BlockingReason.WAITING_FOR_APPROVAL
    places: tuple[str | None, ...] = (None,) if namespaces is None else namespaces
    several = await asyncio.gather(
        *(
            ask(service, call, CountWaits(namespace=each, reason=reason, at_most=COUNT_MAX))
            for each in places
        )
    )
    return sum(several)


async def _asks(service: Service, call: Call) -> int:
    return len((await ask(service, call, ListBudgetAsks(limit=COUNT_MAX))).items)
