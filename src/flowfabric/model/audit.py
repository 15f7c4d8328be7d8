"""The audit trail: who did what, when, and from where; and what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowfabric.model.columns import Counter, Instant
from flowfabric.model.record import Record


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
