"""Which requests may be sent again when an answer was lost."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from flowfabric.api.executions import CreateExecutions, NewExecution
from flowfabric.api.flows import SubmitFlow
from flowfabric.api.leases import Claim, GiveBackClaim
from flowfabric.api.operation import Request
from flowfabric.api.retries import RetryWithInput
from flowfabric.api.workers import DrainWorker, HeartbeatWorker, LeaveWorker, RegisterWorker
from flowfabric.ids import new_secret_id
from flowfabric.model.record import replace

R = TypeVar("R")


def with_key(request: Request[R]) -> Request[R]:
    """A submit without a key gets one of the client's own: a repetition never doubles work.

    A submit with a unique key has another answer for its twin, and is left as it is.
    """
    keyed: Any = request
    if getattr(keyed, "handle", None) is not None:
        return request  # the entries of its journal find it again
    is_submit = (
        (isinstance(keyed, NewExecution) and keyed.unique is None)
        or (isinstance(keyed, SubmitFlow) and keyed.flow_id is None)
        or isinstance(keyed, RetryWithInput)
    )
    if is_submit and keyed.idempotency_key is None:
        keyed = replace(keyed, idempotency_key=_minted())
    elif isinstance(keyed, CreateExecutions):
        several = [with_key(each) for each in keyed.requests]
        keyed = replace(keyed, requests=several)
    found: Request[R] = keyed
    return found


def with_claim_id(request: Claim) -> Claim:
    """A claim that can be repeated when its answer was lost."""
    return request if request.claim_id is not None else replace(request, claim_id=new_secret_id())


def _minted() -> str:
    return f"client:{new_secret_id()}"


# What says the same when it is said twice.
_AGAIN: Final = (RegisterWorker, HeartbeatWorker, LeaveWorker, DrainWorker, GiveBackClaim)


def is_safe_to_repeat(request: Request[Any]) -> bool:
    """Whether the same request twice is the same as once: by its handle, its key or its nature."""
    if isinstance(request, CreateExecutions) and request.handle is None:
        return all(is_safe_to_repeat(each) for each in request.requests)
    if getattr(request, "handle", None) is not None or isinstance(request, _AGAIN):
        return True
    return getattr(request, "idempotency_key", None) is not None
