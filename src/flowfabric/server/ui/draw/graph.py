"""The graph of a flow: a box for each node, or for many that are alike, and wires between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from flowfabric.model.marks import MARKS
from flowfabric.model.record import Record
from flowfabric.model.state import PublicState
from flowfabric.server.ui.draw import layered
from flowfabric.server.ui.draw.layered import (
    BOX_WIDTH,
    Hop,
    Layout,
    Spot,
    heads_of,
    lay_out,
    lines_of,
)
from flowfabric.server.ui.draw.text import clipped, words

ELEMENTS_MAX: Final = 1_500
BOX_HEIGHT: Final = 44
FOLD_HEIGHT: Final = 58
_HEAD_ROOM: Final = 22  # for what stands above the columns
_NAME_SIZE: Final = 13
_LINE_SIZE: Final = 11
_TEXT_X: Final = 30
_BAR_WIDTH: Final = BOX_WIDTH - 20
_OTHERS: Final = 4  # elements of a box beside its bar
_PARTS_MAX: Final = 6  # of a bar; those that need least attention are the rest of it


class Box(Record, frozen=True, kw_only=True):
    """A node, or many. `line`: what stands below its name; `tells`: all that is known, for a
    pointer that rests on it; `parts`: how many are in each state, where they are many; `light`:
    `at` for the one that is looked at, `above` or `below` for those next to it."""

    key: str
    column: int
    name: str
    state: PublicState
    line: str
    tells: str
    href: str
    parts: tuple[tuple[PublicState, int], ...] = ()
    light: str = ""
    is_faint: bool = False
    is_critical: bool = False

    @property
    def height(self) -> int:
        """How high it is drawn."""
        return FOLD_HEIGHT if self.parts else BOX_HEIGHT

    @property
    def elements(self) -> int:
        """How many elements it is drawn with."""
        return 2 + _OTHERS + (min(len(self.parts), _PARTS_MAX) + 1 if self.parts else 0)


class Wire(Record, frozen=True, kw_only=True):
    """An edge, or all of those between two folds. `look`: one of `LOOKS`."""

    upstream: str
    downstream: str
    look: str
    is_lit: bool = False
    is_critical: bool = False


class Picture(Record, frozen=True, kw_only=True):
    """All that is drawn. `heads`: what stands above each column, by its number."""

    title: str
    desc: str
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    heads: tuple[tuple[int, str], ...] = ()


# How a wire is drawn, from the bottom to the top: of an end that nothing waits for any more, of a
# success, before an end, not applied yet, of a loss that made its downstream be skipped.
LOOKS: Final = ("spared", "met", "open", "staged", "dead")
_DASHES: Final = {"spared": "2 4", "staged": "6 4", "dead": "2 4"}
_LAYERS: Final = (*LOOKS, *(f"{look} critical" for look in LOOKS), "lit")


def draw_graph(picture: Picture, *, prefix: str = "", zoom: int = 100) -> str:
    """The whole drawing, as markup. `prefix`: before the addresses; `zoom`: in percent, or 0 for as
    wide as there is room."""
    layout = lay_out(
        [layered.Box(each.key, each.column, each.height) for each in picture.boxes],
        [(each.upstream, each.downstream) for each in picture.wires],
    )
    room = _HEAD_ROOM if picture.heads else 0
    return "".join(
        (
            opening(layout.width, layout.height + room, zoom, top=-room),
            f'<title id="graph-title">{words(picture.title)}</title>',
            f'<desc id="graph-desc">{words(picture.desc)}</desc>',
            *_heads(picture, layout),
            *_wires(picture.wires, layout),
            *(_box(each, layout.spots[each.key], prefix) for each in picture.boxes),
            "</svg>",
        )
    )


def opening(width: int, height: int, zoom: int, *, top: int = 0) -> str:
    """The first tag of a drawing."""
    box = f'viewBox="0 {top} {width} {height}" data-width="{width}" data-height="{height}"'
    size = f'width="{width * zoom // 100}" height="{height * zoom // 100}"'
    wide = 'width="100%"'
    return (
        f'<svg class="graph" id="graph" {box} {size if zoom else wide} role="group"'
        ' aria-labelledby="graph-title" aria-describedby="graph-desc" font-size="12">'
    )


def _heads(picture: Picture, layout: Layout) -> Iterable[str]:
    """What stands above the columns."""
    numbers = sorted({each.column for each in picture.boxes})
    lefts = dict(zip(numbers, layout.columns, strict=True))
    for column, text in picture.heads:
        if column in lefts:
            shown = escape(clipped(text, BOX_WIDTH, _LINE_SIZE))
            yield (
                f'<text class="g-line" x="{lefts[column]}" y="-6"'
                f' font-size="{_LINE_SIZE}">{shown}</text>'
            )


def _wires(wires: Sequence[Wire], layout: Layout) -> Iterable[str]:
    """One path for all wires that look alike, and one for their heads."""
    alike: dict[str, list[Hop]] = {}
    for wire in wires:
        hops = layout.routes.get((wire.upstream, wire.downstream), ())
        look = "lit" if wire.is_lit else wire.look
        if wire.is_critical and not wire.is_lit:
            look += " critical"
        alike.setdefault(look, []).extend(hops)
    for look in _LAYERS:
        alike_hops = alike.get(look)
        if alike_hops:
            names = " ".join(f"w-{word}" for word in look.split())
            width = 1.5 if look in LOOKS else 2.5
            dashed = _DASHES.get(look.partition(" ")[0])
            dashes = f' stroke-dasharray="{dashed}"' if dashed else ""
            yield (
                f'<path class="{names}" d="{lines_of(alike_hops)}" fill="none"'
                f' stroke="currentColor" stroke-width="{width}" stroke-linejoin="round"'
                f' stroke-linecap="round"{dashes}/>'
            )
            yield f'<path class="{names}" d="{heads_of(alike_hops)}" fill="currentColor"/>'


def _box(box: Box, spot: Spot, prefix: str) -> str:
    names = ["g-box", f"t-{box.state.value}"]
    names += [f"g-{box.light}"] if box.light else []
    names += ["g-faint"] if box.is_faint else []
    names += ["g-critical"] if box.is_critical else []
    current = ' aria-current="true"' if box.light == "at" else ""
    width = 2.5 if box.light == "at" or box.is_critical else 1.25
    room = BOX_WIDTH - _TEXT_X - 8
    name, line = clipped(box.name, room, _NAME_SIZE), clipped(box.line, room, _LINE_SIZE)
    return "".join(
        (
            f'<a class="{" ".join(names)}" href="{words(prefix + box.href)}"{current}>',
            f"<title>{words(box.tells)}</title>",
            f'<rect x="{spot.x}" y="{spot.y}" width="{spot.width}" height="{spot.height}" rx="7"'
            f' stroke="currentColor" stroke-width="{width}"/>',
            f'<text x="{spot.x + 10}" y="{spot.y + 19}" fill="currentColor"'
            f' font-size="14">{MARKS[box.state]}</text>',
            f'<text class="g-name" x="{spot.x + _TEXT_X}" y="{spot.y + 18}"'
            f' font-size="{_NAME_SIZE}">{escape(name)}</text>',
            f'<text class="g-line" x="{spot.x + _TEXT_X}" y="{spot.y + 34}"'
            f' font-size="{_LINE_SIZE}">{escape(line)}</text>',
            *_bar(box.parts, spot),
            "</a>",
        )
    )


def _bar(parts: Sequence[tuple[PublicState, int]], spot: Spot) -> Iterable[str]:
    """How many are in each state, as parts of a line at the foot of the box; the smallest can be
    seen, too."""
    total = sum(count for _, count in parts)
    if not total:
        return
    x, y = spot.x + 10.0, spot.y + spot.height - 15
    yield f'<rect class="b-rest" x="{spot.x + 10}" y="{y}" width="{_BAR_WIDTH}" height="6" rx="3"/>'
    room = _BAR_WIDTH - 3 * len(parts)
    for state, count in parts[:_PARTS_MAX]:
        width = 3 + room * count / total
        yield (
            f'<rect class="b-{state.value}" x="{x:g}" y="{y}" width="{round(width, 1):g}"'
            ' height="6"/>'
        )
        x = round(x + width, 1)
