"""One flow: how far it is, what holds it up, and what will fail with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flowfabric.api.page import Page
from flowfabric.model.flow import (
    SIBLING_SATISFIED,
    AnySucceeded,
    CancellationPolicy,
    FlowState,
    Quorum,
)
from flowfabric.model.flow_graph import FlowGraph, FlowMember, GraphNode, GroupPlace
from flowfabric.model.flow_results import FlowSnapshot
from flowfabric.model.layers import URGENT_FIRST, join_of
from flowfabric.model.record import Record
from flowfabric.model.results import Explanation
from flowfabric.model.state import TERMINAL_STATES, PublicState
from flowfabric.model.telling import Fact, facts_of, headline
from flowfabric.model.times import count, span
from flowfabric.server.routes.values import path_id
from flowfabric.server.ui.draw.graph import Picture
from flowfabric.server.ui.draw.waterfall import Waterfall
from flowfabric.server.ui.showing import number
from flowfabric.server.ui.views.flow_address import FIT, ONLY, TABS, ZOOMS, Asked
from flowfabric.server.ui.views.flow_folds import Folds, ranks_of
from flowfabric.server.ui.views.flow_nodes import NOT_NEEDED, Nodes, name_of, reached, tells, took

_NOW: Final = {
    PublicState.ACTIVE: "running",
    PublicState.SUSPENDED: "suspended",
    PublicState.RATE_LIMITED: "rate limited",
    PublicState.DELAYED: "delayed",
    PublicState.WAITING: "waiting for a worker",
    PublicState.WAITING_CHILDREN: "waiting for others",
}
_BEGUN: Final = (PublicState.ACTIVE, PublicState.SUSPENDED)
_LOST: Final = (PublicState.FAILED, PublicState.EXPIRED)
# Reasons that the engine writes itself.
_REASONS: Final = {
    SIBLING_SATISFIED: NOT_NEEDED,
    "dependency_impossible": "what it waited for was lost",
}
_NAMED_MAX: Final = 12  # of a chain that are named


class Choice(Record, frozen=True):
    """A tab, a filter, a switch: its word, where it leads, whether it is chosen."""

    word: str
    href: str
    is_here: bool
    state: str = ""  # whose sign it has


class Node(Record, frozen=True, kw_only=True):
    """A member in a list."""

    path_id: str
    name: str
    kind: str
    state: str
    note: str
    reason: str
    attempts: int
    created_at: int
    started_at: int | None
    took: str
    is_running: bool
    href: str
    waits_for: tuple[str, ...] = ()
    is_critical: bool = False
    is_at: bool = False


class FoldRow(Record, frozen=True, kw_only=True):
    """Those of one level, task and state in a list."""

    level: str
    name: str
    state: str
    many: int
    href: str
    is_here: bool


class Join(Record, frozen=True, kw_only=True):
    """A join that needs only some of its upstreams: who won, and who was not needed."""

    name: str
    href: str
    words: str
    upstreams: tuple[Node, ...]


class Panel(Record, frozen=True, kw_only=True):
    """The member that is looked at. `following`: how many depend on it; None where that is not
    counted."""

    node: Node
    join: str
    why: str
    facts: tuple[Fact, ...]
    upstreams: tuple[Node, ...]
    downstreams: tuple[Node, ...]
    more_upstreams: bool
    more_downstreams: bool
    following: int | None
    close: str


class Listed(Record, frozen=True, kw_only=True):
    """Members one by one, a page of them. `what`: which."""

    what: str
    nodes: tuple[Node, ...]
    next: str | None
    first: str | None
    close: str | None
    states: tuple[Choice, ...] = ()


class Cancel(Record, frozen=True, kw_only=True):
    """What a policy of cancelling does: how many nodes it cancels now."""

    policy: str
    words: str
    many: int


class Flow(Record, frozen=True, kw_only=True):
    """The page."""

    title: str
    flow_id: str
    kind: str
    state: str
    namespace: str
    created_at: int
    finished_at: int | None
    took: str
    tags: tuple[tuple[str, str], ...]
    cancelled: str
    then: tuple[str, ...]
    ended: int
    many: int
    edges: int
    sentence: str
    bar: tuple[tuple[float, str, str], ...]
    counts: tuple[tuple[str, int, str], ...]
    tabs: tuple[Choice, ...]
    only: tuple[Choice, ...]
    tab: str
    alike: Choice | None
    zoom: int
    zooms: tuple[Choice, ...]
    chain: tuple[tuple[str, str], ...]
    chain_more: int
    joins: tuple[Join, ...]
    picture: Picture | None
    waterfall: Waterfall | None
    nodes: tuple[Node, ...]
    folds: tuple[FoldRow, ...]
    listed: Listed | None
    panel: Panel | None
    is_absent: bool  # the member that the address names is none of this flow
    cancels: tuple[Cancel, ...]
    failed: int
    topics: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether time alone changes nothing: nothing is left to happen."""
        return self.ended == self.many > 0


