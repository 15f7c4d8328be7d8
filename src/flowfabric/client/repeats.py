"""Which requests may be sent again when an answer was lost."""

from __future__ import annotations

from typing import Any, TypeVar

from flowfabric.api.executions import CreateExecutions, NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.operation import Request
from flowfabric.ids import new_secret_id
from flowfabric.model.record import replace

R = TypeVar("R")


def with_key(request: Request[R]) -> Request[R]:
    """A submit without a key gets one of the client's own: a repetition never doubles work.

    A submit with a unique key has another answer for its twin, and is left as it is.
    """
    match request:
        case NewExecution(idempotency_key=None, unique=None):
            return replace(request, idempotency_key=_minted())
        case SubmitFlow(idempotency_key=None, flow_id=None):
            return replace(request, idempotency_key=_minted())
        case CreateExecutions():
            several: Any = [
                with_key(each) if isinstance(each, NewExecution) else each
                for each in request.requests
            ]
            return replace(request, requests=several)
    return request


def _minted() -> str:
    return f"client:{new_secret_id()}"


def is_safe_to_repeat(request: Request[Any]) -> bool:
    """Whether the same request twice is the same as once: by its handle, its key or its nature."""
    if isinstance(request, CreateExecutions):
        return all(is_safe_to_repeat(each) for each in request.requests)
    if getattr(request, "handle", None) is not None:
        return True
    return getattr(request, "idempotency_key", None) is not None
