"""A graph drawn with lines, one row for each node, upstreams above those that wait for them.

● build
├─● unit
├─│─● integration
╰─│─│─○ lint
  ╰─┴─○ deploy
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

T = TypeVar("T")

LANES_MAX: Final = 16  # more parallel lines than a reader can follow


def folded(
    items: Sequence[T],
    edges: Iterable[tuple[str, str]],
    *,
    name: Callable[[T], str],
    alike: Callable[[T], Hashable],
    least: int,
) -> list[list[T]]:
    """Items that are alike, with the same upstreams and downstreams, grouped; fewer than `least` of
    them stay single."""
    above: defaultdict[str, set[str]] = defaultdict(set)
    below: defaultdict[str, set[str]] = defaultdict(set)
    for upstream, downstream in edges:
        above[downstream].add(upstream)
        below[upstream].add(downstream)
    bundles: dict[Any, list[T]] = {}
    for item in items:
        key = name(item)
        place = (alike(item), frozenset(above[key]), frozenset(below[key]))
        bundles.setdefault(place, []).append(item)
    found: list[list[T]] = []
    for bundle in bundles.values():
        found += [bundle] if len(bundle) >= least else [[item] for item in bundle]
    return found


def draw(
    names: Sequence[str], edges: Iterable[tuple[str, str]], mark: Mapping[str, str]
) -> list[str] | None:
    """The lines before each name, in an order as `ordered` gives; None: it would be too wide."""
    above: defaultdict[str, set[str]] = defaultdict(set)
    left: defaultdict[str, int] = defaultdict(int)  # downstreams still to come
    for upstream, downstream in set(edges):
        above[downstream].add(upstream)
        left[upstream] += 1
    lanes: list[str | None] = []
    rows: list[str] = []
    for name in names:
        joined = [at for at, lane in enumerate(lanes) if lane in above[name] and lane is not None]
        for at in joined:
            left[lanes[at] or ""] -= 1
        column = _free(lanes, joined[-1] + 1 if joined else 0)
        if column >= LANES_MAX:
            return None
        rows.append(_row(lanes, joined, column, left, mark[name]))
        for at in joined:
            if not left[lanes[at] or ""]:
                lanes[at] = None
        if left[name]:
            lanes[column] = name
        while lanes and lanes[-1] is None:
            lanes.pop()
    return rows


def _free(lanes: list[str | None], first: int) -> int:
    """The leftmost empty column from a given one on."""
    for at in range(first, len(lanes)):
        if lanes[at] is None:
            return at
    lanes.append(None)
    return len(lanes) - 1


def _row(
    lanes: Sequence[str | None],
    joined: Sequence[int],
    column: int,
    left: Mapping[str, int],
    mark: str,
) -> str:
    first = joined[0] if joined else column
    cells = []
    for at, lane in enumerate(lanes):
        across = first <= at < column
        if at == column:
            cell = mark
        elif lane is None:
            cell = "─" if across else " "
        elif at not in joined:
            cell = "│"
        elif left[lane]:
            cell = "├" if at == first else "┼"
        else:
            cell = "╰" if at == first else "┴"
        cells.append(cell + ("─" if across else " "))
    return "".join(cells).rstrip()