def flow_of(
    graph: FlowGraph,
    asked: Asked,
    now: int,
    *,
    member: FlowMember | None = None,
    why: Explanation | None = None,
    page: Page[GraphNode] | None = None,
) -> Flow:
    """The page of a flow. `member`: the one that the address names; `page`: of the members that a
    list shows."""
    drawn = _folded(graph, asked, now, member) if graph.is_folded else _in_full(graph, asked, now)
    flow = graph.flow
    counts = {state: flow.members.get(state, 0) for state in URGENT_FIRST if state in flow.members}
    ended = sum(many for state, many in counts.items() if state in TERMINAL_STATES)
    end = now if flow.finished_at is None else flow.finished_at
    return Flow(
        title=f"Flow {flow.flow_kind}",
        flow_id=flow.flow_id,
        kind=flow.flow_kind,
        state=flow.public_flow_state.value,
        namespace=flow.namespace,
        created_at=flow.created_at,
        finished_at=flow.finished_at,
        took=span(max(0, end - flow.created_at)),
        tags=tuple(flow.tags.items()),
        cancelled=_cancelled(flow),
        then=tuple(f"{each.role.value}: {each.execution_kind}" for each in flow.successors),
        ended=ended,
        many=flow.node_count,
        edges=flow.edge_count,
        sentence=sentence_of(flow.public_flow_state, counts),
        bar=_bar(counts, flow.node_count),
        counts=tuple((state.value, many, _listing(asked, state)) for state, many in counts.items()),
        tabs=tuple(Choice(each, asked.address(tab=each), each == asked.tab) for each in TABS),
        only=tuple(
            Choice(each, asked.address(only="" if each == asked.only else each), each == asked.only)
            for each in ONLY
        ),
        tab=asked.tab,
        alike=_alike(graph, asked),
        zoom=asked.zoom,
        zooms=_zooms(asked),
        chain=drawn.chain[:_NAMED_MAX],
        chain_more=max(0, len(drawn.chain) - _NAMED_MAX),
        joins=drawn.joins,
        picture=drawn.picture,
        waterfall=drawn.waterfall,
        nodes=drawn.nodes,
        folds=drawn.folds,
        listed=None if page is None else _listed(graph, asked, page),
        panel=None if member is None else _panel(member, why, asked, now, drawn.following),
        is_absent=bool(asked.node) and member is None,
        cancels=_cancels(flow, counts),
        failed=sum(many for state, many in counts.items() if state in _LOST),
        topics=_topics(graph),
    )


class _Drawn(Record, frozen=True, kw_only=True):
    """What differs between a flow drawn node by node and one that is folded."""

    chain: tuple[tuple[str, str], ...]
    picture: Picture | None
    waterfall: Waterfall | None
    joins: tuple[Join, ...] = ()
    nodes: tuple[Node, ...] = ()
    folds: tuple[FoldRow, ...] = ()
    following: int | None = None


def _in_full(graph: FlowGraph, asked: Asked, now: int) -> _Drawn:
    nodes = Nodes(graph, asked)
    title, desc = _words(graph, f"{count(len(graph.nodes), 'box')}, a box for each node")
    chain = frozenset(nodes.chain)
    rows = {key: _row(nodes, each, chain) for key, each in nodes.by_id.items()}
    return _Drawn(
        chain=tuple((rows[key].name, rows[key].href) for key in nodes.chain),
        picture=Picture(title=title, desc=desc, boxes=nodes.boxes(), wires=nodes.wires())
        if asked.tab == "graph"
        else None,
        waterfall=Waterfall(title=title, desc=desc, bars=nodes.bars(), now=now)
        if asked.tab == "waterfall"
        else None,
        joins=tuple(_joins(nodes, rows)),
        nodes=tuple(rows[key] for key, each in nodes.by_id.items() if nodes.fits(each)),
        following=None if nodes.at is None else len(reached(nodes.at, nodes.below)),
    )


