"""Ranks: every edge leads from a lower to a higher one, so no execution waits for itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from flowfabric.errors import CycleDetected
from flowfabric.kernel.decision import Refused
from flowfabric.model.flow import EdgeAhead, MemberRow
from flowfabric.model.record import Record, replace


class Rise(Record, frozen=True):
    """Members whose ranks a new edge raises, found level by level.

    The rule names a level, its edges are fetched, and `risen` names the next one.
    """

    upstream_id: str  # of the new edge
    level: Mapping[str, int] = {}  # the members that come next, and the least rank of each
    raised: Mapping[str, MemberRow] = {}  # with their new ranks

    @property
    def closes_cycle(self) -> bool:
        """Whether the new edge's upstream is behind its own downstream: this would never end."""
        return self.upstream_id in self.level


def rise(upstream: MemberRow, downstream: MemberRow) -> Rise:
    """What a new edge between two members raises first."""
    if downstream.rank > upstream.rank:
        return Rise(upstream.execution_id)
    return Rise(upstream.execution_id, {downstream.execution_id: upstream.rank + 1})


def risen(before: Rise, members: Mapping[str, MemberRow], edges: Iterable[EdgeAhead]) -> Rise:
    """A level is raised. `edges`: all that leave it; `members`: their rows, at both ends."""
    raised = dict(before.raised)
    for key, rank in before.level.items():
        raised[key] = replace(members[key], rank=rank)
    level: dict[str, int] = {}
    for edge in edges:
        child, least = edge.downstream_execution_id, raised[edge.upstream_execution_id].rank + 1
        row = raised.get(child) or members.get(child)
        if row is not None and least > row.rank:
            level[child] = max(level.get(child, 0), least)
    return Rise(before.upstream_id, level, raised)


def ranks_of(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, int] | Refused:
    """How far each node is from the start, or a node that waits for itself."""
    place = {name: at for at, name in enumerate(names)}
    waits_for, latest = [0] * len(place), [-1] * len(place)
    ends, earlier = [], []  # where an edge leads, and the edge before it from the same node
    for at, (upstream, downstream) in enumerate(edges):
        start, end = place[upstream], place[downstream]
        waits_for[end] += 1
        ends.append(end)
        earlier.append(latest[start])
        latest[start] = at
    ranks: dict[str, int] = {}
    level, rank = [at for at, number in enumerate(waits_for) if not number], 0
    while level:
        ranks.update((names[at], rank) for at in level)
        rank += 1
        behind = []
        for at in level:
            edge = latest[at]
            while edge >= 0:
                end = ends[edge]
                waits_for[end] -= 1
                if not waits_for[end]:  # the last it waits for is as far as can be
                    behind.append(end)
                edge = earlier[edge]
        level = behind
    if len(ranks) == len(place):
        return ranks
    around = _cycle({name for name in names if name not in ranks}, edges)
    path = " → ".join(around)
    return Refused(CycleDetected, f"edges: {path}", {"field": "edges", "nodes": around})


def _cycle(waiting: set[str], edges: Sequence[tuple[str, str]]) -> list[str]:
    """One cycle among nodes each of which waits for another of them."""
    upstream = {child: name for name, child in edges if name in waiting and child in waiting}
    name = min(waiting)
    seen: dict[str, int] = {}
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = upstream[name]
    around = path[seen[name] :][::-1]
    return [*around, around[0]]
