"""Claim: a worker leases waiting executions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from flowfabric.errors import ClaimIdReused
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, Refused
from flowfabric.kernel.execution.routing import Offer
from flowfabric.kernel.execution.transition import acquire, lease_event
from flowfabric.model.attempt import AttemptType
from flowfabric.model.event import CLAIM_RESUMED, LeaseEventType
from flowfabric.model.execution import Execution
from flowfabric.model.handle import Handle, HandleKind
from flowfabric.model.record import Record, to_json
from flowfabric.model.results import Claimed, GivenBack
from flowfabric.model.worker import ClaimRow

_RECLAIMED: Final = LeaseEventType.RECLAIMED
_FRESH: Final = HandleKind.FRESH


class Claim(Command[list[Claimed]], frozen=True, kw_only=True):
    """A worker has free slots."""

    offer: Offer
    worker_id: str
    worker_instance_id: str
    lease_ttl_ms: int
    limit: int
    backend: str
    claim_id: str | None = None  # a repeated one is answered the same leases

    def needs(self, need: Needs) -> None:
        """The routes to match."""
        need.catalog = True
        need.claims[self.offer] = need.claims.get(self.offer, 0) + self.limit


class NewIds(Record, frozen=True):
    """Ids for one lease, minted outside because the kernel reads no randomness."""

    lease_id: str
    attempt_id: str

    def __repr__(self) -> str:
        return f"NewIds(attempt_id={self.attempt_id!r})"


def is_claimable(execution: Execution, now: int) -> bool:
    """Whether an ordinary claim may lease it: waiting, in time, not granted to another worker."""
    return (
        execution.is_waiting
        and not execution.granted_to_other(now)
        and (execution.deadline_at is None or now < execution.deadline_at)
    )


def claim(
    execution: Execution, command: Claim, ids: NewIds, at: Moment
) -> Decision[Claimed | None]:
    """Lease one candidate from the index; a candidate that changed meanwhile is skipped."""
    if not is_claimable(execution, at.now):
        return Decision(None)
    reason = CLAIM_RESUMED if execution.is_interrupted else "claim"
    return take(
        execution,
        worker_id=command.worker_id,
        worker_instance_id=command.worker_instance_id,
        lease_ttl_ms=command.lease_ttl_ms,
        backend=command.backend,
        ids=ids,
        at=at,
        reason=reason,
    )


def take(
    execution: Execution,
    *,
    worker_id: str,
    worker_instance_id: str,
    lease_ttl_ms: int,
    backend: str,
    ids: NewIds,
    at: Moment,
    reason: str,
    event_type: LeaseEventType = LeaseEventType.ACQUIRED,
) -> Decision[Claimed]:
    """The lease itself, for every kind of claim."""
    resumed = execution.is_interrupted
    leased = acquire(
        execution,
        worker_id=worker_id,
        worker_instance_id=worker_instance_id,
        lease_id=ids.lease_id,
        attempt_id=ids.attempt_id,
        lease_ttl_ms=lease_ttl_ms,
        at=at,
    )
    if event_type is _RECLAIMED:
        kind = HandleKind.RECLAIMED
    else:
        kind = HandleKind.RESUMED if resumed else _FRESH
    now, since = at.now, execution.last_transition_at
    event = lease_event(leased, event_type, reason, now, now - since if now > since else 0)
    return Decision(claimed_reply(leased, lease_ttl_ms, backend, kind), leased, None, (event,))


def claimed_reply(leased: Execution, lease_ttl_ms: int, backend: str, kind: HandleKind) -> Claimed:
    """The reply to the new owner; the engine adds the body."""
    index = leased.attempt_index or 0
    attempt_id, lease_id = leased.attempt_id or "", leased.lease_id or ""
    route = leased.route
    handle = Handle(
        backend,
        kind,
        leased.execution_id,
        index,
        attempt_id,
        lease_id,
        leased.lease_epoch,
        lease_ttl_ms,
        route.lane_id,
        leased.worker_instance_id or "",
    )
    return Claimed(
        leased.execution_id,
        lease_id,
        leased.lease_epoch,
        index,
        attempt_id,
        leased.attempt_type or AttemptType.INITIAL,
        leased.lease_expires_at or 0,
        handle,
        route.execution_kind,
        route.lane_id,
        route.namespace,
        leased.priority,
        leased.created_at,
        leased.deadline_at,
        dict(leased.tags),  # a copy of its own: the image may be cached
        forked_from=leased.forked_from,
        flow_id=leased.flow_id,
    )


# --- claims whose answers may be lost ------------------------------------------------------------


class Recalled(list[Claimed]):
    """The answer to a repeated claim: what is left of the first one, even if that is nothing."""


class GiveBack(Command[GivenBack], frozen=True, kw_only=True):
    """Nobody got the answer to a claim: its leases go back."""

    worker_instance_id: str
    claim_id: str

    def needs(self, need: Needs) -> None:
        """The store's clock."""
        need.catalog = True


def digest_of(command: Claim) -> str:
    """Tells claims apart that ask for other things."""
    offer = command.offer
    asked = (
        *(offer.namespaces, offer.lanes, offer.capabilities, offer.kinds),
        *(command.worker_id, command.lease_ttl_ms, command.limit),
    )
    return hashlib.sha256(to_json(asked)).hexdigest()[:32]


def refuse_reused(known: ClaimRow, command: Claim) -> Refused | None:
    """The refusal of another claim under the same id."""
    if known.digest == digest_of(command):
        return None
    detail = f"claim_id: {known.claim_id!s:.64} was used for a claim with other parameters"
    return Refused(ClaimIdReused, detail, {"field": "claim_id"})


def noted(command: Claim, claimed: Iterable[Claimed], at: Moment) -> ClaimRow:
    """What a repetition has to know."""
    return ClaimRow(
        command.worker_instance_id,
        command.claim_id or "",
        digest_of(command),
        {each.execution_id: (each.lease_epoch, each.handle.kind.value) for each in claimed},
        0,
        at.now + command.lease_ttl_ms,
    )


def still_held(execution: Execution, row: ClaimRow, now: int) -> bool:
    """Whether a lease of a claim is in force."""
    return (
        execution.is_leased
        and execution.worker_instance_id == row.worker_instance_id
        and execution.lease_epoch == row.leases[execution.execution_id][0]
        and now < (execution.lease_expires_at or 0)
    )


def recalled(execution: Execution, row: ClaimRow, lease_ttl_ms: int, backend: str) -> Claimed:
    """The same reply again; the engine adds the body."""
    kind = HandleKind(row.leases[execution.execution_id][1])
    return claimed_reply(execution, lease_ttl_ms, backend, kind)
