"""The timeline of a run: one bar, each kind of time in its own pattern, and an axis below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from flowfabric.model.times import span as told
from flowfabric.server.ui.draw.markup import element
from flowfabric.server.ui.showing import iso
from flowfabric.server.ui.views.spans import FAILED, RUNNING, WORDS, Span, folded

WIDTH: Final = 1_000
SPANS_MAX: Final = 60
ELEMENTS_MAX: Final = 300
_TOP, _BAR, _HEIGHT = 4, 30, 58
_LEAST: Final = 3.0  # so wide is what is shortest, or nobody would see it
_LETTER: Final = 6.4  # the width of a letter at the size of labels
_TICKS: Final = 5


def timeline(spans: Sequence[Span], *, title: str, href: str = "") -> Markup:
    """The drawing; empty where nothing has lasted yet. `href`: of the page, to which the attempt
    that is clicked is added."""
    shown = folded(spans, SPANS_MAX)
    if not shown:
        return Markup("")
    begin, end = shown[0].begin, shown[-1].end
    parts: list[Markup] = [element("title", text=title), element("desc", text=described(spans))]
    for each, (at, wide) in zip(shown, places(shown), strict=True):
        parts.append(_span(each, at, wide, href))
    parts += _axis(shown, begin, end)
    return element(
        "svg",
        *parts,
        class_="timeline",
        viewBox=f"0 0 {WIDTH} {_HEIGHT}",
        role="group",
        aria_label=title,
    )


def places(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """Where each span begins and how wide it is: by its length, but none is too narrow to see."""
    whole = sum(each.ms for each in spans) or 1
    wide = [max(_LEAST, each.ms / whole * WIDTH) for each in spans]
    spare = sum(each - _LEAST for each in wide)
    room = WIDTH - _LEAST * len(spans)
    scale = room / spare if spare else 0.0
    found, at = [], 0.0
    for each in wide:
        width = _LEAST + (each - _LEAST) * scale if spare else WIDTH / len(spans)
        found.append((at, width))
        at += width
    return found


def _span(each: Span, at: float, wide: float, href: str) -> Markup:
    says = words_of(each)
    rect = element(
        "rect",
        element("title", text=says),
        class_=f"k-{each.kind}",
        x=at,
        y=_TOP,
        width=max(1.0, wide - 1),
        height=_BAR,
        rx=3,
    )
    inner = [rect]
    label = label_of(each, wide)
    if label:
        inner.append(
            element("text", text=label, class_=f"l-{each.kind}", x=at + 7, y=_TOP + _BAR / 2 + 4)
        )
    if href and each.attempt_index is not None:
        address = f"{href}&attempt={each.attempt_index}"
        return element("a", *inner, href=address, aria_label=says)
    return element("g", *inner)


def label_of(each: Span, wide: float) -> str:
    """What fits into a span, best first."""
    count = f" × {each.count}" if each.count > 1 else ""
    name = f"{each.label if each.kind in (RUNNING, FAILED) and each.label else each.kind}{count}"
    for text in (f"{name} {told(each.ms)}", name):
        if len(text) * _LETTER + 12 <= wide:
            return text
    return ""


def words_of(each: Span) -> str:
    """One span in words."""
    count = f" ({each.count} spans)" if each.count > 1 else ""
    about = f": {each.label}" if each.label else ""
    ended = f", {each.outcome.replace('_', ' ')}" if each.outcome else ""
    return f"{WORDS.get(each.kind, each.kind)}{count}{about}{ended}, {told(each.ms)}"


def described(spans: Sequence[Span]) -> str:
    """All of it in a sentence."""
    return "; ".join(words_of(each) for each in folded(spans, 12))


def _axis(spans: Sequence[Span], begin: int, end: int) -> list[Markup]:
    """Instants where a span begins, as many as there is room for."""
    found: list[Markup] = []
    last = -WIDTH / _TICKS
    marks = [
        *((each.begin, at) for each, (at, _) in zip(spans, places(spans), strict=True)),
        (end, float(WIDTH)),
    ]
    for instant, at in marks:
        is_end = instant == end
        if at - last < WIDTH / _TICKS or (not is_end and WIDTH - at < WIDTH / _TICKS):
            continue
        last = at
        long = end - begin > 20 * 3_600_000
        text = iso(instant)[5:16].replace("T", " ") if long else iso(instant)[11:19]
        anchor = "end" if is_end else "start" if at == 0 else "middle"
        found.append(
            element("text", text=text, class_="tick", x=at, y=_HEIGHT - 6, text_anchor=anchor)
        )
    return found
