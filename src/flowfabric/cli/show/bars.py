"""Bars that show usage against limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from flowfabric.cli.show.terminal import Painted

_CELLS: Final = 20
_PLAIN: Final = "#=.|"  # used, reserved, free, the soft limit
_DRAWN: Final = "█▒·│"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """How much of one limit is used and reserved; a limit of 0 means no limit."""

    used: int
    held: int = 0
    hard: int = 0
    soft: int = 0

    @property
    def is_full(self) -> bool:
        """Whether new work has to wait."""
        return 0 < self.hard <= self.used + self.held

    @property
    def is_over_soft(self) -> bool:
        """Whether to warn."""
        return 0 < self.soft < self.used

    @property
    def style(self) -> str:
        """Red when full, yellow over the soft limit."""
        return "red" if self.is_full else "yellow" if self.is_over_soft else "green"


def bar(gauge: Gauge, *, drawn: bool = False, cells: int = _CELLS) -> str:
    """Used, reserved and free cells with a mark at the soft limit; empty without a limit.

    >>> bar(Gauge(used=400, held=100, hard=1000, soft=800), cells=10)
    '[####=...|.]  50%'
    """
    scale = gauge.hard or gauge.soft
    if not scale:
        return ""
    used, held, free, mark = _DRAWN if drawn else _PLAIN
    committed = gauge.used + gauge.held
    filled = _cells(committed, scale, cells)
    solid = min(_cells(gauge.used, scale, cells), filled - (1 if gauge.held and filled > 1 else 0))
    drawing = list(used * solid + held * (filled - solid) + free * (cells - filled))
    if 0 < gauge.soft < scale:
        drawing[gauge.soft * cells // scale] = mark
    return f"[{''.join(drawing)}] {committed * 100 // scale:3d}%"


def _cells(amount: int, scale: int, cells: int) -> int:
    """A small amount still gets a cell, and only a full bar looks full."""
    if amount <= 0:
        return 0
    return min(cells, max(1, amount * cells // scale))


def painted(gauge: Gauge, *, drawn: bool) -> Painted:
    """A bar for a table cell, in its colour."""
    return Painted(bar(gauge, drawn=drawn), gauge.style)
