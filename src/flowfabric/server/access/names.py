"""In whose name things are done: the caller's own, unless its token speaks for others.

The source of an approval or a signal is what it counts by, so nobody chooses it: else one caller
could be two of the two that a wait asks for.
"""

from __future__ import annotations

from typing import Any, Final

from flowfabric.api.operation import Request, UnsafeRequest
from flowfabric.api.waits import (
    DeliverApprovalSignal,
    DeliverSignal,
    DeliverSignals,
    DeliverTrustedSignal,
    Signal,
)
from flowfabric.errors import InvalidInput
from flowfabric.model.record import defaults_of, replace
from flowfabric.server.access.caller import Caller

_NOBODY: Final = ("", defaults_of(DeliverApprovalSignal)["actor"])
_OWN_TYPE: Final = "access_token"


def in_name_of(caller: Caller, request: Request[Any]) -> Request[Any]:
    """The request with the name of its caller where it has one."""
    own = caller.actor
    if own is None:
        return request
    match request:
        case UnsafeRequest():
            named = request.actor if caller.speaks_for else None
            return replace(request, actor=name_of(caller, named, "actor"))
        case DeliverApprovalSignal():
            source = name_of(caller, request.actor, "actor")
            suffix = request.idempotency_suffix
            suffix = source if suffix == request.actor else suffix
            kind = _OWN_TYPE if source == own else None
            return replace(request, actor=source, idempotency_suffix=suffix, source_type=kind)
        case DeliverSignal() | DeliverTrustedSignal() if isinstance(request.signal, Signal):
            return replace(request, signal=_signal_of(caller, request.signal))
        case DeliverSignals() if isinstance(request.signals, list | tuple):
            several = [
                _signal_of(caller, each) if isinstance(each, Signal) else each
                for each in request.signals
            ]
            return replace(request, signals=several)
        case _:
            return request


def _signal_of(caller: Caller, signal: Signal) -> Signal:
    source = name_of(caller, signal.source_identity, "source")
    kind = signal.source_type if source != caller.actor else _OWN_TYPE
    return replace(signal, source_identity=source, source_type=kind)


def name_of(caller: Caller, named: object, field: str) -> str:
    """The name under which something is done; `named`: the one that was asked for, if any."""
    own = caller.actor or ""
    if named is None or named in _NOBODY or named == own:
        return own
    if not caller.speaks_for:
        raise InvalidInput(
            f"{field}: this token speaks for itself; `ff token new --speaks-for` makes another",
            field=field,
        )
    text = str(named)
    return text if text.endswith(f" via {own}") else f"{text} via {own}"
