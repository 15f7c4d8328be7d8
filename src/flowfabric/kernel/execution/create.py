"""Create: record new work, once per idempotency key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from flowfabric.errors import InvalidInput
from flowfabric.kernel.command import ExecutionCommand, Needs
from flowfabric.kernel.decision import Decision, Moment, New, Refused, refuse
from flowfabric.kernel.execution.keys import created_before
from flowfabric.kernel.execution.transition import wait_until, without_block
from flowfabric.kernel.place.lanes import refuse_entry
from flowfabric.model.bounds import UNBOUNDED, Bounds
from flowfabric.model.execution import Body, Execution, IdempotencyRecord
from flowfabric.model.policy import ExecutionPolicy
from flowfabric.model.record import replace, to_json
from flowfabric.model.results import Created, CreateResult, Duplicate
from flowfabric.model.route import Catalog, Route
from flowfabric.model.state import AttemptState, BlockingReason
from flowfabric.model.ties import UNTIED, Ties

_FIRST_ATTEMPT: Final = AttemptState.PENDING_FIRST_ATTEMPT
_DELAY: Final = BlockingReason.WAITING_FOR_DELAY


class CreateExecution(ExecutionCommand[CreateResult], frozen=True, kw_only=True):
    """Record new work. The engine mints the id before the first try."""

    route: Route
    priority: int
    policy: ExecutionPolicy
    body: Body
    tags: Mapping[str, str]
    delay_until: int | None = None
    deadline_at: int | None = None
    fingerprint: bytes = b""
    bounds: Bounds = UNBOUNDED
    flow_id: str | None = None
    open_group: int = 0  # 1: it waits for other members of its flow
    mailboxes: tuple[tuple[str, str | None], ...] = ()  # with the schemas of their messages
    ties: Ties = UNTIED
    is_promised: bool = False  # before: its lane takes it in, whatever became of that since

    @property
    def idempotency_key(self) -> str | None:
        """The key that makes a repeated create return the first one's id."""
        return self.body.idempotency_key

    def needs(self, need: Needs) -> None:
        """The lanes; with a key, what was created under it."""
        need.catalog = True
        if self.idempotency_key is not None:
            need.keys.add((self.route.namespace, self.idempotency_key))
            need.executions.add(self.execution_id)


def fingerprint_of(
    route: Route,
    priority: int,
    policy: ExecutionPolicy,
    body: Body,
    tags: Mapping[str, str],
    bounds: Bounds = UNBOUNDED,
    ties: Ties = UNTIED,
) -> bytes:
    """A digest of everything that must be equal for two creates to be the same request.

    The start time is left out: an instant differs on every call.
    """
    digest = hashlib.sha256()
    timeless = replace(policy, delay_until=None, delay_ms=None)
    parts: tuple[object, ...] = (
        route,
        priority,
        timeless,
        tags,
        body.payload_encoding,
        body.creator_identity,
    )
    if bounds is not UNBOUNDED:
        parts = (*parts, bounds)
    if ties is not UNTIED:
        parts = (*parts, ties)
    for part in parts:
        digest.update(to_json(part))
        digest.update(b"\x00")
    digest.update(body.payload)
    return digest.digest()


def create(
    execution: Execution | None,
    idempotency: IdempotencyRecord | None,
    catalog: Catalog,
    command: CreateExecution,
    at: Moment,
) -> Decision[CreateResult]:
    """A new waiting (or delayed) execution; the same key and content returns the first."""
    if execution is not None:  # our own earlier try committed and its reply was lost
        return Decision(Created(execution.execution_id, execution.public_state))
    first = created_before(idempotency, command.fingerprint, at)
    if first is not None:
        index = None if idempotency is None else idempotency.batch_index
        return Decision(first if isinstance(first, Refused) else Duplicate(first, index))
    if not command.is_promised and (refusal := refuse_entry(command.route.lane_id, catalog)):
        return Decision(refusal)
    bounds = catalog.bounds_for(command.route, command.bounds, command.flow_id)
    if bounds.concurrency_key is not None and bounds.quota_policy_id is None:
        if not command.is_promised:
            detail = "concurrency_key: needs a quota_policy_id, here or on the lane"
            return refuse(InvalidInput, detail, field="concurrency_key")
        bounds = replace(bounds, concurrency_key=None)  # the lane has lost its quota since
    new = _new_execution(command, bounds, catalog.lane_aging_ms(command.route.lane_id), at)
    return Decision(
        Created(new.execution_id, new.public_state),
        new,
        new=New(command.body, _remember_key(command, at)),
    )


def _new_execution(
    command: CreateExecution, bounds: Bounds, aging_ms: int, at: Moment
) -> Execution:
    policy, now = command.policy, at.now
    eligible_at = command.delay_until if command.delay_until is not None else policy.delay_until
    if eligible_at is None:  # a delay of a blocked member begins when its dependencies have ended
        eligible_at = now if command.open_group else now + (policy.delay_ms or 0)
    state, detail = wait_until(eligible_at, _FIRST_ATTEMPT, now, _DELAY)
    deadline_at, relative = command.deadline_at, policy.timeout_policy.execution_deadline_ms
    if relative is not None:
        deadline_at = min(
            now + relative, deadline_at if deadline_at is not None else now + relative
        )
    new = Execution(
        command.execution_id,  # by position: more than fifteen keywords at once are slow
        command.route,
        state,
        priority=command.priority,
        created_at=now,
        eligible_at=eligible_at,
        last_transition_at=now,
        last_mutation_at=now,
        blocking_detail=detail,
        deadline_at=deadline_at,
        aging_ms=aging_ms,
        policy=policy,
        tags=command.tags,
        bounds=bounds,
        flow_id=command.flow_id,
        open_group=command.open_group,
    )
    if command.ties is not UNTIED:
        new = replace(new, ties=command.ties)
    if not command.open_group:
        return new
    state, detail = without_block(new, now)
    return replace(new, state=state, blocking_detail=detail)


def _remember_key(command: CreateExecution, at: Moment) -> IdempotencyRecord | None:
    if command.idempotency_key is None:
        return None
    return IdempotencyRecord(
        command.route.namespace,
        command.idempotency_key,
        command.execution_id,
        command.fingerprint,
        at.now + command.policy.dedup_window_ms,
    )
