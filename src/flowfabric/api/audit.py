"""The audit trail: what people and programs did to the work of others, and what was refused."""

from __future__ import annotations

from collections.abc import Sequence

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, operation
from flowfabric.api.page import Page
from flowfabric.errors import InvalidCursor
from flowfabric.model.audit import AuditEntry, Refusals


@operation("list_audit", Kind.READ, Scope.ADMIN, errors=(InvalidCursor,))
class ListAudit(Request[Page[AuditEntry]], frozen=True, kw_only=True):
    """The audit trail, newest first.

    `since` and `until`: instants, the second one is not a part of it. `namespaces`: only what
    belongs to one of these.
    """

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: int | None = None
    until: int | None = None
    namespaces: Sequence[str] | None = None
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT


@operation("record_refusals", Kind.WRITE, Scope.ADMIN, is_local=True)
class RecordRefusals(Request[int], frozen=True, kw_only=True):
    """Add calls that were refused to the audit trail; answers how many entries they are."""

    refusals: Sequence[Refusals]