def _folded(graph: FlowGraph, asked: Asked, now: int, member: FlowMember | None) -> _Drawn:
    folds = Folds(graph, asked, member)
    title, desc = _words(graph, "a box for all nodes of a task and rank, with how many there are")
    return _Drawn(
        chain=tuple(
            (folds.name(place), asked.address(fold=place, node="", state=""))
            for place in folds.chain
        ),
        picture=Picture(
            title=title, desc=desc, boxes=folds.boxes(), wires=folds.wires(), heads=folds.heads()
        )
        if asked.tab == "graph"
        else None,
        waterfall=Waterfall(title=title, desc=desc, bars=folds.bars(), now=now)
        if asked.tab == "waterfall"
        else None,
        folds=tuple(_fold_rows(folds, asked)),
    )


def _words(graph: FlowGraph, what: str) -> tuple[str, str]:
    flow = graph.flow
    many = f"{count(flow.node_count, 'node')} and {count(flow.edge_count, 'edge')}"
    return (
        f"{flow.flow_kind}, {flow.public_flow_state.value}",
        f"A flow of {many}: {what}. The table below has the same.",
    )


# --- the head ------------------------------------------------------------------------------------


def sentence_of(state: FlowState, counts: Mapping[PublicState, int]) -> str:
    """What goes on in a flow, in a sentence."""
    now = [f"{number(counts[each])} {words}" for each, words in _NOW.items() if counts.get(each)]
    lost = [
        f"{number(counts[each])} {each.value}"
        for each in (PublicState.FAILED, PublicState.EXPIRED, PublicState.CANCELLED)
        if counts.get(each)
    ]
    if not counts:
        return "It has no nodes yet."
    if not now:
        how = {FlowState.COMPLETED: "All it needed succeeded", FlowState.FAILED: "It failed"}
        told_so = how.get(state, "It was cancelled")
        return ": ".join(filter(None, (told_so, ", ".join(lost)))) + "."
    return ", ".join([*now, *lost]) + "."


def _bar(counts: Mapping[PublicState, int], many: int) -> tuple[tuple[float, str, str], ...]:
    """Parts of the whole, those that have ended first."""
    first = sorted(
        counts, key=lambda each: (each not in TERMINAL_STATES, -URGENT_FIRST.index(each))
    )
    whole = max(many, 1)
    return tuple(
        (round(100 * counts[each] / whole, 2), each.value, f"{number(counts[each])} {each.value}")
        for each in first
        if counts[each]
    )


def _cancelled(flow: FlowSnapshot) -> str:
    if flow.cancelled_at is None:
        return ""
    policy = flow.cancellation_policy.value.replace("_", " ") if flow.cancellation_policy else ""
    return " · ".join(filter(None, (flow.cancel_reason, policy)))


def _listing(asked: Asked, state: PublicState) -> str:
    return asked.address(tab="list", only="", fold=None, node="", state=state.value)


def _alike(graph: FlowGraph, asked: Asked) -> Choice | None:
    """The switch that folds like nodes; none where they have to be."""
    if graph.is_folded and not asked.is_folded:
        return None
    href = asked.address(is_folded=not asked.is_folded, fold=None)
    return Choice("fold like nodes", href, asked.is_folded)


def _topics(graph: FlowGraph) -> tuple[str, ...]:
    """What rings when a member begins: its partition, which the id of any member tells."""
    return () if graph.partition is None else (f"partition:{graph.partition}",)


def _zooms(asked: Asked) -> tuple[Choice, ...]:
    """Smaller, larger, and all of it."""
    now = asked.zoom or 100
    smaller = max((each for each in ZOOMS if each < now), default=now)
    larger = min((each for each in ZOOMS if each > now), default=now)
    return (
        Choice("−", asked.address(zoom=smaller, cursor=asked.cursor), False),
        Choice("+", asked.address(zoom=larger, cursor=asked.cursor), False),
        Choice("fit", asked.address(zoom=FIT, cursor=asked.cursor), asked.zoom == FIT),
    )


def _cancels(flow: FlowSnapshot, counts: Mapping[PublicState, int]) -> tuple[Cancel, ...]:
    """What each policy comes to now. What has begun drains where only the rest is cancelled."""
    if flow.public_flow_state.is_terminal:
        return ()
    live = {state: many for state, many in counts.items() if state not in TERMINAL_STATES}
    every = sum(live.values())
    pending = sum(many for state, many in live.items() if state not in _BEGUN)
    return (
        Cancel(
            policy=CancellationPolicy.CANCEL_ALL.value,
            words=f"All {number(every)} that have not ended; those that run are told to stop",
            many=every,
        ),
        Cancel(
            policy=CancellationPolicy.CANCEL_PENDING.value,
            words=f"At most the {number(pending)} that do not run; what has begun goes on",
            many=pending,
        ),
        Cancel(
            policy=CancellationPolicy.FLOW_ONLY.value,
            words="None: the flow alone is closed, and takes no more nodes",
            many=0,
        ),
    )


