"""`ff doctor --repair`: every repair there is, page by page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from flowfabric.api.backend import EngineBackend
from flowfabric.model.repair import Correction, Repaired


async def repair_all(engine: EngineBackend) -> list[Correction]:
    """Set right what rows prove, everywhere; what that was."""
    return [
        *await _every(lambda cursor: engine.reconcile_flow_counters(cursor=cursor)),
        *await _every(lambda cursor: engine.reconcile_budget_counters(cursor=cursor)),
        *await _every(lambda cursor: engine.reconcile_quota_counters(cursor=cursor)),
        *await _every(lambda cursor: engine.reconcile_lines(cursor=cursor)),
    ]


async def _every(ask: Callable[[str | None], Awaitable[Repaired]]) -> list[Correction]:
    page = await ask(None)
    found = [*page.corrections]
    while page.next_cursor is not None:
        page = await ask(page.next_cursor)
        found += page.corrections
    return found
