"""The audit trail as a page: who did what, when, from where, to what, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flowfabric.model.audit import AuditEntry
from flowfabric.model.record import Record, to_json

PATH = "/ui/audit"
WORDS = ("actor", "action", "subject", "since", "until")


class AuditLine(Record, frozen=True, kw_only=True):
    """One act, or refusals that were gathered. `details`: as JSON, such as before and after."""

    occurred_at: int
    actor: str
    address: str
    action: str
    subject: str
    reason: str
    request_id: str
    namespace: str
    refused: str
    times: int
    details: str


class Audit(Record, frozen=True, kw_only=True):
    """The page."""

    title: str = "Audit"
    rows: tuple[AuditLine, ...]
    given: Mapping[str, str]
    next: str | None
    export: str


def audit_of(
    entries: Iterable[AuditEntry], given: Mapping[str, str], *, next_page: str | None, export: str
) -> Audit:
    """A page of the trail, newest first."""
    return Audit(rows=tuple(map(_line, entries)), given=given, next=next_page, export=export)


def _line(entry: AuditEntry) -> AuditLine:
    return AuditLine(
        occurred_at=entry.occurred_at,
        actor=entry.actor or "this machine",
        address=entry.address,
        action=entry.action,
        subject=entry.subject,
        reason=entry.reason,
        request_id=entry.request_id,
        namespace=entry.namespace,
        refused=entry.code,
        times=entry.times,
        details=to_json(dict(entry.details)).decode() if entry.details else "",
    )
