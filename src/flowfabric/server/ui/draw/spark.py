"""Small bars of what happened minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

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


class Part(NamedTuple):
    """A part of a column, in the colour of a state."""

    value: int
    tone: str


def columns(
    stacks: Sequence[Sequence[Part]],
    *,
    links: Sequence[str],
    titles: Sequence[str],
    label: str,
    height: int = 96,
) -> Markup:
    """A column of parts for each instant, each a link. At most five elements a column."""
    most = max((sum(part.value for part in stack) for stack in stacks), default=0) or 1
    drawn = []
    for at, stack in enumerate(stacks):
        x, y = at * 12, float(height)
        parts = []
        for value, tone in stack:
            if value <= 0:
                continue
            tall = max(1.5, value / most * (height - 4))
            y -= tall
            parts.append(
                f'<rect class="b-{escape(tone)}" x="{x + 1}" y="{y:.1f}" width="10"'
                f' height="{tall:.1f}"/>'
            )
        drawn.append(
            Markup('<a href="{}" aria-label="{}" tabindex="-1"><title>{}</title>').format(
                links[at], titles[at], titles[at]
            )
            + Markup(f'<rect class="b-none" x="{x}" width="12" height="{height}"/>')
            + Markup("".join(parts))  # noqa: S704 - numbers and escaped words
            + Markup("</a>")
        )
    width = max(1, len(stacks)) * 12
    opening = Markup(
        '<svg class="columns" viewBox="0 0 {} {}" preserveAspectRatio="none" role="group"'
        ' aria-label="{}">'
    ).format(width, height, label)
    return opening + Markup("").join(drawn) + Markup("</svg>")
