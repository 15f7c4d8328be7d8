"""A flow drawn with like nodes as one box: how many are in which state, level by level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric.model.flow_graph import FlowGraph, FlowMember, GraphGroup, GraphLevel, GroupPlace
from flowfabric.model.layers import URGENT_FIRST, most_urgent
from flowfabric.model.marks import MARKS
from flowfabric.model.state import PublicState
from flowfabric.server.ui.draw.graph import ELEMENTS_MAX, Box, Wire
from flowfabric.server.ui.draw.waterfall import Bar
from flowfabric.server.ui.showing import number
from flowfabric.server.ui.views.chains import Span, critical_chain
from flowfabric.server.ui.views.flow_address import STATES_OF, Asked, fold_text

_ROOM: Final = ELEMENTS_MAX - 150  # for wires and what stands above columns
_GONE = (PublicState.SKIPPED, PublicState.CANCELLED)

Counts = Mapping[PublicState, int]


class Folds:
    """The boxes of a folded flow. Tasks of a level are one box where they would be too many."""

    def __init__(self, graph: FlowGraph, asked: Asked, member: FlowMember | None) -> None:
        self.asked = asked
        self.levels = {each.level: each for each in graph.levels}
        self.groups, edges = _drawable(graph)
        self.places: defaultdict[GroupPlace, list[GraphGroup]] = defaultdict(list)
        for each in self.groups:
            self.places[place_of(each)].append(each)
        self.wired = [pair for pair in edges if all(each in self.places for each in pair)]
        spans = {place: _span(groups) for place, groups in self.places.items()}
        self.chain = critical_chain(spans, self.wired)
        self.lit = self._lit(member)

    def counts(self, place: GroupPlace) -> dict[PublicState, int]:
        """How many are in each state, the most urgent first."""
        found = {each.public_state: each.count for each in self.places[place]}
        return {state: found[state] for state in URGENT_FIRST if found.get(state)}

    def fits(self, states: Iterable[PublicState]) -> bool:
        """Whether the filter lets any of these pass."""
        only = self.asked.only
        return not only or not STATES_OF[only].isdisjoint(states)

    def name(self, place: GroupPlace) -> str:
        """What a box is called."""
        count = sum(each.count for each in self.places[place])
        kind = place.execution_kind or ranks_of(self.levels[place.level])
        times = f" ×{number(count)}" if count > 1 or not place.execution_kind else ""
        return f"{kind}{times}"

    def _lit(self, member: FlowMember | None) -> dict[GroupPlace, str]:
        if member is None:
            return {}
        found: dict[GroupPlace, str] = {}
        for light, nodes in (
            ("below", member.downstreams),
            ("above", member.upstreams),
            ("at", (member.node,)),
        ):
            for node in nodes:
                is_child = node.parent_id is not None
                place = self._where(node.rank, node.execution_kind, is_child)
                if place is not None:
                    found[place] = light
        return found

    def _where(self, rank: int, kind: str, is_child: bool) -> GroupPlace | None:
        level = next(
            (at for at, each in self.levels.items() if each.first_rank <= rank <= each.last_rank),
            None,
        )
        if level is None:
            return None
        several = (GroupPlace(level, kind, is_child), GroupPlace(level, "", False))
        return next((each for each in several if each in self.places), None)

    # --- drawings --------------------------------------------------------------------------------

    def boxes(self) -> tuple[Box, ...]:
        """One for each level and task."""
        chain = frozenset(self.chain)
        found = []
        for place in self.places:
            counts = self.counts(place)
            found.append(
                Box(
                    key=fold_text(place),
                    column=place.level,
                    name=self.name(place),
                    state=most_urgent(counts),
                    line=told(counts),
                    tells=f"{self.name(place)}: {spelled(counts)}",
                    href=self.asked.address(fold=place, node="", state=""),
                    parts=tuple(counts.items()),
                    light="at" if place == self.asked.fold else self.lit.get(place, ""),
                    is_faint=not self.fits(counts),
                    is_critical=place in chain,
                )
            )
        return tuple(found)

    def wires(self) -> tuple[Wire, ...]:
        """One for all edges between two boxes."""
        steps = set(zip(self.chain, self.chain[1:], strict=False))
        lit = self.lit
        return tuple(
            Wire(
                upstream=fold_text(up),
                downstream=fold_text(down),
                look=self._look(up),
                is_lit=(lit.get(up), lit.get(down)) in (("above", "at"), ("at", "below")),
                is_critical=(up, down) in steps,
            )
            for up, down in self.wired
        )

    def _look(self, up: GroupPlace) -> str:
        """Met once all that it begins at have ended well."""
        return "met" if set(self.counts(up)) == {PublicState.COMPLETED} else "open"

    def heads(self) -> tuple[tuple[int, str], ...]:
        """The ranks of each level."""
        return tuple((at, ranks_of(level)) for at, level in self.levels.items())

    def bars(self) -> tuple[Bar, ...]:
        """One for each level and task: from the first that could begin to the last that ended."""
        chain = frozenset(self.chain)
        found = []
        for place, groups in self.places.items():
            counts, span = self.counts(place), _span(groups)
            starts = [each.started_at for each in groups if each.started_at is not None]
            found.append(
                Bar(
                    name=self.name(place),
                    state=most_urgent(counts),
                    tells=f"{self.name(place)}: {spelled(counts)}",
                    href=self.asked.address(fold=place, node="", state=""),
                    created_at=span.created_at,
                    began_at=min(starts, default=None),
                    ended_at=span.ended_at,
                    is_critical=place in chain,
                    is_faint=not self.fits(counts),
                    is_at=place == self.asked.fold,
                )
            )
        return tuple(sorted(found, key=lambda each: (each.began_at is None, each.began_at or 0)))


def place_of(group: GraphGroup) -> GroupPlace:
    """Where a group stands."""
    return GroupPlace(group.level, group.execution_kind, group.are_children)


def ranks_of(level: GraphLevel) -> str:
    """The ranks of a level in words."""
    if level.first_rank == level.last_rank:
        return f"rank {level.first_rank}"
    return f"ranks {level.first_rank}–{level.last_rank}"


def told(counts: Counts) -> str:
    """Counts as marks and numbers: `✓9 612 ▶80 ✕108`."""
    return "  ".join(f"{MARKS[state]}{number(many)}" for state, many in counts.items())


def spelled(counts: Counts) -> str:
    """Counts in words: `9 612 completed, 80 active`."""
    return ", ".join(f"{number(many)} {state.value}" for state, many in counts.items())


def _span(groups: Sequence[GraphGroup]) -> Span:
    is_open = any(not each.public_state.is_terminal for each in groups)
    ends = [each.ended_at for each in groups if each.ended_at is not None]
    return Span(
        min(each.created_at for each in groups),
        None if is_open else max(ends, default=None),
        all(each.public_state in _GONE for each in groups),
    )


def _drawable(
    graph: FlowGraph,
) -> tuple[list[GraphGroup], list[tuple[GroupPlace, GroupPlace]]]:
    """The groups and what is wired, with the tasks of a level as one if they were too many."""
    edges = [(each.upstream, each.downstream) for each in graph.group_edges]
    groups = list(graph.groups)
    places: defaultdict[GroupPlace, int] = defaultdict(lambda: 7)  # elements of a box
    for each in groups:
        places[place_of(each)] += 1
    if sum(places.values()) <= _ROOM:
        return groups, edges
    merged: defaultdict[tuple[int, PublicState], list[GraphGroup]] = defaultdict(list)
    for each in groups:
        merged[each.level, each.public_state].append(each)
    together = [_merged(level, state, same) for (level, state), same in merged.items()]
    between = dict.fromkeys(
        (GroupPlace(up.level, "", False), GroupPlace(down.level, "", False)) for up, down in edges
    )
    return together, list(between)


def _merged(level: int, state: PublicState, same: Sequence[GraphGroup]) -> GraphGroup:
    starts = [each.started_at for each in same if each.started_at is not None]
    ends = [each.ended_at for each in same if each.ended_at is not None]
    return GraphGroup(
        level,
        "",
        False,
        state,
        sum(each.count for each in same),
        min(each.created_at for each in same),
        min(starts, default=None),
        max(ends, default=None),
    )
