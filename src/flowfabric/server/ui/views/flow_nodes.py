"""A flow drawn node by node: what each box says, which wires lead to it, and what is lit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from flowfabric.model.flow import SIBLING_SATISFIED, EdgeState
from flowfabric.model.flow_graph import FlowGraph, GraphNode
from flowfabric.model.flow_results import EdgeGroupSnapshot
from flowfabric.model.layers import join_of, label_of, layers
from flowfabric.model.state import PublicState
from flowfabric.model.telling import headline
from flowfabric.model.times import span
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.draw.graph import Box, Wire
from flowfabric.server.ui.draw.waterfall import Bar
from flowfabric.server.ui.views.chains import Span, cause_of, critical_chain
from flowfabric.server.ui.views.flow_address import STATES_OF, Asked

NOT_NEEDED = "not needed"
_LOST = (PublicState.FAILED, PublicState.CANCELLED, PublicState.EXPIRED)
_GONE = (PublicState.SKIPPED, PublicState.CANCELLED)
_LOOKS = {EdgeState.SATISFIED: "met", EdgeState.APPLIED: "open", EdgeState.PENDING: "staged"}


class Nodes:
    """The members of a small flow, and what follows from how they are wired."""

    def __init__(self, graph: FlowGraph, asked: Asked) -> None:
        self.graph = graph
        self.asked = asked
        self.by_id = {each.execution_id: each for each in graph.nodes}
        self.groups = {each.downstream_execution_id: each for each in graph.flow.edge_groups}
        self.states = self._links()
        self.above: defaultdict[str, list[str]] = defaultdict(list)
        self.below: defaultdict[str, list[str]] = defaultdict(list)
        for up, down in self.states:
            self.above[down].append(up)
            self.below[up].append(down)
        spans = {
            key: Span(each.created_at, each.ended_at, each.public_state in _GONE)
            for key, each in self.by_id.items()
        }
        self.chain = critical_chain(spans, self.states)
        self._causes: dict[str, str] = {}
        self._lost = frozenset(k for k, each in self.by_id.items() if each.public_state in _LOST)

    def _links(self) -> dict[tuple[str, str], EdgeState]:
        """Edges with their states; a child comes after its parent."""
        found = {
            (each.upstream_execution_id, each.downstream_execution_id): each.edge_state
            for each in self.graph.edges
        }
        for each in self.graph.nodes:
            if each.parent_id is not None:
                found.setdefault((each.parent_id, each.execution_id), EdgeState.SATISFIED)
        known = self.by_id
        return {ends: state for ends, state in found.items() if all(e in known for e in ends)}

    @property
    def at(self) -> str | None:
        """The member that is looked at, if it is one of these."""
        return next((key for key in self.by_id if path_id(key) == self.asked.node), None)

    def fits(self, node: GraphNode) -> bool:
        """Whether the filter lets it pass."""
        return not self.asked.only or node.public_state in STATES_OF[self.asked.only]

    # --- words -----------------------------------------------------------------------------------

    def is_loser(self, node: GraphNode) -> bool:
        """Whether a join that was met without it had it cancelled."""
        is_cancelled = node.public_state is PublicState.CANCELLED
        return is_cancelled and node.reason == SIBLING_SATISFIED

    def note(self, node: GraphNode) -> str:
        """The one fact worth knowing beside its state."""
        return self.cause(node) or " · ".join(filter(None, (_tries(node), took(node))))

    def cause(self, node: GraphNode) -> str:
        """What of other nodes has made it what it is, or keeps it back."""
        found = self._causes.get(node.execution_id)
        if found is None:
            found = self._causes[node.execution_id] = self._cause(node)
        return found

    def _cause(self, node: GraphNode) -> str:
        if self.is_loser(node):
            return NOT_NEEDED
        if node.public_state is PublicState.SKIPPED:
            cause = cause_of(node.execution_id, self.above, self._lost)
            if cause is not None:
                lost = self.by_id[cause]
                return f"{name_of(lost)} {lost.public_state.value}"
        group = self.groups.get(node.execution_id)
        if group is not None and not node.attempt_count and group.running_count:
            return join_of(group)
        return ""

    def tells(self, node: GraphNode) -> str:
        """All that a small room tells of it."""
        return tells(node, self.groups.get(node.execution_id), self.cause(node))

    # --- drawings --------------------------------------------------------------------------------

    def boxes(self) -> tuple[Box, ...]:
        """One for each node, in its layer."""
        columns = self._columns()
        lit = self._lit()
        chain = frozenset(self.chain)
        return tuple(
            Box(
                key=key,
                column=column,
                name=name_of(node),
                state=node.public_state,
                line=" · ".join(filter(None, (node.public_state.value, self.note(node)))),
                tells=self.tells(node),
                href=self.asked.address(node=path_id(key), fold=None),
                light=lit.get(key, ""),
                is_faint=not self.fits(node),
                is_critical=key in chain,
            )
            for key, column in columns.items()
            for node in (self.by_id[key],)
        )

    def _columns(self) -> dict[str, int]:
        """Each node behind all that it waits for. One that waits for none stands just before the
        first that waits for it, so that wires are short."""
        found = {
            key: column
            for column, keys in enumerate(layers(list(self.by_id), self.states))
            for key in keys
        }
        for key in self.by_id:
            if not self.above[key] and self.below[key]:
                found[key] = min(found[each] for each in self.below[key]) - 1
        return found

    def wires(self) -> tuple[Wire, ...]:
        """One for each edge."""
        lit, steps = self._lit(), set(zip(self.chain, self.chain[1:], strict=False))
        return tuple(
            Wire(
                upstream=up,
                downstream=down,
                look=self._look(down, state),
                is_lit=_is_lit(lit.get(up), lit.get(down)),
                is_critical=(up, down) in steps,
            )
            for (up, down), state in self.states.items()
        )

    def _look(self, down: str, state: EdgeState) -> str:
        """A loss is told only where it has cost something."""
        if state is not EdgeState.IMPOSSIBLE:
            return _LOOKS[state]
        is_lost = self.by_id[down].public_state is PublicState.SKIPPED
        return "dead" if is_lost else "spared"

    def _lit(self) -> dict[str, str]:
        """The member that is looked at, all it waits for, and all that depends on it."""
        if self.at is None:
            return {}
        above = dict.fromkeys(reached(self.at, self.above), "above")
        below = dict.fromkeys(reached(self.at, self.below), "below")
        return {**above, **below, self.at: "at"}

    def bars(self) -> tuple[Bar, ...]:
        """The rows of the waterfall: by their beginnings."""
        chain, at = frozenset(self.chain), self.at
        nodes = sorted(self.by_id.values(), key=_by_beginning)
        return tuple(
            Bar(
                name=name_of(each),
                state=each.public_state,
                tells=self.tells(each),
                href=self.asked.address(node=path_id(each.execution_id), fold=None),
                created_at=each.created_at,
                began_at=each.started_at,
                ended_at=each.ended_at,
                is_critical=each.execution_id in chain,
                is_faint=not self.fits(each),
                is_at=each.execution_id == at,
            )
            for each in nodes
        )


def _tries(node: GraphNode) -> str:
    return f"try {node.attempt_count}" if node.attempt_count > 1 else ""


def name_of(node: GraphNode) -> str:
    """The name of a node."""
    return label_of(node.node_name, node.execution_kind)


def took(node: GraphNode) -> str:
    """How long it ran, once it has ended; until then the browser counts."""
    if node.started_at is None or node.ended_at is None:
        return ""
    return span(max(0, node.ended_at - node.started_at))


def tells(node: GraphNode, group: EdgeGroupSnapshot | None, note: str) -> str:
    """All that a small room tells of a node."""
    kind = f" ({node.execution_kind})" if node.execution_kind != name_of(node) else ""
    join = join_of(group)
    reason = "" if note and node.public_state in _GONE else headline(node.reason)
    several = (note, join if join != note else "", _tries(node), took(node), reason)
    more = "; ".join(filter(None, several))
    return f"{name_of(node)}{kind}: {node.public_state.value}{'; ' if more else ''}{more}"


def reached(start: str, beside: Mapping[str, Sequence[str]]) -> set[str]:
    """All that is connected with one, in one direction; without itself."""
    seen: set[str] = set()
    left: list[str] = [start]
    while left:
        fresh: Iterable[str] = (each for each in beside.get(left.pop(), ()) if each not in seen)
        for each in list(fresh):
            seen.add(each)
            left.append(each)
    return seen - {start}


def _is_lit(up: str | None, down: str | None) -> bool:
    """Whether a wire is part of what leads to the one that is looked at, or of what follows."""
    before = up == "above" and down in ("above", "at")
    return before or (up in ("at", "below") and down == "below")


def _by_beginning(node: GraphNode) -> tuple[bool, int, int]:
    began = node.started_at
    return began is None, node.created_at if began is None else began, node.rank
