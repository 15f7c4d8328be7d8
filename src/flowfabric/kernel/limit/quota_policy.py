"""Quota policies: put in force, and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.errors import LimitConflict
from flowfabric.kernel.command import Command, Needs
from flowfabric.kernel.decision import Decision, Moment, refuse
from flowfabric.kernel.limit.budget_policy import other_revision
from flowfabric.kernel.limit.quota import no_quota
from flowfabric.model.event import OperatorEvent, OperatorEventType
from flowfabric.model.quota import QuotaAlreadySatisfied, QuotaCreated, QuotaPolicy, QuotaUpdated
from flowfabric.model.record import replace


class CreateQuota(Command[QuotaCreated | QuotaAlreadySatisfied], frozen=True, kw_only=True):
    """Put a policy in force."""

    quota_policy_id: str
    window_seconds: int
    max_requests_per_window: int
    max_concurrent: int
    jitter_ms: int
    namespace: str | None = None

    def needs(self, need: Needs) -> None:
        """The policy with all its gates."""
        need.catalog = need.is_limited = True
        need.policies.add((self.quota_policy_id,))


class UpdateQuota(Command[QuotaUpdated], frozen=True, kw_only=True):
    """Change limits; what is absent stays."""

    quota_policy_id: str
    window_seconds: int | None
    max_requests_per_window: int | None
    max_concurrent: int | None
    jitter_ms: int | None
    expected_revision: int | None = None

    def needs(self, need: Needs) -> None:
        """The policy with all its gates."""
        need.catalog = need.is_limited = True
        need.policies.add((self.quota_policy_id,))


def create_quota(
    policy: QuotaPolicy | None, command: CreateQuota, at: Moment
) -> Decision[QuotaCreated | QuotaAlreadySatisfied]:
    """Idempotent; other limits under the same id are a conflict."""
    wanted = (
        command.window_seconds,
        command.max_requests_per_window,
        command.max_concurrent,
        command.jitter_ms,
    )
    key = command.quota_policy_id
    if policy is None:
        made = QuotaPolicy(key, *wanted, at.now, at.now, namespace=command.namespace)
        audit = _audit(made, OperatorEventType.QUOTA_CREATED, at)
        return Decision(QuotaCreated(key), events=(audit,), saves=(made,))
    is_same_owner = policy.namespace == command.namespace
    if _numbers(policy) == wanted and is_same_owner:
        return Decision(QuotaAlreadySatisfied(key))
    detail = (
        f"quota policy {key} exists with {'other limits' if is_same_owner else 'another owner'}"
    )
    return refuse(LimitConflict, detail, field="quota_policy_id")


def _numbers(policy: QuotaPolicy) -> tuple[int, int, int, int]:
    return (
        policy.requests_per_window_seconds,
        policy.max_requests_per_window,
        policy.active_concurrency_cap,
        policy.jitter_ms,
    )


def update_quota(
    policy: QuotaPolicy | None, command: UpdateQuota, at: Moment
) -> Decision[QuotaUpdated]:
    """The new limits hold for the next admission; nothing that runs is stopped."""
    if policy is None:
        return Decision(no_quota(command.quota_policy_id))
    if refusal := other_revision(policy.revision, command.expected_revision):
        return Decision(refusal)
    asked = (
        command.window_seconds,
        command.max_requests_per_window,
        command.max_concurrent,
        command.jitter_ms,
    )
    window, starts, slots, jitter = (
        old if new is None else new for old, new in zip(_numbers(policy), asked, strict=True)
    )
    changed = replace(
        policy,
        requests_per_window_seconds=window,
        max_requests_per_window=starts,
        active_concurrency_cap=slots,
        jitter_ms=jitter,
        updated_at=at.now,
        revision=policy.revision + 1,
    )
    audit = _audit(changed, OperatorEventType.QUOTA_UPDATED, at, {"before": _told(policy)})
    return Decision(
        QuotaUpdated(policy.quota_policy_id, changed.revision), events=(audit,), saves=(changed,)
    )


def _audit(
    policy: QuotaPolicy,
    event_type: OperatorEventType,
    at: Moment,
    before: Mapping[str, Any] | None = None,
) -> OperatorEvent:
    details = {**(before or {}), "after": _told(policy)}
    return OperatorEvent(policy.quota_policy_id, event_type, details, "", {}, at.now)


def _told(policy: QuotaPolicy) -> dict[str, int]:
    """Limits, by the names under which they are set."""
    names = ("window_seconds", "max_requests_per_window", "max_concurrent", "jitter_ms")
    return dict(zip(names, _numbers(policy), strict=True))
