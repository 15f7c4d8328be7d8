"""Small bars of what happened minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from flowfabric.server.ui.views.overview import Column

_STEP = 4  # the width of a bar with the gap behind it
_BAR = 3


def spark(values: Sequence[int], label: str, *, tone: str = "active", height: int = 20) -> Markup:
    """A bar for each value, in one path. `label` is its equivalent in words.

    >>> spark([1, 0, 2], "runs a minute").count("M")
    2
    """
    most = max(values, default=0) or 1
    path = "".join(
        f"M{at * _STEP} {height}V{_top(value, most, height)}h{_BAR}V{height}z"
        for at, value in enumerate(values)
        if value > 0
    )
    width = max(1, len(values)) * _STEP
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><title>{}</title><path class="b-{}" d="{}"/></svg>'
    ).format(width, height, label, label, tone, path)


def _top(value: int, most: int, height: int) -> int:
    """What is not nothing is seen."""
    return height - max(1, round(value / most * (height - 1)))


_TONES: Final = (("succeeded", "completed"), ("failed", "failed"), ("other", "skipped"))
_WIDE: Final = 12
_HEIGHT: Final = 96


def minute_chart(minutes: Sequence[Column], prefix: str = "") -> Markup:
    """A column for each minute, each a link. At most six elements a column."""
    most = max((_total(each) for each in minutes), default=0) or 1
    drawn = [_column(each, at * _WIDE, most, prefix) for at, each in enumerate(minutes)]
    opening = Markup(
        '<svg class="columns" viewBox="0 0 {} {}" preserveAspectRatio="none" role="group"'
        ' aria-label="What ended, minute by minute">'
    ).format(max(1, len(minutes)) * _WIDE, _HEIGHT)
    return opening + Markup().join(drawn) + Markup("</svg>")


def _total(minute: Column) -> int:
    return minute.succeeded + minute.failed + minute.other


def _column(minute: Column, x: int, most: int, prefix: str) -> Markup:
    y, parts = float(_HEIGHT), Markup()
    for name, tone in _TONES:
        value = getattr(minute, name)
        if value > 0:
            tall = max(1.5, value / most * (_HEIGHT - 4))
            y -= tall
            rect = Markup('<rect class="b-{}" x="{}" y="{:.1f}" width="10" height="{:.1f}"/>')
            parts += rect.format(tone, x + 1, y, tall)
    return Markup(
        '<a href="{}" tabindex="-1" aria-label="{}"><title>{}</title>'
        '<rect class="b-none" x="{}" width="{}" height="{}"/>{}</a>'
    ).format(prefix + minute.href, minute.title, minute.title, x, _WIDE, _HEIGHT, parts)
