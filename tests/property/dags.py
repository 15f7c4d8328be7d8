"""Random graphs, what happens to them, and a brute-force judge of every node's state.

The judge shares nothing with the kernel: a group is decided when no possible rest of its upstreams'
ends could change the answer, and that is found out by trying them all.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from hypothesis import strategies as st

from flowfabric.model.flow import (
    AllDone,
    AllSucceeded,
    AnySucceeded,
    EdgePolicy,
    OnSatisfied,
    Quorum,
)

NODES_MAX = 8
EDGES_MAX = 14
MOVES_MAX = 30
MOVES = (
    *("succeed",) * 7,
    *("fail",) * 3,
    *("start",) * 2,
    *("settle",) * 3,
    "cancel",
    "expire",
    "cascade",
    "resolve",
)

Edge = tuple[int, int]


class Plan(NamedTuple):
    """A graph and what is tried on it, in this order."""

    size: int
    edges: tuple[Edge, ...]
    joins: dict[int, EdgePolicy | None]
    mortal: frozenset[int]  # nodes with a deadline
    in_steps: bool  # built edge by edge, not in one call
    moves: tuple[tuple[str, int], ...]

    def upstreams(self, node: int) -> list[int]:
        return [upstream for upstream, downstream in self.edges if downstream == node]

    def downstreams(self, node: int) -> list[int]:
        return [downstream for upstream, downstream in self.edges if upstream == node]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    size = draw(st.integers(2, NODES_MAX))
    pairs = [(low, high) for high in range(size) for low in range(high)]
    chosen = st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=EDGES_MAX)
    edges = tuple(draw(chosen))
    joins: dict[int, EdgePolicy | None] = {}
    for node in range(size):
        inbound = sum(downstream == node for _, downstream in edges)
        if inbound:
            joins[node] = draw(_policy(inbound))
    mortal = draw(st.frozensets(st.integers(0, size - 1), max_size=2))
    move = st.tuples(st.sampled_from(MOVES), st.integers(0, 2 * NODES_MAX))
    moves = tuple(draw(st.lists(move, max_size=MOVES_MAX)))
    return Plan(size, edges, joins, mortal, draw(st.booleans()), moves)


def _policy(inbound: int) -> st.SearchStrategy[EdgePolicy | None]:
    rest = (st.sampled_from(OnSatisfied), st.booleans())
    return st.one_of(
        st.none(),
        st.just(AllSucceeded()),
        st.just(AllDone()),
        st.builds(AnySucceeded, *rest),
        st.builds(Quorum, st.integers(1, inbound), *rest),
        st.builds(Quorum, st.integers(1, inbound), *rest),
    )


def verdict(policy: EdgePolicy | None, ends: list[bool], live: int) -> bool | None:
    """What a group has become: satisfied, impossible, or none as long as either may come."""
    if isinstance(policy, AllDone):
        return None if live else True
    answers = {_is_met(policy, [*ends, *rest]) for rest in product((True, False), repeat=live)}
    return answers.pop() if len(answers) == 1 else None


def _is_met(policy: EdgePolicy | None, ends: list[bool]) -> bool:
    if isinstance(policy, AnySucceeded):
        return any(ends)
    if isinstance(policy, Quorum):
        return sum(ends) >= policy.k
    return all(ends)


def cancels(policy: EdgePolicy | None) -> bool:
    wanted = OnSatisfied.CANCEL_REMAINING
    return isinstance(policy, AnySucceeded | Quorum) and policy.on_satisfied is wanted


class Judge:
    """Every node's state, by the words people see."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.states = {
            node: "waiting_children" if node in plan.joins else "waiting"
            for node in range(plan.size)
        }
        self.decided: dict[int, bool] = {}
        self.dispatched: set[int] = set()  # groups whose siblings have been cancelled or spared

    def lives(self, node: int) -> bool:
        return self.states[node] in ("waiting_children", "waiting", "active")

    def live(self) -> list[int]:
        return [node for node in self.states if self.lives(node)]

    def among(self, *states: str) -> list[int]:
        return [node for node, state in self.states.items() if state in states]

    def end(self, outcome: str, *nodes: int) -> None:
        """Nodes end at once, and with them whatever follows."""
        for node in nodes:
            assert self.lives(node)
            self.states[node] = outcome
        while any(self._decide(child) for child in self.plan.joins if child not in self.decided):
            pass

    def _decide(self, child: int) -> bool:
        upstreams = self.plan.upstreams(child)
        live = [each for each in upstreams if self.lives(each)]
        ends = [self.states[each] == "completed" for each in upstreams if each not in live]
        answer = verdict(self.plan.joins[child], ends, len(live))
        if answer is None:
            return False
        self.decided[child] = answer
        if self.states[child] == "waiting_children":
            self.states[child] = "waiting" if answer else "skipped"
        return True

    def losers(self, child: int) -> list[int]:
        """Who is no longer needed because this group was decided."""
        policy = self.plan.joins[child]
        if child not in self.decided or not cancels(policy):
            return []
        live = [each for each in self.plan.upstreams(child) if self.lives(each)]
        if isinstance(policy, AnySucceeded | Quorum) and policy.only_if_unshared:
            return [each for each in live if not self._is_awaited(each)]
        return live

    def _is_awaited(self, node: int) -> bool:
        return any(child not in self.decided for child in self.plan.downstreams(node))