# --- lists ---------------------------------------------------------------------------------------


def _row(nodes: Nodes, node: GraphNode, chain: frozenset[str]) -> Node:
    key = node.execution_id
    waits = tuple(name_of(nodes.by_id[each]) for each in nodes.above[key])
    return _node(
        node,
        nodes.asked,
        note=nodes.cause(node),
        waits_for=waits,
        is_critical=key in chain,
    )


def _node(
    node: GraphNode,
    asked: Asked,
    *,
    note: str = "",
    waits_for: tuple[str, ...] = (),
    is_critical: bool = False,
) -> Node:
    key = path_id(node.execution_id)
    return Node(
        path_id=key,
        name=name_of(node),
        kind=node.execution_kind,
        state=node.public_state.value,
        note=note,
        reason=_REASONS.get(node.reason) or headline(node.reason),
        attempts=node.attempt_count,
        created_at=node.created_at,
        started_at=node.started_at,
        took=took(node),
        is_running=node.started_at is not None and node.public_state in _BEGUN,
        href=asked.address(node=key),
        waits_for=waits_for,
        is_critical=is_critical,
        is_at=key == asked.node,
    )


def _fold_rows(folds: Folds, asked: Asked) -> Iterable[FoldRow]:
    for place in folds.places:
        for state, many in folds.counts(place).items():
            if not folds.fits((state,)):
                continue
            yield FoldRow(
                level=ranks_of(folds.levels[place.level]),
                name=place.execution_kind or "all tasks",
                state=state.value,
                many=many,
                href=asked.address(fold=place, state=state.value, node="", only=""),
                is_here=place == asked.fold and asked.state in ("", state.value),
            )


def _joins(nodes: Nodes, rows: Mapping[str, Node]) -> Iterable[Join]:
    """Joins that can do without some: those that count, first."""
    for key, group in nodes.groups.items():
        if isinstance(group.policy, AnySucceeded | Quorum) and key in rows:
            yield Join(
                name=rows[key].name,
                href=rows[key].href,
                words=join_of(group),
                upstreams=tuple(rows[each] for each in nodes.above[key]),
            )


def _listed(graph: FlowGraph, asked: Asked, page: Page[GraphNode]) -> Listed:
    return Listed(
        what=_what(graph, asked),
        nodes=tuple(_node(each, asked) for each in page.items),
        next=asked.address(cursor=page.next_cursor) if page.next_cursor else None,
        first=asked.address() if asked.cursor else None,
        close=None if asked.fold is None else asked.address(fold=None, state="", node=""),
        states=() if asked.fold is None else _states(graph, asked, asked.fold),
    )


def _what(graph: FlowGraph, asked: Asked) -> str:
    where = ""
    if asked.fold is not None:
        levels = {each.level: each for each in graph.levels}
        at = levels.get(asked.fold.level)
        rank = "" if at is None else f" of {ranks_of(at)}"
        where = f"{asked.fold.execution_kind or 'Nodes'}{rank}"
    which = asked.state or asked.only
    return ", ".join(filter(None, (where, which))) or "All nodes"


def _states(graph: FlowGraph, asked: Asked, place: GroupPlace) -> tuple[Choice, ...]:
    """The states of an open fold, to look at one of them."""
    counts = {
        each.public_state: each.count
        for each in graph.groups
        if each.level == place.level
        and (each.execution_kind == place.execution_kind or not place.execution_kind)
    }
    return tuple(
        Choice(
            f"{number(counts[state])} {state.value}",
            asked.address(state="" if asked.state == state.value else state.value, node=""),
            asked.state == state.value,
            state.value,
        )
        for state in URGENT_FIRST
        if state in counts
    )


# --- one member ----------------------------------------------------------------------------------


def _panel(
    member: FlowMember, why: Explanation | None, asked: Asked, now: int, following: int | None
) -> Panel:
    def shown(nodes: Sequence[GraphNode]) -> tuple[Node, ...]:
        return tuple(_node(each, asked) for each in nodes)

    node = member.node
    is_over = node.public_state in TERMINAL_STATES
    return Panel(
        node=_node(node, asked),
        join=join_of(member.join),
        why=tells(node, member.join, "") if why is None or is_over else why.summary,
        facts=() if why is None or is_over else facts_of(why, now),
        upstreams=shown(member.upstreams),
        downstreams=shown(member.downstreams),
        more_upstreams=member.more_upstreams,
        more_downstreams=member.more_downstreams,
        following=following,
        close=asked.address(node=""),
    )
