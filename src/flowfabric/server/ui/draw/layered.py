"""Where the boxes of a layered graph stand, and along which lines its wires lead.

Columns go from left to right. Boxes of a column are put in the order in which their wires cross
least, then as near to those they are wired to as their neighbours let them. A wire is made of
horizontals and verticals; one that passes a column has a slot of its own in it, so it crosses no
box. Wires of one box share their way for as long as they can.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from flowfabric.model.record import Record

BOX_WIDTH: Final = 184
MARGIN: Final = 12
_GAP: Final = 16  # between two boxes of a column
_SLOT: Final = 10  # the height of a wire that passes a column
_SLOT_GAP: Final = 6
_SPACE_LEAST: Final = 44  # between two columns
_TRACK: Final = 7  # between two verticals
_TRACKS_MAX: Final = 20
_PORT: Final = 10
_SWEEPS: Final = 6
_REMEMBERED: Final = 64  # layouts

Key = str
Wires = Sequence[tuple[Key, Key]]


class Box(Record, frozen=True):
    """What stands in a column."""

    key: Key
    column: int
    height: int


class Spot(Record, frozen=True):
    """Where a box stands: its left upper corner and its size."""

    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        """The height at which wires begin and end."""
        return self.y + self.height // 2


class Hop(Record, frozen=True):
    """A part of a wire, from one column to the next: along, up or down at `turn`, and along."""

    x: int
    y: int
    turn: int
    to_x: int
    to_y: int
    is_end: bool  # it reaches a box


class Layout(Record, frozen=True):
    """A graph with a place for everything. `columns`: the left edge of each."""

    spots: Mapping[Key, Spot]
    routes: Mapping[tuple[Key, Key], tuple[Hop, ...]]
    columns: tuple[int, ...]
    width: int
    height: int


class _Place:
    """A box, or the slot of a wire in a column that it passes."""

    __slots__ = ("above", "at", "below", "column", "height", "is_slot", "key", "y")

    def __init__(self, key: Key, column: int, height: int, *, is_slot: bool) -> None:
        self.key = key
        self.column = column
        self.height = height
        self.is_slot = is_slot
        self.above: list[_Place] = []  # in the column before
        self.below: list[_Place] = []  # in the column behind
        self.at = 0  # its number in the column
        self.y = 0.0  # of its middle


def lay_out(boxes: Iterable[Box], wires: Iterable[tuple[Key, Key]]) -> Layout:
    """Place everything. Wires that do not lead to a later column are left out.

    A flow is drawn again whenever a state changes, and its boxes stay where they are: what was laid
    out lately is not laid out again.
    """
    return _laid_out(tuple(boxes), tuple(wires))


@lru_cache(maxsize=_REMEMBERED)
def _laid_out(boxes: Sequence[Box], wires: Wires) -> Layout:
    numbers = {column: at for at, column in enumerate(sorted({each.column for each in boxes}))}
    places = {
        each.key: _Place(each.key, numbers[each.column], each.height, is_slot=False)
        for each in boxes
    }
    chains = _chains(places, wires)
    columns: list[list[_Place]] = [[] for _ in numbers]
    for place in [*places.values(), *_slots(chains)]:
        columns[place.column].append(place)
    _connect(chains.values())
    _order(columns)
    _settle(columns)
    turns, lefts = _tracks(columns)
    return _layout(places, chains, columns, turns, lefts)


# --- slots ---------------------------------------------------------------------------------------


def _chains(places: Mapping[Key, _Place], wires: Wires) -> dict[tuple[Key, Key], list[_Place]]:
    """Each wire as the places it touches; those from one box share their slots."""
    slots: dict[tuple[Key, int], _Place] = {}
    found: dict[tuple[Key, Key], list[_Place]] = {}
    for up, down in wires:
        if up not in places or down not in places:
            continue
        start, end = places[up], places[down]
        if start.column >= end.column:
            continue
        chain = [start]
        for column in range(start.column + 1, end.column):
            place = slots.get((up, column))
            if place is None:
                place = slots[up, column] = _Place(up, column, _SLOT, is_slot=True)
            chain.append(place)
        found[up, down] = [*chain, end]
    return found


def _slots(chains: Mapping[tuple[Key, Key], list[_Place]]) -> list[_Place]:
    found = {id(each): each for chain in chains.values() for each in chain if each.is_slot}
    return list(found.values())


def _connect(chains: Iterable[list[_Place]]) -> None:
    seen: set[tuple[int, int]] = set()
    for chain in chains:
        for left, right in pairwise(chain):
            if (id(left), id(right)) not in seen:
                seen.add((id(left), id(right)))
                left.below.append(right)
                right.above.append(left)


# --- the order in a column -----------------------------------------------------------------------


def _order(columns: list[list[_Place]]) -> None:
    """The order with the fewest crossings of those that a few sweeps to and fro come to."""
    _number(columns)
    best, fewest = [list(each) for each in columns], _crossings(columns)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        forth = sweep % 2 == 0
        for column in columns if forth else reversed(columns):
            column.sort(key=lambda each: _mean_at(each.above if forth else each.below, each))
            for at, place in enumerate(column):
                place.at = at
        crossings = _crossings(columns)
        if crossings < fewest:
            best, fewest = [list(each) for each in columns], crossings
    columns[:] = best
    _number(columns)


def _number(columns: Iterable[list[_Place]]) -> None:
    for column in columns:
        for at, place in enumerate(column):
            place.at = at


def _mean_at(beside: Sequence[_Place], place: _Place) -> float:
    return sum(each.at for each in beside) / len(beside) if beside else float(place.at)


def _crossings(columns: Iterable[list[_Place]]) -> int:
    """How many pairs of wires cross between columns."""
    total = 0
    for column in columns:
        ends: list[int] = []
        for place in column:
            here = sorted(each.at for each in place.below)
            total += sum(len(ends) - bisect_right(ends, at) for at in here)
            for at in here:
                insort(ends, at)
    return total


# --- heights -------------------------------------------------------------------------------------


def _settle(columns: Sequence[list[_Place]]) -> None:
    """Heights: first packed, then each column pulled to those beside it, to and fro."""
    for column in columns:
        offsets = _offsets(column)
        for place, offset in zip(column, offsets, strict=True):
            place.y = offset - offsets[-1] / 2
    for sweep in range(4):
        forth = sweep % 2 == 0
        for column in columns if forth else reversed(columns):
            _pull(column, forth=forth)


def _offsets(column: Sequence[_Place]) -> list[int]:
    """The least distances of the middles of a column from its first."""
    found = [0]
    for above, below in pairwise(column):
        gap = _SLOT_GAP if above.is_slot and below.is_slot else _GAP
        found.append(found[-1] + (above.height + below.height) // 2 + gap)
    return found


def _pull(column: Sequence[_Place], *, forth: bool) -> None:
    """As near to what they want as order and distance let them: the least squares of all
    distances, found by joining neighbours that want to pass each other."""
    offsets = _offsets(column)
    runs: list[tuple[float, float, int]] = []  # where it wants to be, its weight, how many places
    for place, offset in zip(column, offsets, strict=True):
        beside = (place.above if forth else place.below) or place.below or place.above
        wanted = sum(each.y for each in beside) / len(beside) if beside else place.y
        run = (wanted - offset, 4.0 if place.is_slot else 1.0, 1)
        while runs and runs[-1][0] > run[0]:
            mean, weight, count = runs.pop()
            both = weight + run[1]
            run = ((mean * weight + run[0] * run[1]) / both, both, count + run[2])
        runs.append(run)
    at = 0
    for mean, _, count in runs:
        for place, offset in zip(column[at : at + count], offsets[at : at + count], strict=True):
            place.y = float(round(mean) + offset)
        at += count


# --- verticals -----------------------------------------------------------------------------------


def _tracks(columns: Sequence[list[_Place]]) -> tuple[dict[int, int], list[int]]:
    """Where each place's wires turn on their way to the next column, and the left edges of the
    columns. Verticals that would lie on each other get tracks beside each other."""
    turns: dict[int, int] = {}
    lefts = [MARGIN]
    for column in columns:
        bends = [place for place in column if any(each.y != place.y for each in place.below)]
        bends.sort(key=_reach)
        ends: list[float] = []  # where the last vertical of each track ends
        tracks: dict[int, int] = {}
        for place in bends:
            first, last = _reach(place)
            free = next((at for at, end in enumerate(ends) if end < first), len(ends))
            if free == len(ends):
                ends.append(last)
            ends[free] = last
            tracks[id(place)] = free
        count = min(max(len(ends), 1), _TRACKS_MAX)
        space = max(_SPACE_LEAST, 30 + _TRACK * count)
        right = lefts[-1] + BOX_WIDTH
        for place in column:
            turns[id(place)] = right + 12 + _TRACK * (tracks.get(id(place), 0) % count)
        lefts.append(right + space)
    return turns, lefts


def _reach(place: _Place) -> tuple[float, float]:
    heights = [place.y, *(each.y for each in place.below)]
    return min(heights), max(heights)


# --- the whole -----------------------------------------------------------------------------------


def _layout(
    places: Mapping[Key, _Place],
    chains: Mapping[tuple[Key, Key], list[_Place]],
    columns: Sequence[list[_Place]],
    turns: Mapping[int, int],
    lefts: Sequence[int],
) -> Layout:
    every = [place for column in columns for place in column]
    top = min((place.y - place.height / 2 for place in every), default=0.0)
    bottom = max((place.y + place.height / 2 for place in every), default=0.0)
    shift = MARGIN - top

    def middle(place: _Place) -> int:
        return round(place.y + shift)

    spots = {
        key: Spot(lefts[place.column], middle(place) - place.height // 2, BOX_WIDTH, place.height)
        for key, place in places.items()
    }
    routes = {}
    for ends, chain in chains.items():
        hops = []
        for left, right in pairwise(chain):
            # a slot's wire goes on through its column
            begins = lefts[left.column] + (0 if left.is_slot else BOX_WIDTH)
            hops.append(
                Hop(
                    *(begins, middle(left) + _port(left, columns), turns[id(left)]),
                    *(lefts[right.column], middle(right), not right.is_slot),
                )
            )
        routes[ends] = tuple(hops)
    width = lefts[len(columns) - 1] + BOX_WIDTH + MARGIN if columns else 2 * MARGIN
    return Layout(
        spots,
        routes,
        tuple(lefts[: len(columns)]),
        width,
        round(bottom - top) + 2 * MARGIN if every else 2 * MARGIN,
    )


def _port(place: _Place, columns: Sequence[list[_Place]]) -> int:
    """How far below its middle a box's wires leave it: elsewhere than where a box opposite is
    entered that none of them leads to, or they would seem to lead there."""
    if place.is_slot:
        return 0
    theirs = {id(each) for each in place.below}
    opposite = (each for each in columns[place.column + 1] if id(each) not in theirs)
    return _PORT if any(abs(each.y - place.y) < _PORT // 2 for each in opposite) else 0


def lines_of(hops: Iterable[Hop]) -> str:
    """The drawing of hops, each line once, as the data of a path."""
    starts: defaultdict[tuple[int, int, int], set[tuple[int, int]]] = defaultdict(set)
    for hop in hops:
        starts[hop.x, hop.y, hop.turn].add((hop.to_x, hop.to_y))
    found = []
    for (x, y, turn), ends in sorted(starts.items()):
        level = [to_x for to_x, to_y in ends if to_y == y]
        found.append(f"M{x} {y}H{max(level, default=turn)}")
        heights = [y, *(to_y for _, to_y in ends)]
        if min(heights) < max(heights):
            found.append(f"M{turn} {min(heights)}V{max(heights)}")
        found += [f"M{turn} {to_y}H{to_x}" for to_x, to_y in sorted(ends) if to_y != y]
    return "".join(found)


def heads_of(hops: Iterable[Hop]) -> str:
    """The heads of the arrows, each once, as the data of a path."""
    ends = sorted({(hop.to_x, hop.to_y) for hop in hops if hop.is_end})
    return "".join(f"M{x} {y}l-7 -4v8z" for x, y in ends)
