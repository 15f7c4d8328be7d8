"""Spans of handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flowfabric.sdk.worker.held import Held
from flowfabric.sdk.worker.reports import Failed, Postponed, Report, Succeeded
from flowfabric.tracing.spans import Spans


async def run_in_span(
    found: Spans, held: Held, run: Callable[[Held], Awaitable[Report | None]]
) -> Report | None:
    """Run an async handler in the span of its attempt."""
    with found.process(held.claimed, held.desk.now_ms(), held.claimed.flow_id) as span:
        report = await run(held)
        found.ended(span, *_outcome(report))
    return report


def run_sync_in_span(
    found: Spans, held: Held, run: Callable[[Held], Report | None]
) -> Report | None:
    """Run a sync handler in the span of its attempt, in its thread."""
    with found.process(held.claimed, held.desk.now_ms(), held.claimed.flow_id) as span:
        report = run(held)
        found.ended(span, *_outcome(report))
    return report


def _outcome(report: Report | None) -> tuple[str, str | None]:
    """How a run ended, and the category of a failure."""
    match report:
        case Succeeded():
            return "completed", None
        case Failed():
            return "failed", report.category or report.failure_class.value
        case Postponed():
            return "postponed", None
        case None:
            return "left", None  # it waits, or its lease is gone
