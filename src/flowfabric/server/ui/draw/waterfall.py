"""The waterfall of a flow: a bar for each node or fold, from when it could begin to its end."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from flowfabric.model.marks import MARKS
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState
from flowfabric.model.times import span
from flowfabric.server.ui.draw.graph import opening
from flowfabric.server.ui.draw.text import clipped, words

WIDTH: Final = 1_040
_LABEL: Final = 236
_RIGHT: Final = 70  # for how long it took
_ROW: Final = 24
_TOP: Final = 28
_BAR: Final = 12
_TICKS: Final = 6
# Lengths between two ticks that people read easily.
_STEPS_MS: Final = tuple(
    unit * many
    for unit, manys in (
        (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1_000, (1, 2, 5, 10, 15, 30)),
        (60_000, (1, 2, 5, 10, 15, 30)),
        (3_600_000, (1, 2, 4, 6, 12)),
        (86_400_000, (1, 2, 5, 10, 30, 60, 120, 365, 1_000, 5_000)),
    )
    for many in manys
)


class Bar(Record, frozen=True, kw_only=True):
    """One row. `began_at`: None while it waits; `ended_at`: None while it has not ended."""

    name: str
    state: PublicState
    tells: str
    href: str
    created_at: int
    began_at: int | None
    ended_at: int | None
    is_critical: bool = False
    is_faint: bool = False
    is_at: bool = False


class Waterfall(Record, frozen=True, kw_only=True):
    """All rows, and the instant up to which they are drawn."""

    title: str
    desc: str
    bars: tuple[Bar, ...]
    now: int


def draw_waterfall(waterfall: Waterfall, *, prefix: str = "", zoom: int = 100) -> str:
    """The whole drawing, as markup. `prefix`: before the addresses; `zoom`: in percent, or 0 for as
    wide as there is room."""
    bars = waterfall.bars
    first = min((each.created_at for each in bars), default=waterfall.now)
    ends = [waterfall.now if each.ended_at is None else each.ended_at for each in bars]
    scale = _Scale(first, max(max(ends, default=first), first + 1))
    height = _TOP + _ROW * len(bars) + 8
    return "".join(
        (
            opening(WIDTH, height, zoom),
            f'<title id="graph-title">{words(waterfall.title)}</title>',
            f'<desc id="graph-desc">{words(waterfall.desc)}</desc>',
            *_axis(scale, height),
            *(_row(bar, at, scale, waterfall.now, prefix) for at, bar in enumerate(bars)),
            "</svg>",
        )
    )


class _Scale:
    """Where an instant stands."""

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.length = last - first
        self._per_ms = (WIDTH - _LABEL - _RIGHT) / self.length

    def x(self, at: int) -> float:
        """From the left."""
        inside = min(max(at - self.first, 0), self.length)
        return round(_LABEL + inside * self._per_ms, 1)

    def step(self) -> int:
        """The length between two ticks."""
        least = self.length / _TICKS
        return next((each for each in _STEPS_MS if each >= least), _STEPS_MS[-1])


def _axis(scale: _Scale, height: int) -> Iterable[str]:
    """A line for each tick, all in one path, and its time since the beginning."""
    step = scale.step()
    ticks = range(0, scale.length + 1, step)
    lines = "".join(f"M{scale.x(scale.first + at):g} {_TOP - 6}V{height - 6}" for at in ticks)
    yield f'<path class="g-axis" d="{lines}" stroke-width="1"/>'
    for at in ticks:
        text = "0" if at == 0 else f"+{span(at)}"
        yield (
            f'<text class="g-line" x="{scale.x(scale.first + at):g}" y="14" font-size="11"'
            f' text-anchor="middle">{text}</text>'
        )


def _row(bar: Bar, at: int, scale: _Scale, now: int, prefix: str) -> str:
    y = _TOP + _ROW * at
    middle = y + (_ROW - _BAR) // 2
    end = now if bar.ended_at is None else bar.ended_at
    began = end if bar.began_at is None else bar.began_at
    names = ["g-row", f"t-{bar.state.value}"]
    names += ["g-critical"] if bar.is_critical else []
    names += ["g-faint"] if bar.is_faint else []
    names += ["g-at"] if bar.is_at else []
    start, turn, stop = scale.x(bar.created_at), scale.x(began), scale.x(end)
    name = escape(clipped(bar.name, _LABEL - 40, 13))
    parts = [
        f'<a class="{" ".join(names)}" href="{words(prefix + bar.href)}">',
        f"<title>{words(bar.tells)}</title>",
        f'<text x="6" y="{y + 16}" fill="currentColor" font-size="14">{MARKS[bar.state]}</text>',
        f'<text class="g-name" x="26" y="{y + 16}" font-size="13">{name}</text>',
    ]
    if turn - start >= 1:
        parts.append(
            f'<rect class="g-wait" x="{start:g}" y="{middle + 4}" width="{turn - start:.1f}"'
            f' height="{_BAR - 8}" rx="2"/>'
        )
    if bar.began_at is not None:
        parts.append(
            f'<rect class="b-{bar.state.value}" x="{turn:g}" y="{middle}"'
            f' width="{max(stop - turn, 2):.1f}" height="{_BAR}" rx="3"/>'
        )
        parts.append(
            f'<text class="g-line" x="{max(stop, turn + 2) + 6:g}" y="{y + 16}"'
            f' font-size="11">{span(end - bar.began_at)}</text>'
        )
    return "".join((*parts, "</a>"))
