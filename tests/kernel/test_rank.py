"""Ranks rise with a new edge, or a cycle is found."""

from __future__ import annotations

import random

from flowfabric.kernel.flow.rank import Rise, rise, risen
from flowfabric.model.flow import EdgeAhead, EdgeState, MemberRow


def edge(upstream: str, downstream: str) -> EdgeAhead:
    return EdgeAhead("f", upstream + downstream, upstream, downstream, EdgeState.APPLIED)


def add(ranks: dict[str, int], edges: list[EdgeAhead], new: EdgeAhead) -> Rise:
    """As the engine does it: a level at a time, each with the edges that leave it."""
    rows = {name: MemberRow("f", name, rank=rank) for name, rank in ranks.items()}
    found = rise(rows[new.upstream_execution_id], rows[new.downstream_execution_id])
    while found.level and not found.closes_cycle:
        leaving = [each for each in edges if each.upstream_execution_id in found.level]
        found = risen(found, rows, leaving)
    return found


def test_an_edge_that_leads_upwards_raises_nothing() -> None:
    assert rise(MemberRow("f", "a", rank=1), MemberRow("f", "b", rank=2)) == Rise("a")


def test_a_member_that_stands_as_high_rises_above_its_upstream() -> None:
    found = rise(MemberRow("f", "a", rank=3), MemberRow("f", "b", rank=3))
    assert found.level == {"b": 4}


def test_everything_behind_rises_as_far_as_it_must() -> None:
    ranks = {"a": 5, "b": 0, "c": 1, "d": 9}
    found = add(ranks, [edge("b", "c"), edge("c", "d")], edge("a", "b"))
    assert {key: row.rank for key, row in found.raised.items()} == {"b": 6, "c": 7}


def test_ranks_stay_topological_and_cycles_are_found_exactly() -> None:
    draw = random.Random(11)
    cycles = 0
    for _ in range(200):
        names = [f"n{at}" for at in range(draw.randint(2, 7))]
        ranks, edges = dict.fromkeys(names, 0), list[EdgeAhead]()
        for _ in range(draw.randint(1, 14)):
            new = edge(*draw.sample(names, 2))
            is_cycle = _reaches(edges, new.downstream_execution_id, new.upstream_execution_id)
            found = add(ranks, edges, new)
            assert found.closes_cycle is is_cycle
            cycles += is_cycle
            if not is_cycle:
                edges.append(new)
                ranks.update({key: row.rank for key, row in found.raised.items()})
            for each in edges:
                assert ranks[each.upstream_execution_id] < ranks[each.downstream_execution_id]
    assert cycles


def _reaches(edges: list[EdgeAhead], start: str, end: str) -> bool:
    seen, level = {start}, [start]
    while level:
        name = level.pop()
        ahead = {e.downstream_execution_id for e in edges if e.upstream_execution_id == name}
        level += sorted(ahead - seen)
        seen |= ahead
    return end in seen
