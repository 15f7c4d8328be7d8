"""The audit trail: who did what, when, and from where; and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record


class RequestOrigin(Record, frozen=True):
    """A request to a server: in whose name, from where, and under which id."""

    actor: str = ""
    address: str = ""
    request_id: str = ""
    namespace: str = ""  # the one that its caller is at home in, if it has only one


class Refusals(Record, frozen=True, kw_only=True):
    """Calls that were refused because of what their caller may do: alike ones of a minute.

    `action`: the route or the operation; `request_id`: of the last of them.
    """

    actor: str
    address: str
    action: str
    code: str
    request_id: str
    namespace: str
    times: int


class AuditRow(Record, frozen=True):
    """One act as it is stored. A row is written with what it tells of, and never changed."""

    occurred_at: Instant
    audit_id: str
    actor: str
    address: str
    action: str
    subject: str
    reason: str
    request_id: str
    namespace: str
    code: str  # of the refusal; empty: it was done
    times: Counter  # how many alike were gathered in it
    details: Mapping[str, Any]
    expires_at: Instant


class AuditEntry(Record, frozen=True, kw_only=True):
    """One act, or calls that were refused.

    `actor`: token:ID, user:NAME, or the name that a program beside the store gave. `address` and
    `request_id`: of the request, where one came over HTTP. `action`: the operation or, where one
    tells of more, its event. `code`: of a refusal; empty: it was done. `times`: how many refusals
    of a minute it stands for. `details`: such as settings before and after.
    """

    occurred_at: int
    actor: str
    address: str
    action: str
    subject: str
    reason: str
    request_id: str
    namespace: str
    code: str
    times: int
    details: Mapping[str, Any]


def shown_entry(row: AuditRow) -> AuditEntry:
    """A row as listings show it."""
    return AuditEntry(
        occurred_at=row.occurred_at,
        actor=row.actor,
        address=row.address,
        action=row.action,
        subject=row.subject,
        reason=row.reason,
        request_id=row.request_id,
        namespace=row.namespace,
        code=row.code,
        times=row.times,
        details=row.details,
    )
