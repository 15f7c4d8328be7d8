"""Retries with another input: new executions, linked to the one that has ended."""

from __future__ import annotations

from collections.abc import Mapping

from flowfabric import limits
from flowfabric.api.operation import Kind, Request, Scope, UnsafeRequest, operation
from flowfabric.api.page import Page
from flowfabric.errors import (
    ExecutionNotTerminal,
    IdempotencyConflict,
    InvalidCursor,
    LaneClosed,
    NotFound,
    PayloadTooLarge,
)
from flowfabric.model.results import ExecutionSnapshot
from flowfabric.model.retry import Retried


@operation(
    "retry_with_input",
    Kind.WRITE,
    Scope.OPERATE,
    errors=(NotFound, ExecutionNotTerminal, IdempotencyConflict, LaneClosed, PayloadTooLarge),
)
class RetryWithInput(UnsafeRequest[Retried], frozen=True, kw_only=True):
    """A new execution of the same work as one that has ended, with another input.

    The old one stays as it is; the new one says `retried_from`. `input_payload`: the whole
    input, with the encoding of the old one unless `payload_encoding` says another; or
    `arguments`: JSON by the names of arguments that differ. It begins without a journal, in
    no flow, at once. A repeated `idempotency_key` answers the first one.
    """

    execution_id: str
    input_payload: bytes | None = None
    payload_encoding: str | None = None
    arguments: Mapping[str, bytes] = {}
    reason: str = ""
    idempotency_key: str | None = None


@operation("list_retries", Kind.READ, Scope.READ, errors=(InvalidCursor,))
class ListRetries(Request[Page[ExecutionSnapshot]], frozen=True, kw_only=True):
    """The retries of an execution with another input that are still there, oldest first."""

    execution_id: str
    cursor: str | None = None
    limit: int = limits.PAGE_DEFAULT
