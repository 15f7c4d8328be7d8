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
        ' aria-label="{}"><title>{}</title><rect class="b-rest" y="{}" width="{}" height="1"/>'
        '<path class="b-{}" d="{}"/></svg>'
    ).format(width, height, label, label, height - 1, width, tone, path)


def _top(value: int, most: int, height: int) -> int:
    """What is not nothing is seen."""
    return height - max(1, round(value / most * (height - 1)))


_TONES: Final = (("succeeded", "completed"), ("failed", "failed"), ("other", "skipped"))
_WIDE: Final = 12
_HEIGHT: Final = 96


def minute_chart(minutes: Sequence[Column], prefix: str = "") -> Markup:
    """A column for each minute, each a link: a path for each outcome, and the links above them."""
    wide = max(1, len(minutes)) * _WIDE
    opening = Markup(
        '<svg class="columns" viewBox="0 0 {} {}" preserveAspectRatio="none" role="group"'
        ' aria-label="What ended, minute by minute"><rect class="b-rest" y="{}" width="{}"'
        ' height="1"/>'
    ).format(wide, _HEIGHT, _HEIGHT - 1, wide)
    links = [_link(each, at * _WIDE, prefix) for at, each in enumerate(minutes)]
    return opening + _outcomes(minutes) + Markup().join(links) + Markup("</svg>")


def _outcomes(minutes: Sequence[Column]) -> Markup:
    """Outcomes stand upon each other; what is not nothing is seen."""
    most = max((each.succeeded + each.failed + each.other for each in minutes), default=0) or 1
    feet = [float(_HEIGHT)] * len(minutes)
    drawn = Markup()
    for name, tone in _TONES:
        path = []
        for at, each in enumerate(minutes):
            if (value := getattr(each, name)) > 0:
                tall = max(1.5, value / most * (_HEIGHT - 4))
                path.append(f"M{at * _WIDE + 1} {feet[at]:.1f}v-{tall:.1f}h10v{tall:.1f}z")
                feet[at] -= tall
        drawn += Markup('<path class="b-{}" d="{}"/>').format(tone, "".join(path))
    return drawn


def _link(minute: Column, x: int, prefix: str) -> Markup:
    return Markup(
        '<a href="{}" tabindex="-1" aria-label="{}"><title>{}</title>'
        '<rect class="b-none" x="{}" width="{}" height="{}"/></a>'
    ).format(prefix + minute.href, minute.title, minute.title, x, _WIDE, _HEIGHT)
