"""How members and edges of a flow are counted together, over records: what SQL stores do in a
statement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from flowfabric.model.execution import Execution
from flowfabric.model.flow import EdgeRow, MemberRow
from flowfabric.model.flow_graph import (
    EdgeFold,
    Folding,
    MemberFilter,
    MemberFold,
    rank_drawn,
)
from flowfabric.model.route import Route
from flowfabric.model.state import ID_OF_VECTOR

Members = Mapping[str, tuple[MemberRow, Execution]]  # by id, in their order
Place = tuple[int, bool, Route | None]


def fold_members(members: Members, folding: Folding) -> list[MemberFold]:
    """Members that are alike, level by level."""
    places, ranks = _places(members, folding), _ranks(members)
    alike: dict[Any, list[str]] = {}
    for key, (_, execution) in members.items():
        alike.setdefault((places[key], execution.state), []).append(key)
    found = []
    for (place, state), keys in alike.items():
        executions = [members[key][1] for key in keys]
        found.append(
            MemberFold(
                place[0],
                place[1],
                place[2],
                state,
                len(keys),
                min(ranks[key] for key in keys),
                max(ranks[key] for key in keys),
                min(each.created_at for each in executions),
                _least([each.started_at for each in executions]),
                max((each.completed_at for each in executions if each.completed_at), default=None),
            )
        )
    found.sort(key=lambda each: (each.level, each.are_children, _name(each.route), _id(each)))
    return found[: folding.limit]


def fold_edges(members: Members, edges: Iterable[EdgeRow], folding: Folding) -> list[EdgeFold]:
    """Edges between members that are alike, the most first."""
    places = _places(members, folding)
    counts: Counter[tuple[Place, Place]] = Counter()
    for edge in edges:
        ends = edge.upstream_execution_id, edge.downstream_execution_id
        if all(key in places for key in ends):
            counts[places[ends[0]], places[ends[1]]] += 1
    found = [EdgeFold(up, down, count) for (up, down), count in counts.items()]
    found.sort(key=lambda each: -each.count)
    return found[: folding.limit]


def find_members(members: Members, wanted: MemberFilter) -> list[str]:
    """The ids of members that fit."""
    ranks = _ranks(members)
    return [
        key
        for key, (_, execution) in members.items()
        if key > wanted.after
        and wanted.first_rank <= ranks[key] <= wanted.last_rank
        and (wanted.routes is None or execution.route in wanted.routes)
        and execution.public_state.value in wanted.states
        and not (wanted.is_free and execution.open_group)
    ]


def _ranks(members: Members) -> dict[str, int]:
    ranks = {}
    for key, (row, _) in members.items():
        parent = members.get(row.parent_id or "")
        ranks[key] = rank_drawn(row, None if parent is None else parent[0])
    return ranks


def _places(members: Members, folding: Folding) -> dict[str, Place]:
    ranks = _ranks(members)
    step = 1 + max((row.rank for row, _ in members.values()), default=0) // folding.levels_max
    if not folding.by_task:
        return {key: (rank // step, False, None) for key, rank in ranks.items()}
    return {
        key: (ranks[key] // step, row.parent_id is not None, execution.route)
        for key, (row, execution) in members.items()
    }


def _least(values: list[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _name(route: Route | None) -> tuple[str, str, str]:
    return ("", "", "") if route is None else (route.namespace, route.lane_id, route.execution_kind)


def _id(fold: MemberFold) -> int:
    return ID_OF_VECTOR[fold.state]
