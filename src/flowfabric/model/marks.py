"""The mark of each state: the same sign on a terminal, in a graph and on a page."""

from __future__ import annotations

from typing import Final

from flowfabric.model.state import PublicState

MARKS: Final = {
    PublicState.WAITING: "○",
    PublicState.DELAYED: "◔",
    PublicState.RATE_LIMITED: "◑",
    PublicState.WAITING_CHILDREN: "◇",
    PublicState.ACTIVE: "▶",
    PublicState.SUSPENDED: "‖",
    PublicState.COMPLETED: "✓",
    PublicState.FAILED: "✕",
    PublicState.CANCELLED: "⊘",
    PublicState.EXPIRED: "⌛",
    PublicState.SKIPPED: "↷",
}
